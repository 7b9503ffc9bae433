//! Holds the addresses of a service, with their source and their use. Pure.
use ipnet::IpNet;
use std::net::IpAddr;

/// An address. It has its interface only if it is not valid without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) ip: IpAddr,
    pub(super) interface: Option<String>,
    /// True if the interface that received the address reaches it without a router.
    pub(super) is_on_link: bool,
    /// The network of that interface that contains the address.
    pub(super) network: Option<IpNet>,
}

/// The ways in which an address can be used, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    RoutableV4,
    RoutableV6,
    /// The service runs on this machine.
    Loopback,
    LinkLocal,
}

impl Address {
    /// Returns `None` for an address at which no service can be reached.
    pub(super) fn new(ip: IpAddr, interface: &str) -> Option<Self> {
        if ip.is_unspecified() || ip.is_multicast() {
            return None;
        }
        let scoped = is_link_local_v6(ip);
        if scoped && interface.is_empty() {
            return None;
        }
        Some(Self {
            ip,
            interface: scoped.then(|| interface.to_owned()),
            is_on_link: true,
            network: None,
        })
    }

    pub(super) fn on_link(self, is_on_link: bool) -> Self {
        Self { is_on_link, ..self }
    }

    pub(super) fn in_network(self, network: Option<IpNet>) -> Self {
        Self { network, ..self }
    }

    /// Returns the network that a pin remembers: that of the interface or, for an address elsewhere, its own /24 or
    /// /64. A link-local address has none, because all links have the same network.
    pub(super) fn pinned_network(&self) -> Option<IpNet> {
        if self.reach() == Reach::LinkLocal {
            return None;
        }
        let length = if self.ip.is_ipv4() { 24 } else { 64 };
        (self.network).or_else(|| IpNet::new(self.ip, length).ok())
    }

    pub(super) fn ip(&self) -> IpAddr {
        self.ip
    }

    pub(super) fn is_on_link(&self) -> bool {
        self.is_on_link
    }

    /// Returns whether both are one address, regardless of the interface that received it.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.ip == other.ip && self.interface == other.interface
    }

    /// Records that another interface received the address too.
    pub(super) fn join(&mut self, other: &Self) {
        self.is_on_link |= other.is_on_link;
    }

    pub(super) fn reach(&self) -> Reach {
        match self.ip {
            ip if ip.is_loopback() => Reach::Loopback,
            IpAddr::V4(v4) if v4.is_link_local() => Reach::LinkLocal,
            ip if is_link_local_v6(ip) => Reach::LinkLocal,
            IpAddr::V4(_) => Reach::RoutableV4,
            IpAddr::V6(_) => Reach::RoutableV6,
        }
    }

    pub(super) fn text(&self) -> String {
        match &self.interface {
            Some(interface) => format!("{}%{interface}", self.ip),
            None => self.ip.to_string(),
        }
    }
}

fn is_link_local_v6(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}
