//! What a Configuration may not do to others: variables that it may not give to containers, and references to objects of
//! other namespaces. Pure.
use super::plan::World;
use crate::{
    api::configuration::{Configuration, ConfigurationSpec, Problem},
    model::variables::WHY,
};
use std::sync::Arc;

/// The Configuration without the broker properties that no container may be given.
pub(super) fn limited(world: &World<'_>, configuration: &Arc<Configuration>) -> Arc<Configuration> {
    let mut limited = configuration.clone();
    if !(world.variables)
        .refused(&configuration.spec.broker_properties)
        .is_empty()
    {
        let properties = &mut Arc::make_mut(&mut limited).spec.broker_properties;
        properties.retain(|name, _| !world.variables.refuses(name));
    }
    limited
}

/// What of an accepted Configuration has no effect.
pub(super) fn without_effect(world: &World<'_>, spec: &ConfigurationSpec) -> Option<Problem> {
    let refused = world.variables.refused(&spec.broker_properties);
    if !refused.is_empty() {
        let message = format!("brokerProperties: {refused:?} are left out: {WHY}");
        return Some(Problem::new("VariableRefused", message));
    }
    let properties = spec.discovery_handler.discovery_properties.as_ref();
    let first = properties.and_then(|properties| properties.first())?;
    let message = format!(
        "discoveryHandler.discoveryProperties: {:?} has no effect, because discoveryProperties are not supported yet; remove them",
        first.name
    );
    Some(Problem::new("NotSupported", message))
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
                return Err(Problem::new("BadSpec", message));
            }
        }
    }
    Ok(())
}
