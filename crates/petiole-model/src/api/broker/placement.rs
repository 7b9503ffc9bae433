//! Writes into a PodSpec where kube-scheduler may put a broker, together with what its user asks for. Pure.
//!
//! | ours | with the user's own |
//! |---|---|
//! | the nodes that see the device, as a required node affinity | both must hold: each term of the user is joined with each node |
//! | no second broker of the Instance on a node, as a required anti-affinity | one more requirement |
//! | brokers of a Configuration are spread over nodes, as a preference | any `topologySpreadConstraints` of the user count instead |
//!
//! `nodeName` is refused: with it, no scheduler looks at the Pod, and a node that does not see the device refuses it.
use super::spec::{SpecError, at, error, object, or_empty};
use crate::model::typed_names::NodeName;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The most nodes that a broker names. Each is a term of its affinity, because a requirement on a node's name has one value.
/// Beyond it: each broker of an Instance names others.
pub const NODES_MAX: usize = 64;
/// The most terms of the node affinity in a broker spec, because each is joined with each node. Beyond it: no broker is made
/// (`BrokerSpecInvalid`).
const TERMS_MAX: usize = 16;

const HOST_NAME: &str = "kubernetes.io/hostname";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Returns the nodes that a Pod's affinity names.
pub fn named_nodes(affinity: &Value) -> BTreeSet<NodeName> {
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let terms = items(&affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]);
    let fields = terms.iter().flat_map(|term| items(&term["matchFields"]));
    let named = fields.filter(|field| field["key"] == "metadata.name" && field["operator"] == "In");
    let values = named.flat_map(|field| items(&field["values"]));
    values
        .filter_map(|name| Some(name.as_str()?.into()))
        .collect()
}

/// Refuses a spec that says itself on which node its Pod is.
pub(super) fn check_node_name(spec: &mut Value, path: &str) -> Result<(), SpecError> {
    let node = object(spec, path)?.get("nodeName");
    match node.and_then(Value::as_str) {
        None | Some("") => Ok(()),
        Some(_) => Err(SpecError {
            path: format!("{path}.nodeName"),
            found: "the name of a node",
            expected: "absent, so that the scheduler puts brokers on nodes that see the device; \
                       nodeSelector and affinity limit these",
        }),
    }
}

/// Limits a Pod to these nodes, where there is no other Pod with these labels.
pub(super) fn limit(
    spec: &mut Value,
    path: &str,
    nodes: &[&NodeName],
    labels: &Map<String, Value>,
) -> Result<(), SpecError> {
    let affinity = or_empty(at(object(spec, path)?, "affinity"));
    let path = format!("{path}.affinity");
    limit_to(nodes, affinity, &path)?;
    let others = or_empty(at(object(affinity, &path)?, "podAntiAffinity"));
    let path = format!("{path}.podAntiAffinity");
    let required = list(object(others, &path)?, REQUIRED, &path)?;
    required.push(json!({
        "labelSelector": { "matchLabels": labels },
        "topologyKey": HOST_NAME,
    }));
    Ok(())
}

/// Prefers nodes with few Pods that have these labels, unless the user says how Pods are spread.
pub(super) fn spread(
    spec: &mut Value,
    path: &str,
    labels: &Map<String, Value>,
) -> Result<(), SpecError> {
    let constraints = list(object(spec, path)?, "topologySpreadConstraints", path)?;
    if constraints.is_empty() {
        constraints.push(json!({
            "maxSkew": 1,
            "topologyKey": HOST_NAME,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": { "matchLabels": labels },
        }));
    }
    Ok(())
}

fn limit_to(nodes: &[&NodeName], affinity: &mut Value, path: &str) -> Result<(), SpecError> {
    let of_nodes = or_empty(at(object(affinity, path)?, "nodeAffinity"));
    let path = format!("{path}.nodeAffinity");
    let required = or_empty(at(object(of_nodes, &path)?, REQUIRED));
    let path = format!("{path}.{REQUIRED}");
    let terms = list(object(required, &path)?, "nodeSelectorTerms", &path)?;
    let path = format!("{path}.nodeSelectorTerms");
    let wrong = |found, expected| SpecError {
        path: path.clone(),
        found,
        expected,
    };
    if terms.len() > TERMS_MAX {
        return Err(wrong("a longer list", "a list of 16 terms at most"));
    }
    let is_any = terms.is_empty();
    if is_any {
        terms.push(json!({}));
    }
    let asked = std::mem::take(terms);
    for (n, mut term) in asked.into_iter().enumerate() {
        let path = format!("{path}[{n}]");
        let term = object(&mut term, &path)?;
        // A term without requirements matches no node: one more requirement would let it match.
        let is_empty = list(term, "matchFields", &path)?.is_empty()
            && list(term, "matchExpressions", &path)?.is_empty();
        if is_empty && !is_any {
            continue;
        }
        term.retain(|_, requirements| *requirements != json!([]));
        terms.extend(nodes.iter().map(|node| {
            let mut term = term.clone();
            let this = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
            let fields = term.entry("matchFields").or_insert(json!([]));
            fields
                .as_array_mut()
                .into_iter()
                .for_each(|fields| fields.push(this.clone()));
            Value::Object(term)
        }));
    }
    if terms.is_empty() {
        return Err(wrong(
            "a list of empty terms",
            "a list with a term that matches a node",
        ));
    }
    Ok(())
}

/// A list in an object, which is empty where there is none.
fn list<'a>(
    object: &'a mut Map<String, Value>,
    key: &str,
    path: &str,
) -> Result<&'a mut Vec<Value>, SpecError> {
    let value = at(object, key);
    if value.is_null() {
        *value = json!([]);
    }
    let wrong = error(value, &format!("{path}.{key}"), "a list");
    value.as_array_mut().ok_or(wrong)
}
