//! The cache holds the records that are known, by the interface they came by. It is bounded. Pure.
//!
//! A record that is there already can always be refreshed or taken back. A new one is admitted while there is room: in
//! its set, in all, and in the share of its source. A source may take at most half of what the other sources leave, of
//! records and of services, so that nobody fills the cache alone. A quarter of the
//! room is kept for services that have an Instance. Nothing is evicted for a newcomer, because what is known may be in use.
mod entry;

use super::{
    message::{Data, Kind, Record},
    name::Name,
};
pub use entry::{Entry, Origin};
use std::{
    collections::{BTreeMap, btree_map::Entry as MapEntry},
    net::IpAddr,
    time::Duration,
};

/// The most records in all: 4096 services, with some addresses for each.
pub const RECORDS_MAX: usize = 24_576;
/// The most bytes of names and data in all.
pub const BYTES_MAX: usize = 4 << 20;
/// The most services, of all types and on all interfaces.
pub const POINTERS_MAX: usize = 4096;
/// The services beyond these that are admitted if they have an Instance.
const POINTERS_KEPT: usize = POINTERS_MAX / 4;
/// The most addresses of one host and family, and the most versions of a record that should be one.
const ADDRESSES_MAX: usize = 16;
const VERSIONS_MAX: usize = 2;
/// The sources that are counted one by one. All others share.
const SOURCES_MAX: usize = 4096;
/// A record lives no longer than this without an answer (RFC 6762 10 recommends it for most records).
const TTL_MAX: Duration = Duration::from_secs(4500);
/// RFC 6762 10.1 and 10.2: what was taken back, or replaced, stays for another second.
const LINGER: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The index of the interface.
    pub link: u32,
    pub name: Name,
    pub kind: Kind,
}

impl Key {
    /// The key of what points to services.
    pub fn pointer(link: u32, browsed: &Name) -> Self {
        Self {
            link,
            name: browsed.clone(),
            kind: Kind::Ptr,
        }
    }
}

/// The outcome of a record that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was not known, or disputed.
    New,
    Refreshed,
    /// It was taken back.
    Goodbye,
    /// It was taken back, or replaced, and was not known.
    Unknown,
    /// There is no room for it.
    Refused,
}

type Set = BTreeMap<Data, Entry>;

/// The share of the cache that one source has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Share {
    records: usize,
    pointers: usize,
}

#[derive(Debug, Default)]
pub struct Cache {
    sets: BTreeMap<Key, Set>,
    records: usize,
    bytes: usize,
    pointers: usize,
    by_source: BTreeMap<IpAddr, Share>,
    /// Nothing is due before.
    due: Option<Duration>,
}

impl Cache {
    /// Takes a record. One that replaces others shortens their lives.
    pub fn take(&mut self, link: u32, record: &Record, origin: &Origin) -> Outcome {
        let key = Key {
            link,
            name: record.name.clone(),
            kind: record.data.kind(),
        };
        let ttl = Duration::from_secs(u64::from(record.ttl)).min(TTL_MAX);
        if ttl.is_zero() {
            return self.take_back(&key, &record.data, origin.now);
        }
        // A pointer is shared: no publisher may replace those of others.
        if record.flush && key.kind != Kind::Ptr {
            self.flush_others(&key, &record.data, origin.now);
        }
        let known = self.sets.get_mut(&key);
        if let Some(entry) = known.and_then(|set| set.get_mut(&record.data)) {
            let outcome = match entry.is_disputed {
                true => Outcome::New,
                false => Outcome::Refreshed,
            };
            *entry = Entry {
                since: entry.since,
                source: entry.source,
                ..Entry::new(ttl, origin)
            };
            let due = entry.due();
            self.look_at(due);
            return outcome;
        }
        if !self.has_room(&key, &record.data, origin) {
            return Outcome::Refused;
        }
        let entry = Entry::new(ttl, origin);
        self.look_at(entry.due());
        self.insert(key, record.data.clone(), entry);
        Outcome::New
    }

    fn take_back(&mut self, key: &Key, data: &Data, now: Duration) -> Outcome {
        let known = self.sets.get_mut(key).and_then(|set| set.get_mut(data));
        let Some(entry) = known else {
            return Outcome::Unknown;
        };
        entry.end(now + LINGER);
        self.look_at(now + LINGER);
        Outcome::Goodbye
    }

    /// Ends the other records of the set, but those received within the last second: they may be of the same announcement
    /// (RFC 6762 10.2).
    fn flush_others(&mut self, key: &Key, data: &Data, now: Duration) {
        let Some(set) = self.sets.get_mut(key) else {
            return;
        };
        let mut any = false;
        for (other, entry) in set {
            if other != data && entry.received_at + LINGER < now && entry.expires > now + LINGER {
                entry.end(now + LINGER);
                any = true;
            }
        }
        if any {
            self.look_at(now + LINGER);
        }
    }

    fn has_room(&self, key: &Key, data: &Data, origin: &Origin) -> bool {
        let set_max = match key.kind {
            Kind::Ptr => POINTERS_MAX + POINTERS_KEPT,
            Kind::A | Kind::Aaaa => ADDRESSES_MAX,
            Kind::Srv | Kind::Txt | Kind::Nsec => VERSIONS_MAX,
        };
        if self.sets.get(key).is_some_and(|set| set.len() >= set_max) {
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

    fn insert(&mut self, key: Key, data: Data, entry: Entry) {
        let pointers = usize::from(key.kind == Kind::Ptr);
        self.records += 1;
        self.pointers += pointers;
        self.bytes += bytes_of(&key, &data);
        let share = self.by_source.entry(entry.source).or_default();
        share.records += 1;
        share.pointers += pointers;
        self.sets.entry(key).or_default().insert(data, entry);
    }

    fn count_out(&mut self, key: &Key, data: &Data, entry: &Entry) {
        let pointers = usize::from(key.kind == Kind::Ptr);
        self.records -= 1;
        self.pointers -= pointers;
        self.bytes -= bytes_of(key, data);
        if let MapEntry::Occupied(mut share) = self.by_source.entry(entry.source) {
            share.get_mut().records -= 1;
            share.get_mut().pointers -= pointers;
            if share.get().records == 0 {
                share.remove();
            }
        }
    }

    fn look_at(&mut self, at: Duration) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    pub fn due(&self) -> Option<Duration> {
        self.due
    }

    pub fn records(&self) -> usize {
        self.records
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the records of a name and type that are not disputed.
    pub fn set<'a>(
        &'a self,
        link: u32,
        name: &Name,
        kind: Kind,
    ) -> impl Iterator<Item = (&'a Data, &'a Entry)> + use<'a> {
        let key = Key {
            link,
            name: name.clone(),
            kind,
        };
        let set = self.sets.get(&key).into_iter().flatten();
        set.filter(|(_, entry)| !entry.is_disputed)
    }

    /// Returns the record that was received last, where a set should have one record only.
    pub fn latest(&self, link: u32, name: &Name, kind: Kind) -> Option<&Data> {
        let set = self.set(link, name, kind);
        let latest = set.max_by_key(|(_, entry)| {
            (
                entry.expires > entry.received_at + LINGER,
                entry.received_at,
            )
        });
        latest.map(|(data, _)| data)
    }

    pub fn has(&self, link: u32, name: &Name, kind: Kind) -> bool {
        self.set(link, name, kind).next().is_some()
    }

    /// Returns whether `name` points to `target`, by a pointer that is not disputed.
    pub fn points(&self, link: u32, name: &Name, target: &Name) -> bool {
        self.pointer(link, name, target)
            .is_some_and(|(_, entry)| !entry.is_disputed)
    }

    /// Returns the pointer from `name` to `target`, also a disputed one. Its data has the case of the first announcement.
    pub fn pointer(&self, link: u32, name: &Name, target: &Name) -> Option<(&Data, &Entry)> {
        let key = Key::pointer(link, name);
        let set = self.sets.get(&key)?;
        set.get_key_value(&Data::Ptr(target.clone()))
    }

    /// Begins the life of the pointer from `name` to `target` anew, unless it was taken back or is disputed.
    pub fn renew(&mut self, key: &Key, target: &Name, now: Duration) {
        let set = self.sets.get_mut(key);
        let entry = set.and_then(|set| set.get_mut(&Data::Ptr(target.clone())));
        if let Some(entry) = entry.filter(|entry| !entry.is_ended && !entry.is_disputed) {
            entry.renew(now);
        }
    }

    /// Disputes the pointer from `name` to `target`, or ends the dispute.
    pub fn dispute(&mut self, key: &Key, target: &Name, is_disputed: bool, now: Duration) {
        let set = self.sets.get_mut(key);
        let Some(entry) = set.and_then(|set| set.get_mut(&Data::Ptr(target.clone()))) else {
            return;
        };
        if entry.is_disputed == is_disputed {
            return;
        }
        match is_disputed {
            true => entry.mark_disputed(now),
            false => entry.renew(now),
        }
        let due = entry.due();
        self.look_at(due);
    }

    /// Drops all records of a name and type.
    pub fn drop_set(&mut self, link: u32, name: &Name, kind: Kind) {
        let key = Key {
            link,
            name: name.clone(),
            kind,
        };
        self.drop_key(&key);
    }

    fn drop_key(&mut self, key: &Key) {
        for (data, entry) in self.sets.remove(key).into_iter().flatten() {
            self.count_out(key, &data, &entry);
        }
    }

    /// Drops the records that are not wanted.
    pub fn retain(&mut self, is_wanted: impl Fn(&Key) -> bool) {
        let keys: Vec<Key> = self
            .sets
            .keys()
            .filter(|k| !is_wanted(k))
            .cloned()
            .collect();
        keys.iter().for_each(|key| self.drop_key(key));
    }

    /// Removes the records that have expired, and returns those that are to be asked for again: `is_used` decides for each.
    pub fn turn(&mut self, now: Duration, is_used: impl Fn(&Key) -> bool) -> Due {
        let mut done = Due::default();
        if self.due.is_none_or(|due| due > now) {
            return done;
        }
        self.due = None;
        let mut next: Option<Duration> = None;
        let is_along = self.sets.iter().any(|(key, set)| {
            set.values().any(|entry| entry.is_to_refresh(now, false)) && is_used(key)
        });
        for (key, set) in &mut self.sets {
            for (data, entry) in &mut *set {
                let is_pointer = key.kind == Kind::Ptr && !entry.is_disputed;
                if entry.expires > now {
                    // It lives.
                } else if is_used(key) && entry.is_asked_overdue(now) {
                    done.refresh.push(key.clone());
                } else if is_pointer && !entry.is_ended && entry.is_unanswered() {
                    entry.mark_disputed(now);
                    done.lost.push((key.clone(), data.clone()));
                } else {
                    done.expired
                        .push((key.clone(), data.clone(), entry.clone()));
                    continue;
                }
                if entry.is_to_refresh(now, is_along) {
                    if is_used(key) && !entry.is_disputed {
                        done.refresh.push(key.clone());
                        entry.refreshes += 1;
                        entry.plan_refresh();
                    } else {
                        entry.refresh_at = None;
                    }
                }
                let due = entry.due();
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        }
        for (key, data, entry) in &done.expired {
            if let Some(set) = self.sets.get_mut(key) {
                set.remove(data);
                if set.is_empty() {
                    self.sets.remove(key);
                }
            }
            self.count_out(key, data, entry);
        }
        done.refresh.dedup();
        self.due = next;
        done
    }
}

/// The records that are due.
#[derive(Debug, Default)]
pub struct Due {
    pub expired: Vec<(Key, Data, Entry)>,
    /// Pointers without an answer to their refresh questions. They are disputed from now on.
    pub lost: Vec<(Key, Data)>,
    pub refresh: Vec<Key>,
}

/// The part of a bound that is open to all; the rest is kept for services that have an Instance.
const fn open(max: usize) -> usize {
    max / 4 * 3
}

fn bytes_of(key: &Key, data: &Data) -> usize {
    key.name.wire_len() + data.size()
}

#[cfg(test)]
mod tests;
