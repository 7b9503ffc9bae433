//! Names what claims can select a device by, and what containers can read of it. Pure.
use super::{configuration::Configuration, instance::Instance};
use crate::model::{dra, instance_name::InstanceKey};
use petiole_base::collect::CollectMap as _;
use std::collections::BTreeMap;

/// The most properties of a device that become attributes. Beyond it: those that come first by name.
const PROPERTIES_MAX: usize = 24;
/// The longest name of a property that becomes an attribute, in bytes, which is Kubernetes' own. Beyond it: it is no attribute, and
/// containers get it all the same.
const ATTRIBUTE_NAME_MAX: usize = 32;
/// The longest value of a property that becomes an attribute, in bytes, which is Kubernetes' own. Beyond it: it is no attribute, and
/// containers get it all the same.
const ATTRIBUTE_TEXT_MAX: usize = 64;

/// Returns the attributes of a device.
pub fn attributes(
    key: &InstanceKey,
    instance: &Instance,
    configuration: &Configuration,
) -> BTreeMap<String, String> {
    let is_attribute = |(name, value): &(&String, &String)| {
        is_identifier(name) && value.len() <= ATTRIBUTE_TEXT_MAX
    };
    let properties = instance.spec.broker_properties.iter().filter(is_attribute);
    let properties = properties.take(PROPERTIES_MAX);
    let own = [
        ("namespace", key.namespace.to_string()),
        (
            "configuration",
            instance.spec.configuration_name.to_string(),
        ),
        ("instance", dra::device_name(&key.name)),
        ("handler", configuration.spec.discovery_handler.name.clone()),
    ];
    let own = own
        .into_iter()
        .filter(|(_, text)| text.len() <= ATTRIBUTE_TEXT_MAX);
    let own = own.map(|(name, text)| (name.to_owned(), text));
    properties
        .map(|(name, value)| (name.clone(), value.clone()))
        .chain(own)
        .collect_map()
}

/// Returns whether this is an identifier of C, which an attribute's name must be.
fn is_identifier(name: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    let mut bytes = name.bytes();
    name.len() <= ATTRIBUTE_NAME_MAX
        && bytes.next().is_some_and(is_letter)
        && bytes.all(|b| is_letter(b) || b.is_ascii_digit())
}
