//! Represents the records that the querier uses. Pure.
use super::name::Name;
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

/// The types of record that the querier uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An IPv4 address of a host (RFC 1035).
    A,
    /// An IPv6 address of a host (RFC 3596).
    Aaaa,
    /// A pointer from a type to a service (RFC 6763 4.1).
    Ptr,
    /// The host and the port of a service (RFC 2782).
    Srv,
    /// The keys and values of a service (RFC 6763 6).
    Txt,
    /// The types that exist at a name, and by that those that do not (RFC 6762 6.1).
    Nsec,
}

impl Kind {
    /// Returns the number on the wire (RFC 1035 3.2.2).
    pub const fn code(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Ptr => 12,
            Self::Txt => 16,
            Self::Aaaa => 28,
            Self::Srv => 33,
            Self::Nsec => 47,
        }
    }

    pub(super) fn from_code(code: u16) -> Option<Self> {
        let all = [
            Self::A,
            Self::Aaaa,
            Self::Ptr,
            Self::Srv,
            Self::Txt,
            Self::Nsec,
        ];
        all.into_iter().find(|kind| kind.code() == code)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "A",
            Self::Aaaa => "AAAA",
            Self::Ptr => "PTR",
            Self::Srv => "SRV",
            Self::Txt => "TXT",
            Self::Nsec => "NSEC",
        })
    }
}

/// The data of a record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Data {
    /// An address of a host.
    A(Ipv4Addr),
    /// An address of a host.
    Aaaa(Ipv6Addr),
    /// The name of a service.
    Ptr(Name),
    /// The place of a service.
    Srv {
        /// The name of the host.
        target: Name,
        /// The port.
        port: u16,
        /// The lowest one is to be used first. The querier does not use it.
        priority: u16,
        /// The share among records of one priority. The querier does not use it.
        weight: u16,
    },
    /// The strings in wire format: each is preceded by its length.
    Txt(Arc<[u8]>),
    /// The types that exist at the name, as far as the querier uses them.
    Nsec(Vec<Kind>),
}

impl Data {
    /// Returns the type of the record.
    pub fn kind(&self) -> Kind {
        match self {
            Self::A(_) => Kind::A,
            Self::Aaaa(_) => Kind::Aaaa,
            Self::Ptr(_) => Kind::Ptr,
            Self::Srv { .. } => Kind::Srv,
            Self::Txt(_) => Kind::Txt,
            Self::Nsec(_) => Kind::Nsec,
        }
    }

    /// Returns the address in an address record.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::A(v4) => Some((*v4).into()),
            Self::Aaaa(v6) => Some((*v6).into()),
            Self::Ptr(_) | Self::Srv { .. } | Self::Txt(_) | Self::Nsec(_) => None,
        }
    }

    /// Returns the bytes of the data, without the structures that hold it.
    pub fn size(&self) -> usize {
        match self {
            Self::Ptr(name) | Self::Srv { target: name, .. } => name.wire_len(),
            Self::Txt(bytes) => bytes.len(),
            Self::A(_) | Self::Aaaa(_) | Self::Nsec(_) => 0,
        }
    }
}

/// A record of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The name that it is about.
    pub name: Name,
    /// The lifetime in seconds; 0 withdraws the record (RFC 6762 10.1).
    pub ttl: u32,
    /// The record replaces the others of its name and type (RFC 6762 10.2).
    pub flush: bool,
    /// The type, and its value.
    pub data: Data,
}
