//! The probes to send, and their ids. Pure.
use fastrand::Rng;
use std::net::SocketAddr;

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Group 239.255.255.250.
    V4,
    /// Group ff02::c.
    V6,
}

/// The destination of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum To {
    /// The group of WS-Discovery, port 3702, on an interface with this index.
    Group {
        /// The index of the interface.
        link: u32,
        /// The family of the group.
        family: Family,
    },
    /// One device.
    Address(SocketAddr),
}

/// A probe to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Its destination.
    pub to: To,
    /// Its text.
    pub bytes: Vec<u8>,
}

/// Makes a random UUID.
pub(super) fn uuid(random: &mut Rng) -> String {
    let mut hex = format!("{:032x}", random.u128(..));
    // Version 4, variant 1 (RFC 9562 5.4).
    hex.replace_range(12..13, "4");
    hex.replace_range(16..17, "a");
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}
