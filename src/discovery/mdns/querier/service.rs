//! A service that was found, with all that a subscriber is told of it. Pure.
use super::super::name::Name;
use ipnet::IpNet;
use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

/// A service with all that is needed to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The name in the case of its first announcement.
    pub name: Name,
    pub host: Name,
    pub port: u16,
    /// The address that has been known for longest comes first.
    pub addresses: Vec<Address>,
    /// The TXT record in wire format; empty where there is none.
    pub txt: Arc<[u8]>,
    /// Another service of the same host name that a different machine announces.
    pub twin: Option<Name>,
}

/// An address of a service, and the interface it came by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub ip: IpAddr,
    /// The name of the interface.
    pub interface: Arc<str>,
    /// The network of that interface which contains it.
    pub network: Option<IpNet>,
    /// The interface reaches it without a router.
    pub is_on_link: bool,
}

/// The services that a subscription has found.
#[derive(Debug, Clone, Default)]
pub struct Found {
    pub services: BTreeMap<Name, Arc<Service>>,
    /// There are more services than there is room for.
    pub leaves_out: bool,
    /// The number of interfaces that are browsed; `None`: not known yet.
    pub interfaces: Option<usize>,
    /// There has been an interface since the subscription began.
    pub has_begun: bool,
}
