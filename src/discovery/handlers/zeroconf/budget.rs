//! Bounds the services that one discovery admits, because anyone on a LAN can announce many services, each as large as
//! a packet. Pure.
//!
//! A service that was admitted stays, whatever comes after it. The services of one host have at most half of the bytes
//! that those of the other hosts leave.
use super::{super::problems::share_used_up, service::with_record_of};
use crate::{
    discovery::part::{Bytes, Part},
    model::{device::Device, division::share, typed_names::ConfigurationKey},
};
use petiole_mdns::LeftOut;
use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

/// The most services of a Configuration. Beyond it: services that come later are left out (`DiscoveryIncomplete`).
pub(super) const SERVICES_MAX: usize = 4096;
/// The most bytes of all devices of a Configuration, with their ids and variables. Beyond it: services that come
/// later are left out (`DiscoveryIncomplete`).
const BYTES_MAX: usize = 4 << 20;
/// The most bytes of the devices of all Configurations together; a namespace, and in it a Configuration, may have half of
/// what the others leave. Beyond it: services that come later are left out (`DiscoveryIncomplete`).
const ALL_BYTES_MAX: usize = 16 << 20;
/// The most left-out services that are remembered by name. Beyond it: only their existence is recorded.
const LEFT_OUT_MAX: usize = 4096;

/// A host that has used less than this part of the bytes is not the one that has exceeded its share.
const LARGE: usize = 16;
/// Returns the bytes for the devices of all discoveries of a process. Each Configuration has copies of its own of what it finds.
pub(super) fn all_bytes() -> Bytes {
    Bytes::new(ALL_BYTES_MAX)
}

/// The bytes of the admitted services, and the services that are left out.
pub(super) struct ServiceBudget {
    part: Part,
    by_source: BTreeMap<IpAddr, usize>,
    /// The full names of services that are left out, and why.
    left_out: BTreeMap<String, LeftOut>,
    /// Whether there were more than are remembered, since the last [`Self::look_again`], and since the one before.
    more_are_left_out: [bool; 2],
    /// The reason that the querier has left out services that this discovery may want.
    others_are_left_out: Option<LeftOut>,
}

/// The earlier states of a service.
pub(super) struct EarlierStates<'a> {
    /// The host to which its bytes are counted.
    pub(super) source: IpAddr,
    /// The device of its last announcement; `None` if it is about to be removed.
    pub(super) device: Option<&'a Device>,
    /// The device that is published.
    pub(super) published: Option<&'a Device>,
}

impl ServiceBudget {
    /// Returns the budget of the discovery for a Configuration, which is one of several.
    pub(super) fn within(all: &Bytes, of: &ConfigurationKey) -> Self {
        Self {
            part: Part::new(all, of),
            by_source: BTreeMap::new(),
            left_out: BTreeMap::new(),
            more_are_left_out: [false; 2],
            others_are_left_out: None,
        }
    }

    /// Returns the most bytes that this discovery may have.
    fn most(&self) -> usize {
        self.part.most().min(BYTES_MAX)
    }

    /// Replaces the device of an admitted service. A device that has grown too large keeps its earlier TXT record.
    pub(super) fn replace(
        &mut self,
        known: &EarlierStates<'_>,
        device: Option<Device>,
    ) -> Option<Arc<Device>> {
        self.release(known.source, known.device);
        let device = device.map(|device| device.announced_by(known.source));
        let device = device.map(|device| match self.exceeded(known.source, &device) {
            None => device,
            Some(_) => with_record_of(device, known.device.or(known.published)),
        });
        self.count(known.source, device.as_ref());
        device.map(Arc::new)
    }

    /// Admits a new service of `source` beside `count` others. Returns `None` if the limits are reached.
    pub(super) fn admit(
        &mut self,
        count: usize,
        source: IpAddr,
        device: Device,
    ) -> Option<Arc<Device>> {
        let is_full = (count >= SERVICES_MAX).then_some(LeftOut::Total);
        if let Some(why) = is_full.or_else(|| self.exceeded(source, &device)) {
            self.leave_out(device.id.as_str(), why);
            return None;
        }
        self.count(source, Some(&device));
        Some(Arc::new(device.announced_by(source)))
    }

    /// Returns the limit that the bytes of one more device exceed.
    fn exceeded(&self, source: IpAddr, device: &Device) -> Option<LeftOut> {
        let more = bytes_of(device);
        let mine = self.by_source.get(&source).copied().unwrap_or_default();
        let signed = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        let part = share(
            signed(self.most()) - signed(self.part.bytes()),
            signed(mine),
        );
        // A host that has little is refused because of the others.
        let why = if mine + more > BYTES_MAX / LARGE {
            LeftOut::Share(source)
        } else {
            LeftOut::Total
        };
        (signed(mine + more) > part).then_some(why)
    }

    fn count(&mut self, source: IpAddr, device: Option<&Device>) {
        let bytes = device.map_or(0, bytes_of);
        self.part.set(self.part.bytes() + bytes);
        *self.by_source.entry(source).or_default() += bytes;
    }

    /// Frees the bytes of a device.
    pub(super) fn release(&mut self, source: IpAddr, device: Option<&Device>) {
        let bytes = device.map_or(0, bytes_of);
        self.part.set(self.part.bytes() - bytes);
        if let Some(mine) = self.by_source.get_mut(&source) {
            *mine -= bytes;
            if *mine == 0 {
                self.by_source.remove(&source);
            }
        }
    }

    fn leave_out(&mut self, fullname: &str, why: LeftOut) {
        if self.left_out.len() < LEFT_OUT_MAX || self.left_out.contains_key(fullname) {
            self.left_out.insert(fullname.to_owned(), why);
        } else {
            self.more_are_left_out = [true; 2];
        }
    }

    /// Records that a service, which may have been left out, is gone or is no longer wanted.
    pub(super) fn forget(&mut self, fullname: &str) {
        self.left_out.remove(fullname);
    }

    pub(super) fn others_are_left_out(&mut self, why: Option<LeftOut>) {
        self.others_are_left_out = why;
    }

    /// Begins to look again at what is left out: there may be room now. Returns whether a service is to be looked at, by its full name.
    /// A service that still does not fit is left out again.
    pub(super) fn look_again(&mut self) -> impl Fn(&str) -> bool {
        let more = self.more_are_left_out[1];
        self.more_are_left_out = [false, self.more_are_left_out[0]];
        move |fullname: &str| more || self.left_out.contains_key(fullname)
    }

    pub(super) fn leaves_out(&self) -> bool {
        self.reason().is_some()
    }

    fn reason(&self) -> Option<LeftOut> {
        let more = self.more_are_left_out[1].then_some(LeftOut::Total);
        let here = self.left_out.values().next().copied();
        here.or(more).or(self.others_are_left_out)
    }

    /// Returns a message if services are left out.
    pub(super) fn problem(&self) -> Option<String> {
        Some(match self.reason()? {
            LeftOut::Total => format!(
                "services are left out: {SERVICES_MAX} services with {} MiB of names and TXT records are the most, and of {} MiB a namespace has half of what the others leave, and each of its Configurations half of what the others of them leave; narrow the filters",
                BYTES_MAX >> 20,
                ALL_BYTES_MAX >> 20
            ),
            LeftOut::Share(source) => share_used_up(source),
        })
    }
}

fn bytes_of(device: &Device) -> usize {
    let properties = device.properties.iter();
    device.id.as_str().len() + properties.map(|(k, v)| k.len() + v.len()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(n: usize) -> Device {
        let mut device = Device::new(format!("service {n}"));
        let value = "x".repeat(4096);
        device.properties.insert("TXT".to_owned(), value);
        device
    }

    fn host(n: usize) -> IpAddr {
        IpAddr::from(u32::try_from(n).unwrap().to_be_bytes())
    }

    /// Admits as many of these services as there is room for, each of a host of its own.
    fn fill(budget: &mut ServiceBudget) {
        for n in 0..2000 {
            budget.admit(n, host(n), device(n));
        }
    }

    fn taken(all: &Bytes, of: &[ConfigurationKey]) -> usize {
        let all = all.lock();
        of.iter().map(|key| all.own(key)).sum()
    }

    #[test]
    fn many_discoveries_of_the_same_services_share_their_bytes() {
        let all = all_bytes();
        let keys: Vec<_> = (0..100)
            .map(|n| ConfigurationKey::new("a", format!("c{n}")))
            .collect();
        let mut budgets: Vec<ServiceBudget> = (keys.iter())
            .map(|key| ServiceBudget::within(&all, key))
            .collect();
        budgets.iter_mut().for_each(fill);
        let bytes: usize = budgets.iter().map(|budget| budget.part.bytes()).sum();
        assert_eq!(bytes, taken(&all, &keys));
        assert!(bytes <= ALL_BYTES_MAX / 2, "{bytes}");
        assert!(budgets[0].part.bytes() > BYTES_MAX - 16_384 && budgets[4].part.bytes() > 200_000);
        // Another namespace has its own part.
        let mut other = ServiceBudget::within(&all, &ConfigurationKey::new("b", "one".to_owned()));
        fill(&mut other);
        assert!(
            other.part.bytes() > BYTES_MAX - 16_384,
            "{}",
            other.part.bytes()
        );
        drop(other);
        budgets.clear();
        let mut alone = ServiceBudget::within(&all, &keys[0]);
        fill(&mut alone);
        assert!(alone.part.bytes() > BYTES_MAX - 16_384);
    }

    #[test]
    fn the_next_discovery_of_a_configuration_has_the_part_of_the_one_before() {
        let all = all_bytes();
        let key = ConfigurationKey::new("a", "c".to_owned());
        let mut before = ServiceBudget::within(&all, &key);
        fill(&mut before);
        let mut next = ServiceBudget::within(&all, &key);
        fill(&mut next);
        assert!(before.part.bytes() + next.part.bytes() <= ALL_BYTES_MAX / 2);
        drop(before);
        assert_eq!(all.lock().own(&key), next.part.bytes());
    }
}
