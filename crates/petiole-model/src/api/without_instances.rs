//! Checks a Configuration without Instances (`instances: false`). Pure.
use super::configuration::{Allocation, ConfigurationSpec, WhenGone};

/// Returns an error if the spec has no Instances and needs them.
pub fn check(spec: &ConfigurationSpec) -> Result<(), String> {
    let needs = [
        ("brokerSpec", spec.broker_spec.is_some()),
        ("instanceServiceSpec", spec.instance_service_spec.is_some()),
        (
            "configurationServiceSpec",
            spec.configuration_service_spec.is_some(),
        ),
        ("maxNodes", spec.max_nodes.is_some()),
        ("deviceList", spec.device_list),
        ("deviceService", spec.device_service),
        ("instanceName", spec.instance_name.is_some()),
        ("whenGone: Evict", spec.when_gone == WhenGone::Evict),
        ("allocation: DRA", spec.allocation == Allocation::Dra),
    ];
    match needs.iter().find(|(_, is_set)| *is_set && !spec.instances) {
        Some((field, _)) => Err(format!(
            "instances is false, and {field} needs Instances: remove {field}, or set instances to true"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn what_needs_instances_is_refused_without_them_and_named() {
        let check = |instances: bool, mut fields: Value| {
            fields["discoveryHandler"] = json!({"name": "paths"});
            fields["instances"] = json!(instances);
            let spec: ConfigurationSpec = serde_json::from_value(fields).unwrap();
            super::check(&spec)
        };
        for (field, value) in [
            ("brokerSpec", json!({"brokerPodSpec": {}})),
            ("instanceServiceSpec", json!({})),
            ("configurationServiceSpec", json!({})),
            ("maxNodes", json!(1)),
            ("deviceList", json!(true)),
            ("deviceService", json!(true)),
            ("instanceName", json!("kvm")),
            ("whenGone", json!("Evict")),
            ("allocation", json!("DRA")),
        ] {
            let refused = check(false, json!({field: value})).unwrap_err();
            let expected = format!("instances is false, and {field}");
            assert!(refused.starts_with(&expected), "{refused}");
            assert_eq!(check(true, json!({field: value})), Ok(()));
        }
        assert_eq!(
            check(false, json!({"whenGone": "Keep", "capacity": 10_000})),
            Ok(())
        );
    }
}
