//! Checks the rights of a Configuration: it may not give certain variables to containers, nor refer to objects of other
//! namespaces. Pure.
use crate::{
    api::{
        configuration::{Configuration, ConfigurationSpec, Problem},
        reason::Reason,
    },
    model::variables::{Variables, WHY},
};
use std::sync::Arc;

/// The Configuration without the broker properties that no container may be given.
pub(super) fn limited(
    variables: &Variables,
    configuration: &Arc<Configuration>,
) -> Arc<Configuration> {
    let properties = &configuration.spec.broker_properties;
    let mut limited = configuration.clone();
    if !variables.refused(properties).is_empty() {
        let properties = &mut Arc::make_mut(&mut limited).spec.broker_properties;
        properties.retain(|name, _| !variables.refuses(name));
    }
    limited
}

/// The broker properties that are left out.
pub(super) fn refused_variables(
    variables: &Variables,
    spec: &ConfigurationSpec,
) -> Option<Problem> {
    let refused = variables.refused(&spec.broker_properties);
    let message = format!("brokerProperties: {refused:?} are left out: {WHY}");
    (!refused.is_empty()).then(|| Problem::new(Reason::VariableRefused, message))
}

/// A discovery property is read with the rights of the agents: it may be of the Configuration's own namespace only.
pub(super) fn check_references(namespace: &str, spec: &ConfigurationSpec) -> Result<(), Problem> {
    let properties = spec.discovery_handler.discovery_properties.iter().flatten();
    for property in properties {
        let Some(source) = &property.value_from else {
            continue;
        };
        for (field, reference) in [
            ("secretKeyRef", &source.secret_key_ref),
            ("configMapKeyRef", &source.config_map_key_ref),
        ] {
            let other = (reference.as_ref().and_then(|r| r.namespace.as_deref()))
                .filter(|&other| other != namespace);
            if let Some(other) = other {
                let message = format!(
                    "discoveryHandler.discoveryProperties: {:?} has {field}.namespace {other:?}; it must be the Configuration's own, {namespace:?}, or absent",
                    property.name
                );
                return Err(Problem::new(Reason::BadSpec, message));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::manifest;

    fn configuration(spec: &str) -> Arc<Configuration> {
        let text = format!(
            "{{apiVersion: akri.sh/v0, kind: Configuration, metadata: {{name: cam}}, spec: {spec}}}"
        );
        Arc::new(manifest::read(&text).unwrap().remove(0))
    }

    #[test]
    fn variables_that_programs_obey_are_left_out_and_named() {
        let some = Variables::allowing(["HTTPS_PROXY".to_owned()]);
        let all = configuration(
            "{discoveryHandler: {name: echo}, brokerProperties: {LD_PRELOAD: /x.so, 'PATH=': /x, HTTPS_PROXY: proxy, MODE: night}}",
        );
        let left = limited(&some, &all).spec.broker_properties.clone();
        assert_eq!(
            left.into_keys().collect::<Vec<_>>(),
            ["HTTPS_PROXY", "MODE"]
        );
        let problem = refused_variables(&some, &all.spec).unwrap();
        assert_eq!(problem.reason, "VariableRefused");
        let start = r#"brokerProperties: ["LD_PRELOAD", "PATH="] are left out"#;
        assert!(problem.message.starts_with(start), "{}", problem.message);
    }

    #[test]
    fn a_configuration_without_such_variables_is_as_it_was() {
        let plain =
            configuration("{discoveryHandler: {name: echo}, brokerProperties: {MODE: night}}");
        let none = Variables::default();
        assert!(Arc::ptr_eq(&limited(&none, &plain), &plain));
        assert_eq!(refused_variables(&none, &plain.spec), None);
    }

    #[test]
    fn a_discovery_property_of_another_namespace_is_refused() {
        for field in ["secretKeyRef", "configMapKeyRef"] {
            let check = |namespace: &str| {
                let value = format!("{{name: s, key: k{namespace}}}");
                let property = format!("{{name: token, valueFrom: {{{field}: {value}}}}}");
                let handler = format!("{{name: echo, discoveryProperties: [{property}]}}");
                let spec = format!("{{discoveryHandler: {handler}}}");
                check_references("cameras", &configuration(&spec).spec)
            };
            assert_eq!(check(""), Ok(()));
            assert_eq!(check(", namespace: cameras"), Ok(()));
            let problem = check(", namespace: kube-system").unwrap_err();
            assert_eq!(problem.reason, "BadSpec");
            for part in ["token", field, "kube-system", "cameras"] {
                assert!(
                    problem.message.contains(part),
                    "{part}: {}",
                    problem.message
                );
            }
        }
    }
}
