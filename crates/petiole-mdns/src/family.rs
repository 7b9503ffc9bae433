//! The address families of packets and hosts. Pure.
use std::net::IpAddr;

/// An address family: of a packet, of a socket, or of an address record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4, and records of type A.
    V4,
    /// IPv6, and records of type AAAA.
    V6,
}

impl Family {
    /// Returns the family of an address.
    pub fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

/// The address families by which a question is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Families {
    pub(super) v4: bool,
    pub(super) v6: bool,
}

impl Families {
    pub(super) const BOTH: Self = Self { v4: true, v6: true };

    pub(super) fn add(&mut self, family: Family) {
        match family {
            Family::V4 => self.v4 = true,
            Family::V6 => self.v6 = true,
        }
    }

    pub(super) fn has(self, family: Family) -> bool {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self {
            v4: self.v4 || other.v4,
            v6: self.v6 || other.v6,
        }
    }

    /// Returns the family that the host has used.
    pub(super) fn first(self) -> Self {
        Self {
            v4: self.v4,
            v6: !self.v4,
        }
    }
}
