//! The CustomResourceDefinitions: ours, and what one on a cluster lacks. Pure.
use super::{configuration::Configuration, instance::Instance, node_devices::NodeDevices};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt as _;
use serde_json::Value;

/// Mends definitions that lack something: Helm never upgrades what is in a chart's `crds/`.
pub const HOW_TO_MEND: &str =
    "helm show crds charts/petiole | kubectl apply --server-side --force-conflicts -f -";

/// How to mend one of them. What only agents and the controller use is a template of the chart: Helm upgrades it.
pub fn how_to_mend(name: &str) -> &'static str {
    match name == NodeDevices::crd_name() {
        true => "helm upgrade",
        false => HOW_TO_MEND,
    }
}

/// Configuration, Instance and NodeDevices.
pub fn all() -> [CustomResourceDefinition; 3] {
    let mut all = [Configuration::crd(), Instance::crd(), NodeDevices::crd()];
    for version in all.iter_mut().flat_map(|crd| &mut crd.spec.versions) {
        let schema = version.schema.as_mut();
        let root = schema.and_then(|s| s.open_api_v3_schema.as_mut());
        let fields = root.and_then(|r| r.properties.as_mut());
        if let Some(status) = fields.and_then(|f| f.get_mut("status")) {
            without_null(status);
        }
    }
    let ours = all[2].spec.versions.iter_mut();
    let ours = ours.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    for spec in ours.filter_map(|root| root.properties.as_mut()?.get_mut("spec")) {
        without_null(spec);
    }
    all
}

/// Users may write `null` where Akri lets them; what we write is there or absent.
fn without_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema
        .properties
        .iter_mut()
        .flat_map(|p| p.values_mut())
        .for_each(without_null);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        without_null(items);
    }
}

/// What `ours` has and the one on a cluster lacks: fields such as `spec.gracePeriodSeconds`, and `subresource
/// status`. The API server drops what we write there.
///
/// Both as JSON: what a cluster has may be newer than the types.
pub fn missing(ours: &Value, on_cluster: &Value) -> Vec<String> {
    let none = Vec::new();
    let versions = |crd: &Value| crd["spec"]["versions"].as_array().cloned();
    let theirs = versions(on_cluster).unwrap_or_default();
    let mut missing = Vec::new();
    for version in ours["spec"]["versions"].as_array().unwrap_or(&none) {
        let is_it = |v: &&Value| v["name"] == version["name"] && v["served"] == true;
        let Some(theirs) = theirs.iter().find(is_it) else {
            let name = version["name"].as_str().unwrap_or_default();
            missing.push(format!("version {name}"));
            continue;
        };
        if version["subresources"]["status"].is_object()
            && !theirs["subresources"]["status"].is_object()
        {
            missing.push("subresource status".to_owned());
        }
        let schema = "/schema/openAPIV3Schema";
        add_missing(
            "",
            version.pointer(schema),
            theirs.pointer(schema),
            &mut missing,
        );
    }
    missing
}

fn add_missing(
    path: &str,
    ours: Option<&Value>,
    theirs: Option<&Value>,
    missing: &mut Vec<String>,
) {
    let Some(ours) = ours else { return };
    let keeps_all = |v: &Value| v["x-kubernetes-preserve-unknown-fields"] == true;
    if theirs.is_some_and(keeps_all) {
        return;
    }
    for (name, ours) in ours["properties"].as_object().into_iter().flatten() {
        let path = match path {
            "" => name.clone(),
            parent => format!("{parent}.{name}"),
        };
        match theirs.and_then(|t| t["properties"].get(name)) {
            // Of a whole part that is missing, its name says enough.
            None => missing.push(path),
            theirs => add_missing(&path, Some(ours), theirs, missing),
        }
    }
    if let Some(ours) = ours.get("items") {
        let theirs = theirs.and_then(|t| t.get("items"));
        add_missing(&format!("{path}[]"), Some(ours), theirs, missing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn crd(version: Value) -> Value {
        json!({"spec": {"versions": [version]}})
    }

    fn configuration() -> Value {
        serde_json::to_value(Configuration::crd()).unwrap()
    }

    #[test]
    fn ours_lacks_nothing() {
        for ours in all().map(|crd| serde_json::to_value(crd).unwrap()) {
            assert_eq!(missing(&ours, &ours), Vec::<String>::new());
        }
    }

    #[test]
    fn akris_lacks_our_fields() {
        let object = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let akris = crd(json!({
            "name": "v0", "served": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "discoveryHandler": {"type": "object", "properties": {
                    "name": {}, "discoveryDetails": {}, "discoveryProperties": {"items": {"properties": {"name": {}, "value": {}}}},
                }},
                "capacity": {}, "brokerSpec": object,
                "instanceServiceSpec": object, "configurationServiceSpec": object, "brokerProperties": {},
            }}}}},
        }));
        assert_eq!(
            missing(&configuration(), &akris),
            [
                "subresource status",
                "spec.discoveryHandler.discoveryProperties[].valueFrom",
                "spec.gracePeriodSeconds",
                "spec.maxInstances",
                "spec.resourceName",
                "spec.slotReleaseSeconds",
                "status",
            ]
        );
    }

    #[test]
    fn a_version_that_is_not_served_is_missing() {
        let other = crd(json!({"name": "v0", "served": false}));
        assert_eq!(missing(&configuration(), &other), ["version v0"]);
    }

    #[test]
    fn a_newer_definition_lacks_nothing() {
        let mut newer = configuration();
        newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
            ["later"] = json!({"type": "string"});
        assert_eq!(missing(&configuration(), &newer), Vec::<String>::new());
    }
}
