//! Holds the devices of the world: their ids, the nodes that see them, and their connections.
//!
//! A device of `cam` is seen by every node that can reach it. A device of `usb` is plugged into a node, and one with
//! the same id at another node is another device.
use crate::model::device::{Device, Scope};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};
use tokio::sync::watch;

/// The names of the Configurations, with their scopes.
pub(super) const CONFIGURATIONS: [(&str, Scope); 2] =
    [("cam", Scope::Shared), ("usb", Scope::Node)];

#[derive(Debug, Clone)]
pub(super) struct Thing {
    pub(super) configuration: &'static str,
    pub(super) id: String,
    pub(super) address: u64,
    pub(super) seen_by: BTreeSet<usize>,
    /// The time of its last change.
    pub(super) changed: u64,
}

impl Thing {
    /// A local device is a different one on each node.
    pub(super) fn scope(&self) -> Scope {
        let mut all = CONFIGURATIONS.into_iter();
        let its = all.find(|(name, _)| *name == self.configuration);
        its.expect("it is of one of them").1
    }
}

#[derive(Default)]
pub(super) struct Devices {
    pub(super) all: RefCell<Vec<Thing>>,
    /// The number of changes.
    pub(super) changed: watch::Sender<u64>,
}

impl Devices {
    pub(super) fn add(&self, configuration: &'static str, id: String, seen_by: BTreeSet<usize>) {
        let thing = Thing {
            configuration,
            id,
            address: 1,
            seen_by,
            changed: 0,
        };
        self.all.borrow_mut().push(thing);
        self.changed.send_modify(|n| *n += 1);
    }

    pub(super) fn change(&self, n: usize, change: impl FnOnce(&mut Thing)) {
        change(&mut self.all.borrow_mut()[n]);
        self.changed.send_modify(|n| *n += 1);
    }

    /// Returns the devices that a node sees, by their Configuration.
    pub(super) fn seen_by(&self, node: usize) -> BTreeMap<&'static str, Vec<Device>> {
        let mut seen: BTreeMap<_, Vec<_>> = CONFIGURATIONS.map(|(name, _)| (name, vec![])).into();
        for thing in self.all.borrow().iter() {
            if thing.seen_by.contains(&node) {
                let mut device = Device::new(&thing.id);
                let address = ("ADDRESS".to_owned(), thing.address.to_string());
                device.properties.extend([address]);
                device.connection.insert("ADDRESS".to_owned());
                seen.entry(thing.configuration).or_default().push(device);
            }
        }
        seen
    }
}
