//! Gives each Configuration its part of the bytes that all discoveries of a process keep. Anyone on a LAN can announce devices,
//! and a tenant can list them.
use crate::model::{
    device::{Device, DeviceSet},
    division::Division,
    typed_names::ConfigurationKey,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The most bytes of the devices of all discoveries, each with what it takes beside its texts; a namespace, and in it a
/// Configuration, may have half of what the others leave. Beyond it: devices that come later are left out
/// (`DiscoveryIncomplete`).
pub(super) const DISCOVERED_BYTES_MAX: usize = 24 << 20;
/// The bytes that a device without any text takes: its maps, and its entries in the sets of the discovery and of the agent.
const DEVICE_BYTES: usize = 1024;

/// Bytes that namespaces and their Configurations have parts of.
#[derive(Debug, Clone)]
pub(super) struct Bytes(Arc<Mutex<Division>>);

impl Bytes {
    pub(super) fn new(all: usize) -> Self {
        Self(Arc::new(Mutex::new(Division::new(all))))
    }

    /// The lock is never held over an await.
    pub(super) fn lock(&self) -> MutexGuard<'_, Division> {
        // A panic of another holder leaves valid numbers.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of a Configuration. It is given back at the end.
#[derive(Debug)]
pub(super) struct Part {
    all: Bytes,
    of: ConfigurationKey,
    bytes: usize,
}

impl Part {
    pub(super) fn new(all: &Bytes, of: &ConfigurationKey) -> Self {
        all.lock().join(of);
        Self {
            all: all.clone(),
            of: of.clone(),
            bytes: 0,
        }
    }

    /// Returns the bytes that are taken.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the most bytes that may be taken.
    pub(super) fn most(&self) -> usize {
        let all = self.all.lock();
        // A Configuration whose details have changed may have a discovery that is about to end.
        let beside = all.own(&self.of) - self.bytes;
        all.most(&self.of).saturating_sub(beside)
    }

    pub(super) fn set(&mut self, bytes: usize) {
        let mut all = self.all.lock();
        all.give_back(&self.of, self.bytes);
        all.take(&self.of, bytes);
        self.bytes = bytes;
    }

    /// Removes the devices of `now` beyond the part. Those that were there `before` stay first. Returns how many were removed.
    pub(super) fn admit(&mut self, before: &DeviceSet, now: &mut DeviceSet) -> usize {
        // Another Configuration that joins or takes makes the part smaller, and what is known is not gone by that.
        let most = self.most().max(self.bytes);
        let size = |device: &Arc<Device>| size(device);
        let mut bytes: usize = now.devices.values().map(size).sum();
        let mut removed = 0;
        if bytes > most {
            let count = now.devices.len();
            let (known, new): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut now.devices)
                .into_iter()
                .partition(|(id, _)| before.devices.contains_key(id));
            bytes = 0;
            // One that has grown too large is left out alone.
            let fits = known.into_iter().chain(new).filter(|(_, device)| {
                let is_fit = bytes + size(device) <= most;
                bytes += if is_fit { size(device) } else { 0 };
                is_fit
            });
            now.devices = fits.collect();
            removed = count - now.devices.len();
        }
        self.set(bytes);
        removed
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.set(0);
        self.all.lock().leave(&self.of);
    }
}

/// Returns a sentence about devices that were removed.
pub(super) fn problem(removed: usize) -> String {
    format!(
        "{removed} devices are left out: of the {} MiB for the devices of all Configurations a namespace has half of what the others leave, and each of its Configurations half of what the others of them leave; narrow what is found",
        DISCOVERED_BYTES_MAX >> 20
    )
}

fn size(device: &Device) -> usize {
    let properties = device.properties.iter().map(|(k, v)| k.len() + v.len());
    let nodes = (device.device_nodes.iter()).map(|n| n.container_path.len() + n.host_path.len());
    let links = (device.device_nodes.iter()).flat_map(|n| n.links.iter().map(String::len));
    let mounts = (device.mounts.iter()).map(|m| m.container_path.len() + m.host_path.len());
    let cdi = device.cdi_devices.iter().map(String::len);
    let texts = properties
        .chain(nodes)
        .chain(links)
        .chain(mounts)
        .chain(cdi);
    // Each text has an allocation of its own.
    DEVICE_BYTES + device.id.as_str().len() + texts.map(|bytes| bytes + 64).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> ConfigurationKey {
        ConfigurationKey::new(namespace, name.to_owned())
    }

    fn set(ids: std::ops::Range<usize>) -> DeviceSet {
        DeviceSet::complete(ids.map(|n| Device::new(format!("{n:06}"))))
    }

    #[test]
    fn a_hundred_configurations_of_one_namespace_leave_another_its_half() {
        let all = Bytes::new(DISCOVERED_BYTES_MAX);
        let keys: Vec<_> = (0..100).map(|n| key("a", &format!("c{n}"))).collect();
        let mut parts: Vec<Part> = keys.iter().map(|key| Part::new(&all, key)).collect();
        for part in &mut parts {
            let mut found = set(0..16_000);
            assert!(part.admit(&DeviceSet::default(), &mut found) > 0);
        }
        let taken: usize = parts.iter().map(Part::bytes).sum();
        assert!(taken <= DISCOVERED_BYTES_MAX / 2, "{taken}");
        let mut other = Part::new(&all, &key("b", "one"));
        let mut found = set(0..5000);
        assert_eq!(other.admit(&DeviceSet::default(), &mut found), 0);
        drop((parts, other));
        assert_eq!(Part::new(&all, &keys[0]).most(), DISCOVERED_BYTES_MAX / 2);
    }

    #[test]
    fn the_newest_devices_are_left_out() {
        let all = Bytes::new(20 * (DEVICE_BYTES + 6));
        let mut part = Part::new(&all, &key("a", "c"));
        let before = set(5..10);
        assert_eq!(part.admit(&DeviceSet::default(), &mut before.clone()), 0);
        let mut now = set(0..15);
        assert_eq!(part.admit(&before, &mut now), 5);
        let mut expected = set(5..10).devices;
        expected.extend(set(0..5).devices);
        assert_eq!(now.devices, expected);
    }

    #[test]
    fn known_devices_stay_when_another_configuration_joins() {
        let all = Bytes::new(20 * (DEVICE_BYTES + 6));
        let mut part = Part::new(&all, &key("a", "c"));
        let mut known = set(0..9);
        assert_eq!(part.admit(&DeviceSet::default(), &mut known), 0);
        let _joined = Part::new(&all, &key("a", "d"));
        assert_eq!(part.admit(&known, &mut known.clone()), 0);
        assert_eq!(part.admit(&known, &mut set(0..10)), 1);
    }

    #[test]
    fn a_device_that_grows_beyond_the_part_takes_no_other_along() {
        let all = Bytes::new(20 * (DEVICE_BYTES + 6));
        let mut part = Part::new(&all, &key("a", "c"));
        let before = set(0..5);
        let mut now = before.clone();
        let mut large = Device::new("000000");
        let text = "x".repeat(20 * DEVICE_BYTES);
        large.properties.insert("TEXT".to_owned(), text);
        now.devices.insert(large.id.clone(), Arc::new(large));
        assert_eq!(part.admit(&before, &mut now), 1);
        assert_eq!(now.devices, set(1..5).devices);
    }
}
