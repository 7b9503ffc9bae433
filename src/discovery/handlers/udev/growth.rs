//! Decides when a group of devices is whole. The kernel makes the devices of one plug one after the other, some of them a second later,
//! and a container that got the first ones would never get the others. Pure.
use crate::model::device::{Device, DeviceId, DeviceSet};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// The time for which a group must not have grown until it is offered so.
const WHOLE_AFTER: Duration = Duration::from_secs(1);

/// The groups as they were at the last look.
#[derive(Debug, Default)]
pub(super) struct Growth {
    groups: BTreeMap<DeviceId, Group>,
    /// True after the first look, whose devices may have been there for long.
    has_begun: bool,
}

#[derive(Debug)]
struct Group {
    newest: Arc<Device>,
    /// The time since when it has had these nodes, and udev nothing to do.
    since: Instant,
    /// The device as it is offered; `None` while it is new.
    offered: Option<Arc<Device>>,
}

/// Returns whether a device has all nodes that it had, and others.
fn grows(before: &Device, now: &Device) -> bool {
    let nodes = |device: &Device| -> BTreeSet<String> {
        let nodes = device.device_nodes.iter();
        nodes.map(|node| node.host_path.clone()).collect()
    };
    let (before, now) = (nodes(before), nodes(now));
    before != now && before.is_subset(&now)
}

impl Growth {
    /// Takes out of `devices` what is new and may not be whole, and leaves what has got more nodes as it was. What has lost nodes
    /// changes at once. While `udev_works`, the next part may be what it works on.
    pub(super) fn hold_back(&mut self, devices: &mut DeviceSet, udev_works: bool, now: Instant) {
        let mut before = std::mem::take(&mut self.groups);
        for (id, newest) in &devices.devices {
            let known = before.remove(id);
            let is_same =
                |known: &&Group| !udev_works && known.newest.device_nodes == newest.device_nodes;
            let since = known
                .as_ref()
                .filter(is_same)
                .map_or(now, |known| known.since);
            let offered = match known {
                Some(known) => known.offered,
                None => (!self.has_begun).then(|| newest.clone()),
            };
            let has_grown = offered
                .as_deref()
                .is_none_or(|offered| grows(offered, newest));
            let is_held = has_grown && now < since + WHOLE_AFTER;
            let group = Group {
                newest: newest.clone(),
                since,
                offered: if is_held {
                    offered
                } else {
                    Some(newest.clone())
                },
            };
            self.groups.insert(id.clone(), group);
        }
        self.has_begun = true;
        let offered = self.groups.iter();
        let offered = offered.filter_map(|(id, group)| Some((id.clone(), group.offered.clone()?)));
        devices.devices = offered.collect();
    }

    /// Returns when the next group may be whole.
    pub(super) fn next(&self) -> Option<Instant> {
        let held = self.groups.values().filter(|group| {
            let offered = group.offered.as_ref();
            offered.is_none_or(|offered| !Arc::ptr_eq(offered, &group.newest))
        });
        held.map(|group| group.since + WHOLE_AFTER).min()
    }
}
