//! Says what keeps a new broker from a node: taints without a toleration, cordon, labels. Pure.
//!
//! Only what is certain counts. Everything else is for the scheduler, and a broker that it refuses is moved. Admission adds
//! tolerations to Pods with a RuntimeClass, and for taints that are named as a resource (ExtendedResourceToleration).
use crate::{
    api::names,
    cluster::parts::TaintPart,
    controller::{pod_state::UNSCHEDULABLE, world::NodeState},
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Returns why a Pod of this spec cannot be scheduled on a node, in words that follow the name of the node.
pub(super) fn obstacle(node: &NodeState, spec: &Value) -> Option<String> {
    let mut taints = node.taints.iter();
    let taint = taints.find(|taint| !is_tolerated(taint, spec) && !may_be_tolerated(taint, spec));
    match taint {
        Some(taint) if taint.key == UNSCHEDULABLE => return Some("is cordoned".to_owned()),
        Some(taint) => {
            let value = match taint.value.as_str() {
                "" => String::new(),
                value => format!("={value}"),
            };
            return Some(format!(
                "has the taint {}{value}:{}, which the broker does not tolerate",
                taint.key, taint.effect
            ));
        }
        None => {}
    }
    let selector = spec.get("nodeSelector").and_then(Value::as_object)?;
    let mut wanted = selector.iter();
    let (key, value) = wanted.find(|(key, value)| !has_label(&node.labels, key, value))?;
    let value = value.as_str().unwrap_or_default();
    Some(format!(
        "does not have the label {key}={value} of the broker's nodeSelector"
    ))
}

fn has_label(labels: &BTreeMap<String, String>, key: &str, value: &Value) -> bool {
    let label = labels.get(key).map(String::as_str);
    label.is_some() && label == value.as_str()
}

fn is_tolerated(taint: &TaintPart, spec: &Value) -> bool {
    let tolerations = spec.get("tolerations").and_then(Value::as_array);
    let mut tolerations = tolerations.into_iter().flatten();
    tolerations.any(|toleration| tolerates(toleration, taint))
}

/// Returns whether admission may add a toleration for the taint.
fn may_be_tolerated(taint: &TaintPart, spec: &Value) -> bool {
    let is_cordon = taint.key == UNSCHEDULABLE;
    let has_class = spec.get("runtimeClassName").is_some_and(Value::is_string);
    let is_resource = taint
        .key
        .split_once('/')
        .is_some_and(|(group, _)| group == names::GROUP);
    !is_cordon && (has_class || is_resource)
}

/// The rule of Kubernetes: an empty effect is every effect, and an empty key with `Exists` is every taint.
fn tolerates(toleration: &Value, taint: &TaintPart) -> bool {
    let text = |field: &str| {
        let value = toleration.get(field).and_then(Value::as_str);
        value.unwrap_or_default()
    };
    let (key, effect, value) = (text("key"), text("effect"), text("value"));
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    match text("operator") {
        "" | "Equal" => key == taint.key && value == taint.value,
        "Exists" => key.is_empty() || key == taint.key,
        // Comparisons of numbers are for the scheduler.
        _ => key == taint.key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tainted(key: &str, value: &str, effect: &str) -> NodeState {
        NodeState {
            taints: vec![TaintPart {
                key: key.to_owned(),
                value: value.to_owned(),
                effect: effect.to_owned(),
            }],
            ..NodeState::default()
        }
    }

    #[test]
    fn a_taint_keeps_a_broker_away_unless_a_toleration_matches_key_value_and_effect() {
        let node = tainted("role", "plane", "NoSchedule");
        for (tolerations, is_open) in [
            (json!([]), false),
            (json!([{"key": "other", "operator": "Exists"}]), false),
            (json!([{"key": "role", "operator": "Exists"}]), true),
            (json!([{"operator": "Exists"}]), true),
            (
                json!([{"operator": "Exists", "effect": "NoExecute"}]),
                false,
            ),
            (
                json!([{"key": "role", "value": "plane", "effect": "NoSchedule"}]),
                true,
            ),
            (json!([{"key": "role", "value": "worker"}]), false),
            (json!([{"key": "role"}]), false),
        ] {
            let found = obstacle(&node, &json!({"tolerations": tolerations}));
            assert_eq!(found.is_none(), is_open, "{tolerations}: {found:?}");
        }
        let words = "has the taint role=plane:NoSchedule, which the broker does not tolerate";
        assert_eq!(obstacle(&node, &json!({})).as_deref(), Some(words));
    }

    #[test]
    fn a_taint_that_admission_may_tolerate_is_for_the_scheduler() {
        let node = tainted("gpu", "", "NoSchedule");
        assert!(obstacle(&node, &json!({})).is_some());
        assert_eq!(obstacle(&node, &json!({"runtimeClassName": "gpu"})), None);
        let node = tainted("akri.sh/cam-1", "", "NoSchedule");
        assert_eq!(obstacle(&node, &json!({})), None);
        let cordoned = tainted(UNSCHEDULABLE, "", "NoSchedule");
        assert!(obstacle(&cordoned, &json!({"runtimeClassName": "gpu"})).is_some());
    }

    #[test]
    fn a_cordoned_node_says_so_and_a_daemon_may_tolerate_it() {
        let node = tainted(UNSCHEDULABLE, "", "NoSchedule");
        assert_eq!(obstacle(&node, &json!({})).as_deref(), Some("is cordoned"));
        let daemon = json!({"tolerations": [{"key": UNSCHEDULABLE, "operator": "Exists"}]});
        assert_eq!(obstacle(&node, &daemon), None);
    }

    #[test]
    fn a_node_without_the_labels_of_the_selector_is_no_place() {
        let spec = json!({"nodeSelector": {"zone": "a"}});
        let mut node = NodeState::default();
        assert!(obstacle(&node, &spec).unwrap().contains("zone=a"));
        node.labels.insert("zone".to_owned(), "a".to_owned());
        assert_eq!(obstacle(&node, &spec), None);
    }
}
