//! What a camera has said. Pure.
use super::super::neighbours::normalized_mac;
use petiole_onvif::Facts;

/// What a camera has said, and its MAC address, if it is known.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) facts: Facts,
    pub(super) mac: Option<String>,
}

impl Said {
    /// Adds what it has said `before`, where calls were not answered now. Returns whether anything was lacking.
    pub(super) fn complete(&mut self, before: &Self) -> bool {
        let Self { facts, mac } = self;
        if facts.failed.is_empty() {
            return false;
        }
        let (earlier, mut is_lacking) = (&before.facts, false);
        if facts.interfaces.is_empty() && !earlier.interfaces.is_empty() {
            facts.interfaces.clone_from(&earlier.interfaces);
            is_lacking = true;
        }
        if facts.information.is_none() && earlier.information.is_some() {
            facts.information.clone_from(&earlier.information);
            is_lacking = true;
        }
        if facts.streams.len() < earlier.streams.len() {
            facts.streams.clone_from(&earlier.streams);
            is_lacking = true;
        }
        if mac.is_none() && before.mac.is_some() {
            mac.clone_from(&before.mac);
            is_lacking = true;
        }
        is_lacking
    }
}

/// Returns the MAC address that a camera says of its interface with this address.
pub(super) fn said_mac(facts: &Facts) -> Option<String> {
    let ip = facts.url.ip()?;
    let has_it = facts.interfaces.iter().find(|i| i.addresses.contains(&ip));
    let interface = has_it.or(facts.interfaces.first())?;
    let mac = normalized_mac(&interface.mac);
    (!mac.is_empty()).then_some(mac)
}
