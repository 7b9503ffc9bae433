//! Says what keeps a new broker from a node: taints without a toleration, cordon, labels, node affinity. Pure.
//!
//! Only what is certain counts. Everything else is for the scheduler, and a broker that it refuses is moved. Admission adds
//! tolerations to Pods with a RuntimeClass, and for taints that are named as a resource (ExtendedResourceToleration).
use crate::{
    api::names::{self, UNSCHEDULABLE},
    cluster::parts::TaintPart,
    controller::world::NodeState,
    model::scheduling::{Taint, has_affinity, is_tolerated, missing_label},
};
use serde_json::Value;

/// Returns why a Pod of this spec cannot be scheduled on a node, in words that follow the name of the node.
pub(super) fn obstacle(name: &str, node: &NodeState, spec: &Value) -> Option<String> {
    let mut taints = node.taints.iter();
    let is_open = |taint: &TaintPart| {
        let TaintPart { key, value, effect } = taint;
        is_tolerated(spec, Taint { key, value, effect }) || may_be_tolerated(taint, spec)
    };
    match taints.find(|taint| !is_open(taint)) {
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
    if let Some((key, value)) = missing_label(spec, &node.labels) {
        return Some(format!(
            "does not have the label {key}={value} of the broker's nodeSelector"
        ));
    }
    let is_wanted = has_affinity(spec, name, &node.labels);
    (!is_wanted).then(|| "does not match the broker's nodeAffinity".to_owned())
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
    fn a_taint_keeps_a_broker_away_unless_it_is_tolerated() {
        let node = tainted("role", "plane", "NoSchedule");
        let same = json!({"tolerations": [{"key": "role", "operator": "Exists"}]});
        assert_eq!(obstacle("a", &node, &same), None);
        let words = "has the taint role=plane:NoSchedule, which the broker does not tolerate";
        assert_eq!(obstacle("a", &node, &json!({})).as_deref(), Some(words));
    }

    #[test]
    fn a_taint_that_admission_may_tolerate_is_for_the_scheduler() {
        let node = tainted("gpu", "", "NoSchedule");
        assert!(obstacle("a", &node, &json!({})).is_some());
        assert_eq!(
            obstacle("a", &node, &json!({"runtimeClassName": "gpu"})),
            None
        );
        let node = tainted("akri.sh/cam-1", "", "NoSchedule");
        assert_eq!(obstacle("a", &node, &json!({})), None);
        let cordoned = tainted(UNSCHEDULABLE, "", "NoSchedule");
        assert!(obstacle("a", &cordoned, &json!({"runtimeClassName": "gpu"})).is_some());
    }

    #[test]
    fn a_cordoned_node_says_so_and_a_daemon_may_tolerate_it() {
        let node = tainted(UNSCHEDULABLE, "", "NoSchedule");
        assert_eq!(
            obstacle("a", &node, &json!({})).as_deref(),
            Some("is cordoned")
        );
        let daemon = json!({"tolerations": [{"key": UNSCHEDULABLE, "operator": "Exists"}]});
        assert_eq!(obstacle("a", &node, &daemon), None);
    }

    #[test]
    fn a_node_without_the_labels_of_the_selector_is_no_place() {
        let spec = json!({"nodeSelector": {"zone": "a"}});
        let mut node = NodeState::default();
        assert!(obstacle("a", &node, &spec).unwrap().contains("zone=a"));
        node.labels.insert("zone".to_owned(), "a".to_owned());
        assert_eq!(obstacle("a", &node, &spec), None);
    }

    #[test]
    fn a_node_that_the_required_affinity_leaves_out_is_no_place() {
        let name = json!({"key": "metadata.name", "operator": "NotIn", "values": ["a"]});
        let spec = json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [name]},
            ]},
        }}});
        let node = NodeState::default();
        let words = "does not match the broker's nodeAffinity";
        assert_eq!(obstacle("a", &node, &spec).as_deref(), Some(words));
        assert_eq!(obstacle("b", &node, &spec), None);
    }
}
