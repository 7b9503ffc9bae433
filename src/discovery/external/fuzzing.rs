//! The doors through which `fuzz/` reaches the reader of lists and registrations: nothing else uses them.
use super::{
    host_paths::HostPaths,
    listing,
    registrations::{Registrations, Rules},
};
use crate::{model::device::DeviceSet, proto::discovery::DeviceList};
use prost::Message as _;
use std::collections::BTreeSet;

/// The devices of a list as it is on the wire; `/dev` is allowed. `None` where it is no list.
pub fn devices(message: &[u8]) -> Option<DeviceSet> {
    let allowed: HostPaths = ["/dev".parse().ok()?].into_iter().collect();
    Some(listing::devices(
        DeviceList::decode(message).ok()?,
        &allowed.into(),
    ))
}

/// The text that is written after `handlers.json` with this text was read.
pub fn registrations(text: &str) -> String {
    let rules = Rules {
        folder: "/var/lib/akri".to_owned(),
        reserved: BTreeSet::from(["udev".to_owned()]),
    };
    Registrations::parse(text, &rules).0.text()
}
