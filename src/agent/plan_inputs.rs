//! Small values that several plans read.
use crate::{
    api::{instance::Instance, names},
    discovery::session::Discoveries,
    model::{
        device::{Device, DeviceId},
        names::ObjectKey,
    },
};
use std::time::Duration;

/// The time, handed to plans: they have no clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now<'a> {
    /// Since the agent started.
    pub(super) uptime: Duration,
    /// RFC 3339, UTC.
    pub(super) text: &'a str,
}

/// What this node knows of an Instance's device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight<'a> {
    /// The Instance is of an earlier life, and discovery has not looked everywhere yet.
    Adopted,
    Seen(&'a Device),
    Gone,
}

/// What discovery says of an Instance's device.
pub(super) fn sight<'a>(instance: &Instance, discoveries: &'a Discoveries) -> Sight<'a> {
    let namespace = instance.metadata.namespace.as_deref().unwrap_or("default");
    let configuration = ObjectKey::new(namespace, &instance.spec.configuration_name);
    let Some(sighting) = discoveries.get(&configuration) else {
        return Sight::Adopted;
    };
    let id = (instance.metadata.annotations.as_ref())
        .and_then(|annotations| annotations.get(names::DEVICE_ID))
        .map(DeviceId::new);
    match id.and_then(|id| sighting.set.devices.get(&id)) {
        Some(device) => Sight::Seen(device),
        None if sighting.set.complete => Sight::Gone,
        None => Sight::Adopted,
    }
}
