//! Decides which records the cache admits. Pure.
//!
//! A known record can always be refreshed or withdrawn. A new one must be within three limits: that of its set, that of
//! the cache, and that of its source. A source may use at most half of the capacity that the other sources leave, of
//! records and of services, so that no single source fills the cache. A quarter of the capacity is reserved for
//! services that have an Instance. No record is evicted for a new one, because known records may be in use.
use super::{
    super::{
        message::{Data, Kind},
        name::Name,
    },
    entry::Origin,
};
use std::{
    collections::{BTreeMap, btree_map::Entry as MapEntry},
    net::IpAddr,
};

/// The most records in total. These are 4096 services, with some addresses for each. Beyond it: new records are left
/// out (`DiscoveryIncomplete`), and known ones are refreshed.
pub const RECORDS_MAX: usize = 24_576;
/// The most bytes of names and data of all records. Beyond it: new records are left out (`DiscoveryIncomplete`), and
/// known ones are refreshed.
pub const BYTES_MAX: usize = 4 << 20;
/// The most services, of all types and on all interfaces. Beyond it: new services are left out
/// (`DiscoveryIncomplete`).
pub const POINTERS_MAX: usize = 4096;
/// The number of services above this limit that are admitted if they have an Instance.
const POINTERS_KEPT: usize = POINTERS_MAX / 4;
/// The most addresses of one host and family. Beyond it: further ones are left out.
const ADDRESSES_MAX: usize = 16;
/// The most versions of a record that should be unique. Beyond it: further ones are left out.
const VERSIONS_MAX: usize = 2;
/// The most sources that may have records. A quarter more are admitted for services that have an Instance. Beyond
/// it: records of further sources are left out.
const SOURCES_MAX: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The index of the interface.
    pub link: u32,
    pub name: Name,
    pub kind: Kind,
}

impl Key {
    /// Returns the key of the pointers to services.
    pub fn pointer(link: u32, browsed: &Name) -> Self {
        Self {
            link,
            name: browsed.clone(),
            kind: Kind::Ptr,
        }
    }
}

/// The numbers of records and pointers of one source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) records: usize,
    pub(super) pointers: usize,
}

/// The numbers of records in the cache.
#[derive(Debug, Default)]
pub(super) struct RecordBudget {
    records: usize,
    bytes: usize,
    pointers: usize,
    pub(super) by_source: BTreeMap<IpAddr, Share>,
}

impl RecordBudget {
    /// Returns whether a new record is admitted beside `others` of its set.
    pub(super) fn has_space(&self, key: &Key, data: &Data, others: usize, origin: &Origin) -> bool {
        let set_max = match key.kind {
            Kind::Ptr => POINTERS_MAX + POINTERS_KEPT,
            Kind::A | Kind::Aaaa => ADDRESSES_MAX,
            Kind::Srv | Kind::Txt | Kind::Nsec => VERSIONS_MAX,
        };
        if others >= set_max {
            return false;
        }
        if self.bytes + bytes_of(key, data) > BYTES_MAX {
            return false;
        }
        if origin.is_preferred {
            let is_counted = self.by_source.len() < SOURCES_MAX + SOURCES_MAX / 4;
            return self.records < RECORDS_MAX
                && self.pointers < POINTERS_MAX + POINTERS_KEPT
                && is_counted;
        }
        let known = self.by_source.get(&origin.source);
        let mine = known.copied().unwrap_or_default();
        let has_share =
            |mine: usize, all: usize, max: usize| mine < (max - (all - mine).min(max)) / 2;
        (known.is_some() || self.by_source.len() < SOURCES_MAX)
            && has_share(mine.records, self.records, open(RECORDS_MAX))
            && (key.kind != Kind::Ptr || has_share(mine.pointers, self.pointers, POINTERS_MAX))
            && self.bytes + bytes_of(key, data) <= open(BYTES_MAX)
    }

    pub(super) fn count_in(&mut self, key: &Key, data: &Data, source: IpAddr) {
        let pointers = usize::from(key.kind == Kind::Ptr);
        self.records += 1;
        self.pointers += pointers;
        self.bytes += bytes_of(key, data);
        let share = self.by_source.entry(source).or_default();
        share.records += 1;
        share.pointers += pointers;
    }

    pub(super) fn count_out(&mut self, key: &Key, data: &Data, source: IpAddr) {
        let pointers = usize::from(key.kind == Kind::Ptr);
        self.records -= 1;
        self.pointers -= pointers;
        self.bytes -= bytes_of(key, data);
        if let MapEntry::Occupied(mut share) = self.by_source.entry(source) {
            share.get_mut().records -= 1;
            share.get_mut().pointers -= pointers;
            if share.get().records == 0 {
                share.remove();
            }
        }
    }

    pub(super) fn records(&self) -> usize {
        self.records
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Returns the part of a limit that every service may use. The rest is reserved for services that have an Instance.
pub(super) const fn open(max: usize) -> usize {
    max / 4 * 3
}

pub(super) fn bytes_of(key: &Key, data: &Data) -> usize {
    key.name.wire_len() + data.size()
}
