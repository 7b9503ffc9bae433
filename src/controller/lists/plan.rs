//! Decides which ConfigMaps with lists of devices are written and deleted. Pure.
use super::format::{Devices, Text};
use crate::{
    api::configuration::Problem,
    controller::{queue::Waits, world::World},
    model::{
        names::{ObjectKey, digest_32},
        typed_names::ConfigurationKey,
    },
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// The most bytes of the devices in a ConfigMap, of which the API server takes 1 MiB. Beyond it: the largest devices are left out,
/// and the Configuration says so (`DeviceListTooLarge`).
const CONFIG_MAP_BYTES_MAX: usize = 900 * 1024;
/// The least time between two looks at a list, whose text may be as long: a ConfigMap is behind by this at most.
pub(super) const LOOKED_EVERY: Duration = Duration::from_secs(2);
/// A ConfigMap is written again after this time, though nothing has changed: the controller may not read it, and so does not see
/// what others do to it.
const MENDED_AFTER: Duration = Duration::from_mins(5);

/// The ConfigMaps of Configurations that ask for one, as far as they are known.
pub(crate) type Kept = BTreeMap<ConfigurationKey, KeptList>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptList {
    /// The uid of the Configuration.
    pub(crate) uid: String,
    /// The digest of the list that was written last; empty if the last write was refused.
    pub(crate) digest: String,
    /// When that was written, or refused for the first time.
    pub(crate) at: Instant,
    pub(crate) looked: Instant,
    pub(crate) problem: Option<Problem>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    Write(Owner, Text),
    /// Deletes the ConfigMap of a Configuration that asks for none any more.
    Delete(Owner),
}

/// The Configuration that a ConfigMap is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) key: ConfigurationKey,
    pub(crate) uid: String,
}

impl Action {
    pub(crate) fn owner(&self) -> &Owner {
        match self {
            Self::Write(owner, _) | Self::Delete(owner) => owner,
        }
    }
}

impl Owner {
    /// Returns the key of the ConfigMap.
    pub(crate) fn config_map(&self) -> ObjectKey {
        ObjectKey::new(&self.key.namespace, format!("{}-devices", self.key.name))
    }
}

/// Returns the writes of a part, and the time after which one is to be repeated. What belongs to deleted Configurations is garbage.
pub(crate) fn plan(world: &World, kept: &mut Kept, now: Instant) -> (Vec<Action>, Waits) {
    let (mut actions, mut waits) = (vec![], Waits::default());
    for (key, configuration) in &world.configurations {
        if configuration.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let owner = Owner {
            key: key.clone(),
            uid: configuration.metadata.uid.clone().unwrap_or_default(),
        };
        let kept = kept.get_mut(key).filter(|kept| kept.uid == owner.uid);
        if !configuration.spec.device_list {
            actions.extend(kept.map(|_| Action::Delete(owner)));
            continue;
        }
        let looked = kept.as_ref().map(|kept| now - kept.looked);
        if let Some(looked) = looked.filter(|looked| *looked < LOOKED_EVERY) {
            waits.add(LOOKED_EVERY - looked);
            continue;
        }
        let Some(devices) = Devices::new(world, key) else {
            continue;
        };
        let text = devices.json(CONFIG_MAP_BYTES_MAX);
        let left = kept.and_then(|kept| {
            kept.looked = now;
            let is_same = kept.digest == digest_32(&text.text);
            is_same.then(|| MENDED_AFTER.saturating_sub(now - kept.at))
        });
        match left.filter(|left| !left.is_zero()) {
            Some(left) => waits.add(left),
            None => actions.push(Action::Write(owner, text)),
        }
    }
    (actions, waits)
}

#[cfg(test)]
mod tests;
