//! Describes a service that was found, with all data for subscribers. Pure.
use super::super::{
    name::Name,
    txt::{entries, strings},
};
use ipnet::IpNet;
use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

/// A service with all data that are needed to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The name in the case of its first announcement.
    pub name: Name,
    /// The name of the host that offers it.
    pub host: Name,
    /// The port.
    pub port: u16,
    /// The addresses. The one that has been known for longest comes first.
    pub addresses: Vec<Address>,
    /// The TXT record in wire format; empty if there is none.
    pub txt: Arc<[u8]>,
    /// The source of its pointer.
    pub source: IpAddr,
    /// Another service of the same host name that a different machine announces; `name` itself if a machine on another interface
    /// announces it with another host or port, which is not offered.
    pub twin: Option<Name>,
}

impl Service {
    /// Returns the keys and values of the TXT record, in their order (RFC 6763 6.4). A key alone has no value, which is
    /// not the same as an empty one. Of several keys that differ only in case the first counts.
    pub fn txt_entries(&self) -> Vec<(&str, Option<&[u8]>)> {
        entries(&self.txt)
    }

    /// Returns the value of a key of the TXT record, if it has one. ASCII letters of either case are the same. It costs less than all
    /// entries.
    pub fn txt_value(&self, key: &str) -> Option<&[u8]> {
        let mut strings = strings(&self.txt);
        let (_, value) = strings.find(|(its, _)| its.eq_ignore_ascii_case(key))?;
        value
    }
}

/// An address of a service, and the interface that received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// The name of the interface.
    pub interface: Arc<str>,
    /// The network of that interface that contains the address.
    pub network: Option<IpNet>,
    /// The interface reaches it without a router.
    pub is_on_link: bool,
}

/// The limit because of which records are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftOut {
    /// The cache is full.
    Total,
    /// This host has its share of the cache.
    Share(IpAddr),
}

/// The services that a subscription has found.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The services at present, by name.
    pub services: BTreeMap<Name, Arc<Service>>,
    /// The reason that some services are left out.
    pub leaves_out: Option<LeftOut>,
    /// The number of interfaces that are browsed; `None` if it is not known yet.
    pub interfaces: Option<usize>,
    /// An interface has been present since the subscription began.
    pub has_begun: bool,
}
