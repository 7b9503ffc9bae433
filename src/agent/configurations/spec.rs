//! Checks the spec of a Configuration. Pure.
//!
//! These are the rules of the schema: a folder has no API server to hold them, and an object may be older than a bound.
use crate::{
    api::{
        configuration::{
            Allocation, ConfigurationSpec, DiscoveryHandlerInfo, DiscoveryProperty, Problem,
        },
        names::CONFIGURATION_NAME_LIMIT,
        reason::Reason,
        without_instances,
    },
    discovery::Reads,
    model::{
        budget::text_bytes, container_devices::ContainerRules, device::Scope, limits,
        name_template::NameTemplate,
    },
};
use std::ops::RangeInclusive;

pub(super) fn check_name(name: &str) -> Result<(), Problem> {
    if name.len() > CONFIGURATION_NAME_LIMIT {
        let message = format!(
            "metadata.name has {} characters; {CONFIGURATION_NAME_LIMIT} are the most, because resources are named after it",
            name.len()
        );
        return Err(Problem::new(Reason::NameTooLong, message));
    }
    let is_label = !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-');
    if !is_label {
        let message = format!(
            "metadata.name is {name:?}; it may have lower-case letters, digits and inner hyphens only, no dots"
        );
        return Err(Problem::new(Reason::BadName, message));
    }
    Ok(())
}

/// Holds a spec to its bounds. Messages name the field, its value, the bound and what to do.
pub(super) fn check(spec: &ConfigurationSpec, containers: &ContainerRules) -> Result<(), Problem> {
    let wish = spec.container_devices.as_ref();
    let checked = check_fields(spec).and_then(|()| wish.map_or(Ok(()), |w| w.check(containers)));
    checked.map_err(|message| Problem::new(Reason::BadSpec, message))
}

/// Refuses devices of several nodes without Instances: only in these the nodes tell each other who has a slot.
pub(super) fn check_scope(spec: &ConfigurationSpec, scope: Scope) -> Result<(), Problem> {
    if spec.instances || scope == Scope::Node {
        return Ok(());
    }
    let message = format!(
        "instances is false, and the devices that {} finds here are those of all nodes that see them: set instances to true, or have it find devices of one node",
        spec.discovery_handler.name
    );
    Err(Problem::new(Reason::BadSpec, message))
}

/// Refuses a Configuration whose devices the scheduler is to give out, where this agent does not prepare claims.
pub(super) fn check_allocation(spec: &ConfigurationSpec, has_claims: bool) -> Result<(), Problem> {
    if has_claims || spec.allocation == Allocation::DevicePlugin {
        return Ok(());
    }
    let message = "allocation is DRA, and the agents prepare no ResourceClaims: set dra.enabled of the chart (from Kubernetes 1.36 on; without a cluster there is none), or allocation: DevicePlugin";
    Err(Problem::new(Reason::BadSpec, message))
}

fn check_fields(spec: &ConfigurationSpec) -> Result<(), String> {
    let capacity = 1..=i64::from(limits::CAPACITY_MAX);
    number("capacity", i64::from(spec.capacity), capacity)?;
    let grace = 0..=limits::GRACE_SECONDS_MAX;
    number("gracePeriodSeconds", spec.grace_period_seconds, grace)?;
    let instances = 1..=limits::INSTANCES_MAX;
    number("maxInstances", spec.max_instances, instances)?;
    without_instances::check(spec)?;
    if let Some(template) = &spec.instance_name {
        length("instanceName", template, limits::NAME_MAX)?;
        let parsed = template.parse::<NameTemplate>();
        parsed.map_err(|e| format!("instanceName {e}"))?;
    }
    let broker = spec.broker_spec.as_ref();
    if broker.is_some_and(|b| b.broker_pod_spec.is_some() == b.broker_job_spec.is_some()) {
        return Err("brokerSpec must have one of brokerPodSpec and brokerJobSpec".to_owned());
    }
    let field = "brokerProperties";
    let properties = &spec.broker_properties;
    count(field, properties.len(), limits::BROKER_PROPERTIES_MAX)?;
    for (name, value) in properties {
        length(&format!("a name in {field}"), name, limits::NAME_MAX)?;
        let field = format!("{field}.{name}");
        length(&field, value, limits::PROPERTY_VALUE_MAX)?;
    }
    let bytes = text_bytes(properties);
    if bytes > limits::BROKER_PROPERTIES_BYTES_MAX {
        return Err(format!(
            "{field} has {bytes} bytes of names and values; {} are the most: shorten or remove some",
            limits::BROKER_PROPERTIES_BYTES_MAX
        ));
    }
    check_handler(&spec.discovery_handler)
}

fn check_handler(handler: &DiscoveryHandlerInfo) -> Result<(), String> {
    length("discoveryHandler.name", &handler.name, limits::LABEL_MAX)?;
    let field = "discoveryHandler.discoveryDetails";
    length(field, &handler.discovery_details, limits::DETAILS_MAX)?;
    let field = "discoveryHandler.discoveryProperties";
    let properties = properties(handler);
    count(field, properties.len(), limits::DISCOVERY_PROPERTIES_MAX)?;
    for property in properties {
        let name = &property.name;
        length(&format!("a name in {field}"), name, limits::NAME_MAX)?;
        let value = property.value.as_deref().unwrap_or_default();
        length(
            &format!("{field}.{name}"),
            value,
            limits::PROPERTY_VALUE_MAX,
        )?;
    }
    Ok(())
}

/// Returns a problem if a spec has a field without effect.
pub(super) fn unused(handler: &DiscoveryHandlerInfo, reads: Reads) -> Option<Problem> {
    let is_read = |property: &&DiscoveryProperty| reads.has(&property.name);
    let mut properties = properties(handler).iter();
    let unread = properties.find(|property| !is_read(property))?;
    let known = match reads {
        Reads::Only([]) | Reads::All => "none".to_owned(),
        Reads::Only(names) => format!("only {}", names.join(", ")),
    };
    let message = format!(
        "discoveryHandler.discoveryProperties has {:?}, and the handler {} reads {known}: remove it; what it is to look for is said in discoveryDetails",
        unread.name, handler.name
    );
    Some(Problem::new(Reason::UnusedDiscoveryProperties, message))
}

fn properties(handler: &DiscoveryHandlerInfo) -> &[DiscoveryProperty] {
    handler.discovery_properties.as_deref().unwrap_or_default()
}

fn number(field: &str, value: i64, range: RangeInclusive<i64>) -> Result<(), String> {
    let (least, most) = (range.start(), range.end());
    match value {
        value if value < *least => Err(format!("{field} is {value}; it must be {least} or more")),
        value if value > *most => Err(format!("{field} is {value}; it must be {most} or less")),
        _ => Ok(()),
    }
}

fn count(field: &str, count: usize, most: usize) -> Result<(), String> {
    if count <= most {
        return Ok(());
    }
    Err(format!(
        "{field} has {count} entries; {most} are the most: remove some"
    ))
}

/// Checks the length of a text in characters, as a schema does.
fn length(field: &str, text: &str, most: usize) -> Result<(), String> {
    // A text has no more characters than bytes.
    let characters = match text.len() {
        bytes if bytes <= most => return Ok(()),
        _ => text.chars().count(),
    };
    if characters <= most {
        return Ok(());
    }
    let field = limits::cut(field.to_owned(), limits::NAME_MAX);
    Err(format!(
        "{field} has {characters} characters; {most} are the most: shorten it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::manifest;

    fn spec(text: &str) -> ConfigurationSpec {
        let text = format!(
            "{{apiVersion: akri.sh/v0, kind: Configuration, metadata: {{name: a}}, spec: {text}}}"
        );
        manifest::read(&text).unwrap().remove(0).spec
    }

    fn with(field: &str) -> ConfigurationSpec {
        spec(&format!("{{discoveryHandler: {{name: echo}}, {field}}}"))
    }

    fn entries(count: usize) -> String {
        let entries: Vec<_> = (0..count).map(|n| format!("k{n}: v")).collect();
        format!("{{{}}}", entries.join(", "))
    }

    /// Returns properties with so many bytes of names and values.
    fn sum(bytes: usize) -> String {
        let entries = (0..8).map(|n| (n, if n < 7 { 4095 } else { bytes - 7 * 4096 - 1 }));
        let entries = entries.map(|(n, len)| format!("'{n}': {}", "x".repeat(len)));
        format!("{{{}}}", Vec::from_iter(entries).join(", "))
    }

    #[test]
    fn every_bound_holds_and_its_message_names_the_field_the_value_and_the_bound() {
        let long = |n: usize| "é".repeat(n);
        for (good, bad, message) in [
            (
                with("capacity: 10000"),
                with("capacity: 2147483647"),
                "capacity is 2147483647; it must be 10000 or less",
            ),
            (
                with("maxInstances: 10000"),
                with("maxInstances: 10001"),
                "maxInstances is 10001; it must be 10000 or less",
            ),
            (
                with("gracePeriodSeconds: 604800"),
                with("gracePeriodSeconds: 9223372036854775807"),
                "gracePeriodSeconds is 9223372036854775807; it must be 604800 or less",
            ),
            (
                with(&format!("brokerProperties: {}", entries(64))),
                with(&format!("brokerProperties: {}", entries(65))),
                "brokerProperties has 65 entries; 64 are the most: remove some",
            ),
            (
                with(&format!("brokerProperties: {}", sum(32_768))),
                with(&format!("brokerProperties: {}", sum(32_769))),
                "brokerProperties has 32769 bytes of names and values; 32768 are the most: shorten or remove some",
            ),
            (
                with(&format!("brokerProperties: {{A: {}}}", long(8192))),
                with(&format!("brokerProperties: {{A: {}}}", long(8193))),
                "brokerProperties.A has 8193 characters; 8192 are the most: shorten it",
            ),
            (
                with(&format!("brokerProperties: {{{}: a}}", long(253))),
                with(&format!("brokerProperties: {{{}: a}}", long(254))),
                "a name in brokerProperties has 254 characters; 253 are the most: shorten it",
            ),
            (
                spec(&format!(
                    "{{discoveryHandler: {{name: e, discoveryDetails: {}}}}}",
                    long(65_536)
                )),
                spec(&format!(
                    "{{discoveryHandler: {{name: e, discoveryDetails: {}}}}}",
                    long(65_537)
                )),
                "discoveryHandler.discoveryDetails has 65537 characters; 65536 are the most: shorten it",
            ),
        ] {
            let rules = ContainerRules::default();
            assert_eq!(check(&good, &rules), Ok(()), "{message}");
            assert_eq!(
                check(&bad, &rules),
                Err(Problem::new(Reason::BadSpec, message))
            );
        }
    }

    #[test]
    fn discovery_properties_that_nobody_reads_are_named() {
        let handler =
            "{discoveryHandler: {name: echo, discoveryProperties: [{name: user, value: a}]}}";
        let handler = spec(handler).discovery_handler;
        let problem = unused(&handler, Reads::Only(&[])).unwrap();
        assert_eq!(problem.reason, "UnusedDiscoveryProperties");
        assert!(problem.message.contains("\"user\""), "{}", problem.message);
        let problem = unused(&handler, Reads::Only(&["a", "b"])).unwrap();
        assert!(
            problem.message.contains("reads only a, b"),
            "{}",
            problem.message
        );
        assert_eq!(
            unused(&with("capacity: 1").discovery_handler, Reads::Only(&[])),
            None
        );
        assert_eq!(unused(&handler, Reads::Only(&["user"])), None);
    }
}
