use super::*;
use crate::api::{configuration::Configuration, instance::Instance, node_devices::NodeDevices};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt as _;
use serde_json::json;
use std::{env, fs, path::Path};

/// Returns the definitions that the types make.
fn made() -> [CustomResourceDefinition; 3] {
    let mut all = [Configuration::crd(), Instance::crd(), NodeDevices::crd()];
    for version in all.iter_mut().flat_map(|crd| &mut crd.spec.versions) {
        let schema = version.schema.as_mut();
        let root = schema.and_then(|s| s.open_api_v3_schema.as_mut());
        let fields = root.and_then(|r| r.properties.as_mut());
        if let Some(status) = fields.and_then(|f| f.get_mut("status")) {
            without_null(status);
        }
    }
    let named = all[0].spec.versions.iter_mut();
    let named = named.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    for fields in named.filter_map(|root| root.properties.as_mut()) {
        fields.insert("metadata".to_owned(), with_name());
        // Tools that wait for an object compare its generations: until the controller has looked, they differ.
        let status = fields.get_mut("status").expect("it has a status");
        status.default = Some(JSON(json!({"observedGeneration": -1})));
    }
    let ours = all[2].spec.versions.iter_mut();
    let ours = ours.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    for spec in ours.filter_map(|root| root.properties.as_mut()?.get_mut("spec")) {
        without_null(spec);
    }
    all
}

/// The path of a rule must be in the schema. Of `metadata` a schema may have the name, and not even a description.
fn with_name() -> JSONSchemaProps {
    let field = |type_: &str| JSONSchemaProps {
        type_: Some(type_.to_owned()),
        ..JSONSchemaProps::default()
    };
    let name = JSONSchemaProps {
        description: Some("52 characters at most, without dots.".to_owned()),
        ..field("string")
    };
    JSONSchemaProps {
        properties: Some([("name".to_owned(), name)].into()),
        ..field("object")
    }
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

#[test]
fn the_files_are_what_the_types_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (crd, (name, _)) in made().iter().zip(ALL) {
        assert_eq!(crd.metadata.name.as_deref(), Some(name));
        // `helm show crds` puts nothing between the files of a chart.
        let text = format!("---\n{}", serde_saphyr::to_string(crd).unwrap());
        // Helm installs what is in a chart's `crds/`, and never upgrades it, nor adds to it.
        let of_chart = if HOW_TO_MEND == how_to_mend(name) {
            "charts/petiole/crds"
        } else {
            "charts/petiole/definitions"
        };
        for folder in ["crds", of_chart] {
            let path = root.join(folder).join(format!("{name}.yaml"));
            if env::var_os("PETIOLE_UPDATE_GOLDEN").is_some() {
                fs::write(&path, &text).unwrap();
            }
            assert!(
                fs::read_to_string(&path).unwrap() == text,
                "{} is not what the types say: just regenerate",
                path.display()
            );
        }
    }
}

#[test]
fn every_field_is_described() {
    let mut fields = 0;
    for (name, text) in ALL {
        let crd: Value = serde_saphyr::from_str(text).unwrap();
        for version in crd["spec"]["versions"].as_array().unwrap() {
            fields += described(name, &version["schema"]["openAPIV3Schema"]);
        }
    }
    assert!(fields > 40, "{fields} fields were looked at");
}

/// Returns how many fields there are below; each has a description.
fn described(path: &str, schema: &Value) -> usize {
    let mut fields = 0;
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if name == "metadata" {
            continue;
        }
        let description = &field["description"];
        assert!(description.is_string(), "{path} has no description");
        fields += 1 + described(&path, field);
    }
    schema.get("items").map_or(fields, |items| {
        fields + described(&format!("{path}[]"), items)
    })
}

fn crd(version: Value) -> Value {
    json!({"spec": {"versions": [version]}})
}

fn configuration() -> Value {
    serde_json::to_value(&made()[0]).unwrap()
}

#[test]
fn ours_lacks_nothing() {
    for ours in made().map(|crd| serde_json::to_value(crd).unwrap()) {
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
            "spec.allocation",
            "spec.containerDevices",
            "spec.deviceList",
            "spec.deviceService",
            "spec.discoveryHandler.discoveryProperties[].valueFrom",
            "spec.gracePeriodSeconds",
            "spec.instanceName",
            "spec.instances",
            "spec.maxInstances",
            "spec.maxNodes",
            "spec.nodeSelector",
            "spec.resourceName",
            "spec.slotReleaseSeconds",
            "spec.whenGone",
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
