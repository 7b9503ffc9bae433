//! Says how an address of a service can be used, and its text. Pure.
use ipnet::IpNet;
use petiole_mdns::Address;
use std::net::IpAddr;

/// The ways in which an address can be used, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    RoutableV4,
    RoutableV6,
    /// The service runs on this machine.
    Loopback,
    LinkLocal,
}

/// Returns how an address can be used.
pub(super) fn reach(address: &Address) -> Reach {
    match address.ip {
        ip if ip.is_loopback() => Reach::Loopback,
        IpAddr::V4(v4) if v4.is_link_local() => Reach::LinkLocal,
        ip if has_scope(ip) => Reach::LinkLocal,
        IpAddr::V4(_) => Reach::RoutableV4,
        IpAddr::V6(_) => Reach::RoutableV6,
    }
}

/// Returns the network that a pin remembers: that of the interface or, for an address elsewhere, its own /24 or
/// /64. A link-local address has none, because all links have the same network.
pub(super) fn pinned_network(address: &Address) -> Option<IpNet> {
    if reach(address) == Reach::LinkLocal {
        return None;
    }
    let length = if address.ip.is_ipv4() { 24 } else { 64 };
    (address.network).or_else(|| IpNet::new(address.ip, length).ok())
}

/// Returns whether both are one address, which two interfaces may have received.
pub(super) fn is_same(one: &Address, other: &Address) -> bool {
    one.ip == other.ip && (one.interface == other.interface || !has_scope(one.ip))
}

/// Returns the text of an address. It has its interface only if it is not valid without one.
pub(super) fn text(address: &Address) -> String {
    if has_scope(address.ip) {
        format!("{}%{}", address.ip, address.interface)
    } else {
        address.ip.to_string()
    }
}

fn has_scope(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}
