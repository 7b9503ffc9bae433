//! Decides which records the cache admits. Pure.
//!
//! A known record can always be refreshed or withdrawn. A new one must be within three limits: that of its set, that of
//! the cache, and that of its source. A source may use at most half of the capacity that the other sources leave, of
//! records, of services and of bytes, so that no single source fills the cache. A quarter of the capacity is reserved
//! for preferred services: a record of theirs that the open part does not admit is counted there. No record
//! is evicted for another's new one, because known records may be in use; of a record that should be unique the newest versions stay.
use super::{
    super::{
        name::Name,
        record::{Data, Kind},
    },
    entry::{Entry, Origin},
};
use std::{
    collections::{BTreeMap, btree_map::Entry as MapEntry},
    net::IpAddr,
};

/// The most records in total. These are 4096 services, with some addresses for each. Beyond it: new records are left
/// out, and known ones are refreshed.
pub const RECORDS_MAX: usize = 24_576;
/// The most bytes of names and data of all records. Beyond it: new records are left out, and
/// known ones are refreshed.
pub const BYTES_MAX: usize = 4 << 20;
/// The most services, of all types and on all interfaces. Beyond it: new services are left out.
pub const POINTERS_MAX: usize = 4096;
/// The number of services above this limit that are admitted if they are preferred.
const POINTERS_KEPT: usize = POINTERS_MAX / 4;
/// The most addresses of one host and family. Beyond it: further ones are left out.
const ADDRESSES_MAX: usize = 16;
/// The most versions of a record that should be unique. Beyond it: the oldest one is dropped.
pub(super) const VERSIONS_MAX: usize = 2;
/// The most sources that may have records. A quarter more are admitted for preferred services. Beyond
/// it: records of further sources are left out.
const SOURCES_MAX: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The index of the interface.
    pub link: u32,
    pub name: Name,
    pub kind: Kind,
}

impl Key {
    /// Returns the key of the pointers to services.
    pub(crate) fn pointer(link: u32, browsed: &Name) -> Self {
        Self {
            link,
            name: browsed.clone(),
            kind: Kind::Ptr,
        }
    }

    /// Returns whether a service has one record of this kind (RFC 6762 2).
    pub(super) fn is_unique(&self) -> bool {
        matches!(self.kind, Kind::Srv | Kind::Txt | Kind::Nsec)
    }
}

/// A source that has used less than this part of a limit is not the one that has exceeded its share.
const LARGE: usize = 16;

/// The limit that a record exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Its name has as many records of its type as a name may have.
    Set,
    /// The cache is full.
    Total,
    /// Its source has its share.
    Share,
}

/// The numbers of records and pointers, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) records: usize,
    pub(super) pointers: usize,
    pub(super) bytes: usize,
}

impl Share {
    fn of(key: &Key, data: &Data) -> Self {
        Self {
            records: 1,
            pointers: usize::from(key.kind == Kind::Ptr),
            bytes: bytes_of(key, data),
        }
    }

    fn map(self, other: Self, f: impl Fn(usize, usize) -> usize) -> Self {
        Self {
            records: f(self.records, other.records),
            pointers: f(self.pointers, other.pointers),
            bytes: f(self.bytes, other.bytes),
        }
    }
}

/// A part of the cache: the open one, or the reserved one.
#[derive(Debug)]
pub(super) struct Part {
    max: Share,
    sources_max: usize,
    pub(super) all: Share,
    pub(super) by_source: BTreeMap<IpAddr, Share>,
}

impl Part {
    fn new(max: Share, sources_max: usize) -> Self {
        Self {
            max,
            sources_max,
            all: Share::default(),
            by_source: BTreeMap::new(),
        }
    }

    /// Returns the limit that one more record of a source exceeds.
    fn exceeded(&self, more: Share, source: IpAddr) -> Option<Limit> {
        let known = self.by_source.get(&source);
        let mine = known.copied().unwrap_or_default();
        if known.is_none() && self.by_source.len() >= self.sources_max {
            return Some(Limit::Total);
        }
        let others = self.all.map(mine, |all, mine| all - mine);
        let left = self.max.map(others, usize::saturating_sub);
        let after = mine.map(more, |mine, more| mine + more);
        let is_beyond = |more: usize, after: usize, part: usize| more > 0 && after > part;
        let exceeds = |part: Share| {
            is_beyond(more.records, after.records, part.records)
                || is_beyond(more.pointers, after.pointers, part.pointers)
                || is_beyond(more.bytes, after.bytes, part.bytes)
        };
        if !exceeds(left.map(left, |left, _| left / 2)) {
            return None;
        }
        // A source that has little is refused because of the others.
        Some(if exceeds(self.max.map(left, |max, _| max / LARGE)) {
            Limit::Share
        } else {
            Limit::Total
        })
    }
}

/// The numbers of records in the cache.
#[derive(Debug)]
pub(super) struct RecordBudget {
    pub(super) open: Part,
    kept: Part,
}

impl Default for RecordBudget {
    fn default() -> Self {
        let open = Share {
            records: open(RECORDS_MAX),
            pointers: POINTERS_MAX,
            bytes: open(BYTES_MAX),
        };
        let kept = Share {
            records: RECORDS_MAX - open.records,
            pointers: POINTERS_KEPT,
            bytes: BYTES_MAX - open.bytes,
        };
        Self {
            open: Part::new(open, SOURCES_MAX),
            kept: Part::new(kept, SOURCES_MAX / 4),
        }
    }
}

impl RecordBudget {
    /// Returns whether a new record, beside `others` of its set, is counted in the reserved part, or the limit that it
    /// exceeds.
    pub(super) fn admit(
        &self,
        key: &Key,
        data: &Data,
        others: usize,
        origin: &Origin,
    ) -> Result<bool, Limit> {
        let set_max = match key.kind {
            Kind::Ptr => POINTERS_MAX + POINTERS_KEPT,
            Kind::A | Kind::Aaaa => ADDRESSES_MAX,
            Kind::Srv | Kind::Txt | Kind::Nsec => usize::MAX,
        };
        if others >= set_max {
            return Err(Limit::Set);
        }
        let more = Share::of(key, data);
        match self.open.exceeded(more, origin.source) {
            None => Ok(false),
            Some(limit) if !origin.is_preferred => Err(limit),
            Some(_) => match self.kept.exceeded(more, origin.source) {
                None => Ok(true),
                Some(limit) => Err(limit),
            },
        }
    }

    fn part(&mut self, is_kept: bool) -> &mut Part {
        if is_kept {
            &mut self.kept
        } else {
            &mut self.open
        }
    }

    pub(super) fn count_in(&mut self, key: &Key, data: &Data, entry: &Entry) {
        let more = Share::of(key, data);
        let part = self.part(entry.is_kept);
        part.all = part.all.map(more, |all, more| all + more);
        let share = part.by_source.entry(entry.source).or_default();
        *share = share.map(more, |mine, more| mine + more);
    }

    pub(super) fn count_out(&mut self, key: &Key, data: &Data, entry: &Entry) {
        let less = Share::of(key, data);
        let part = self.part(entry.is_kept);
        part.all = part.all.map(less, |all, less| all - less);
        if let MapEntry::Occupied(mut share) = part.by_source.entry(entry.source) {
            *share.get_mut() = share.get().map(less, |mine, less| mine - less);
            if share.get().records == 0 {
                share.remove();
            }
        }
    }

    pub(super) fn has_source(&self, source: IpAddr) -> bool {
        let mut parts = [&self.open, &self.kept].into_iter();
        parts.any(|part| part.by_source.contains_key(&source))
    }

    pub(super) fn records(&self) -> usize {
        self.open.all.records + self.kept.all.records
    }

    pub(super) fn bytes(&self) -> usize {
        self.open.all.bytes + self.kept.all.bytes
    }
}

/// Returns the part of a limit that every service may use. The rest is reserved for preferred services.
pub(super) const fn open(max: usize) -> usize {
    max / 4 * 3
}

pub(super) fn bytes_of(key: &Key, data: &Data) -> usize {
    key.name.wire_len() + data.size()
}
