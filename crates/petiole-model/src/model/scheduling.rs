//! Defines which nodes a PodSpec allows: taints, `nodeSelector` and the required node affinity, by the rules of the
//! scheduler. The spec is JSON, as users write it. What is not understood here counts as allowed: the scheduler decides.
use serde_json::Value;
use std::collections::BTreeMap;

type Labels = BTreeMap<String, String>;

/// The path of the list of terms of which one must match.
const TERMS: &str =
    "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

#[derive(Debug, Clone, Copy)]
pub struct Taint<'a> {
    pub key: &'a str,
    pub value: &'a str,
    pub effect: &'a str,
}

/// Returns whether a toleration of the spec matches the taint.
pub fn is_tolerated(spec: &Value, taint: Taint<'_>) -> bool {
    let mut tolerations = items(spec, "tolerations");
    tolerations.any(|toleration| tolerates(toleration, taint))
}

/// The rule of Kubernetes: an empty effect is every effect, and an empty key with `Exists` is every taint.
fn tolerates(toleration: &Value, taint: Taint<'_>) -> bool {
    let text = |field| text(toleration, field);
    let (key, effect) = (text("key"), text("effect"));
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    match text("operator") {
        "" | "Equal" => key == taint.key && text("value") == taint.value,
        "Exists" => key.is_empty() || key == taint.key,
        // Comparisons of numbers are for the scheduler.
        _ => key == taint.key,
    }
}

/// Returns the first label of the spec's `nodeSelector` that a node with these labels does not have.
pub fn missing_label<'a>(spec: &'a Value, labels: &Labels) -> Option<(&'a str, &'a str)> {
    let selector = spec.get("nodeSelector").and_then(Value::as_object)?;
    let mut wanted = selector.iter();
    let (key, value) = wanted.find(|(key, value)| {
        let label = labels.get(*key).map(String::as_str);
        label.is_none() || label != value.as_str()
    })?;
    Some((key, value.as_str().unwrap_or_default()))
}

/// Returns whether the spec requires no node affinity, or a node of this name with these labels has it.
pub fn has_affinity(spec: &Value, name: &str, labels: &Labels) -> bool {
    let terms = spec.pointer(TERMS).and_then(Value::as_array);
    let is_met = |term: &Value| {
        let fields = |key: &str| (key == "metadata.name").then_some(name);
        let mut fields = items(term, "matchFields")
            .map(|one| is_met(one, fields(text(one, "key"))))
            .peekable();
        let mut labels = items(term, "matchExpressions")
            .map(|one| is_met(one, labels.get(text(one, "key")).map(String::as_str)))
            .peekable();
        // A term without a requirement matches no node.
        let is_empty = fields.peek().is_none() && labels.peek().is_none();
        !is_empty && fields.all(|is_met| is_met) && labels.all(|is_met| is_met)
    };
    terms.is_none_or(|terms| terms.is_empty() || terms.iter().any(is_met))
}

/// Returns whether a value fulfils a requirement.
fn is_met(requirement: &Value, value: Option<&str>) -> bool {
    let mut wanted = items(requirement, "values").filter_map(Value::as_str);
    let number = |text: &str| text.parse::<i64>().ok();
    match text(requirement, "operator") {
        "In" => value.is_some_and(|value| wanted.any(|wanted| wanted == value)),
        "NotIn" => value.is_none_or(|value| wanted.all(|wanted| wanted != value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        operator @ ("Gt" | "Lt") => {
            let both = value.and_then(number).zip(wanted.next().and_then(number));
            both.is_some_and(|(value, bound)| match operator {
                "Gt" => value > bound,
                _ => value < bound,
            })
        }
        _ => true,
    }
}

fn items<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    let items = object.get(field).and_then(Value::as_array);
    items.into_iter().flatten()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    let text = object.get(field).and_then(Value::as_str);
    text.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_toleration_matches_key_value_and_effect() {
        let taint = Taint {
            key: "role",
            value: "plane",
            effect: "NoSchedule",
        };
        for (tolerations, is) in [
            (json!(null), false),
            (json!([]), false),
            (json!([{}]), false),
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
            (
                json!([{"key": "role", "operator": "Gt", "value": "3"}]),
                true,
            ),
        ] {
            let spec = json!({ "tolerations": tolerations });
            assert_eq!(is_tolerated(&spec, taint), is, "{spec}");
        }
    }

    fn labels() -> Labels {
        let labels = [("zone", "a"), ("cpus", "8"), ("empty", "")];
        labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    #[test]
    fn every_label_of_the_node_selector_must_be_there() {
        for (selector, missing) in [
            (json!({}), None),
            (json!({"zone": "a", "empty": ""}), None),
            (json!({"zone": "b"}), Some(("zone", "b"))),
            (json!({"zone": "a", "other": ""}), Some(("other", ""))),
        ] {
            let spec = json!({ "nodeSelector": selector });
            assert_eq!(missing_label(&spec, &labels()), missing, "{spec}");
        }
    }

    fn affinity(terms: &Value) -> Value {
        let required = json!({ "nodeSelectorTerms": terms });
        json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": required,
        }}})
    }

    #[test]
    fn each_operator_of_a_requirement_is_the_schedulers() {
        for (key, operator, values, is) in [
            ("zone", "In", json!(["b", "a"]), true),
            ("zone", "In", json!(["b"]), false),
            ("other", "In", json!(["a"]), false),
            ("zone", "NotIn", json!(["b"]), true),
            ("zone", "NotIn", json!(["a"]), false),
            ("other", "NotIn", json!(["a"]), true),
            ("empty", "Exists", json!(null), true),
            ("other", "Exists", json!(null), false),
            ("zone", "DoesNotExist", json!(null), false),
            ("other", "DoesNotExist", json!([]), true),
            ("cpus", "Gt", json!(["7"]), true),
            ("cpus", "Gt", json!(["8"]), false),
            ("cpus", "Lt", json!(["9"]), true),
            ("cpus", "Lt", json!(["8"]), false),
            ("zone", "Gt", json!(["7"]), false),
            ("zone", "NewerThanThis", json!(["7"]), true),
        ] {
            let one = json!({"key": key, "operator": operator, "values": values});
            let spec = affinity(&json!([{ "matchExpressions": [one] }]));
            assert_eq!(has_affinity(&spec, "node-a", &labels()), is, "{one}");
        }
    }

    #[test]
    fn one_term_is_enough_and_all_of_its_requirements_must_be_met() {
        let yes = json!({"key": "zone", "operator": "Exists"});
        let no = json!({"key": "zone", "operator": "DoesNotExist"});
        let name = |name: &str| json!({"key": "metadata.name", "operator": "In", "values": [name]});
        for (terms, is) in [
            (json!([]), true),
            (json!([{}]), false),
            (json!([{"matchExpressions": []}]), false),
            (json!([{}, {"matchExpressions": [yes]}]), true),
            (json!([{"matchExpressions": [yes, no]}]), false),
            (json!([{"matchFields": [name("node-a")]}]), true),
            (json!([{"matchFields": [name("node-b")]}]), false),
            (
                json!([{"matchFields": [name("node-a")], "matchExpressions": [no]}]),
                false,
            ),
        ] {
            let spec = affinity(&terms);
            assert_eq!(has_affinity(&spec, "node-a", &labels()), is, "{terms}");
        }
        assert!(has_affinity(
            &json!({"affinity": null}),
            "node-a",
            &labels()
        ));
    }
}
