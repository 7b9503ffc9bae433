//! The CustomResourceDefinitions: ours, and what one on a cluster lacks. Pure.
use serde_json::Value;

/// Mends definitions that lack something: Helm never upgrades what is in a chart's `crds/`.
pub const HOW_TO_MEND: &str =
    "helm show crds charts/petiole | kubectl apply --server-side --force-conflicts -f -";

/// Returns how to mend one of them. What only agents and the controller use is a template of the chart: Helm upgrades
/// it.
pub fn how_to_mend(name: &str) -> &'static str {
    if name == NODE_DEVICES {
        "helm upgrade"
    } else {
        HOW_TO_MEND
    }
}

const NODE_DEVICES: &str = "nodedevices.akri.sh";

/// The definitions, as name and YAML. A test writes the files from the types: the program needs no code that makes a
/// schema.
pub const ALL: [(&str, &str); 3] = [
    (
        "configurations.akri.sh",
        include_str!("../../../../crds/configurations.akri.sh.yaml"),
    ),
    (
        "instances.akri.sh",
        include_str!("../../../../crds/instances.akri.sh.yaml"),
    ),
    (
        NODE_DEVICES,
        include_str!("../../../../crds/nodedevices.akri.sh.yaml"),
    ),
];

/// Returns what `ours` has and the one on a cluster lacks: fields such as `spec.gracePeriodSeconds`, and `subresource
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
        // It is in the schema only for the path of a rule. Every API server keeps what it names.
        if path.is_empty() && name == "metadata" {
            continue;
        }
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
#[path = "crds_tests.rs"]
mod tests;
