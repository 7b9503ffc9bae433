//! Holds the known records by the interface that received them. The cache is bounded: `budget` decides which records are
//! admitted. Pure.
mod budget;
mod entry;

use super::{
    name::Name,
    record::{Data, Kind, Record},
};
pub use budget::{BYTES_MAX, POINTERS_MAX, RECORDS_MAX};
pub(crate) use budget::{Key, Limit};
pub(crate) use entry::{Entry, Origin};

use budget::{RecordBudget, VERSIONS_MAX};
use entry::LINGER;
use std::{collections::BTreeMap, net::IpAddr, time::Duration};

/// The longest lifetime of a record without an answer (RFC 6762 10 recommends it for most records).
pub(crate) const TTL_MAX: Duration = Duration::from_secs(4500);

/// The outcome of a record that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The record was unknown or disputed.
    New,
    Refreshed,
    /// The record was withdrawn.
    Goodbye,
    /// The record was withdrawn, and was unknown or had been withdrawn or replaced before.
    Unknown,
    Refused(Limit),
}

type Set = BTreeMap<Data, Entry>;

#[derive(Debug, Default)]
pub(crate) struct Cache {
    sets: BTreeMap<Key, Set>,
    budget: RecordBudget,
    /// The number of records that were received.
    order: u64,
    /// The time before which no record is due.
    due: Option<Duration>,
}

impl Cache {
    /// Processes a received record. A record that replaces others shortens their lifetimes.
    pub(crate) fn take(&mut self, link: u32, record: &Record, origin: &Origin) -> Outcome {
        let key = Key {
            link,
            name: record.name.clone(),
            kind: record.data.kind(),
        };
        let ttl = Duration::from_secs(u64::from(record.ttl)).min(TTL_MAX);
        if ttl.is_zero() {
            return self.take_back(&key, &record.data, origin.now);
        }
        self.order += 1;
        // Pointers are shared: a publisher must not replace the pointers of others.
        if record.flush && key.kind != Kind::Ptr {
            self.flush_others(&key, &record.data, origin.now);
        }
        let known = self.sets.get_mut(&key);
        if let Some(entry) = known.and_then(|set| set.get_mut(&record.data)) {
            let outcome = if entry.is_disputed {
                Outcome::New
            } else {
                Outcome::Refreshed
            };
            *entry = Entry {
                since: entry.since,
                source: entry.source,
                is_kept: entry.is_kept,
                order: self.order,
                ..Entry::new(ttl, origin)
            };
            let due = entry.due();
            self.look_at(due);
            return outcome;
        }
        let others = self.sets.get(&key).map_or(0, BTreeMap::len);
        let is_kept = match (self.budget).admit(&key, &record.data, others, origin) {
            Ok(is_kept) => is_kept,
            Err(limit) => return Outcome::Refused(limit),
        };
        let entry = Entry {
            is_kept,
            order: self.order,
            ..Entry::new(ttl, origin)
        };
        self.look_at(entry.due());
        if key.is_unique() && others >= VERSIONS_MAX {
            self.drop_oldest(&key);
        }
        self.budget.count_in(&key, &record.data, &entry);
        let set = self.sets.entry(key).or_default();
        set.insert(record.data.clone(), entry);
        Outcome::New
    }

    /// Drops the version of a record that was received before the others.
    fn drop_oldest(&mut self, key: &Key) {
        let Some(set) = self.sets.get_mut(key) else {
            return;
        };
        let oldest = set.iter().min_by_key(|(_, entry)| entry.order);
        if let Some(data) = oldest.map(|(data, _)| data.clone())
            && let Some(entry) = set.remove(&data)
        {
            self.budget.count_out(key, &data, &entry);
        }
    }

    fn take_back(&mut self, key: &Key, data: &Data, now: Duration) -> Outcome {
        let known = self.sets.get_mut(key).and_then(|set| set.get_mut(data));
        let Some(entry) = known.filter(|entry| !entry.is_ended && !entry.is_disputed) else {
            return Outcome::Unknown;
        };
        entry.end(now + LINGER);
        self.look_at(now + LINGER);
        Outcome::Goodbye
    }

    /// Ends the other records of the set, except those received within the last second, which may be of the same
    /// announcement (RFC 6762 10.2).
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

    fn look_at(&mut self, at: Duration) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    pub(crate) fn due(&self) -> Option<Duration> {
        self.due
    }

    pub(crate) fn records(&self) -> usize {
        self.budget.records()
    }

    /// Returns whether records of a source are known.
    pub(crate) fn has_source(&self, source: IpAddr) -> bool {
        self.budget.has_source(source)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.budget.bytes()
    }

    /// Returns the records of a name and type that are not disputed.
    pub(crate) fn set<'a>(
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

    /// Returns the record that was received last, for sets that should have one record only.
    pub(crate) fn latest(&self, link: u32, name: &Name, kind: Kind) -> Option<&Data> {
        let set = self.set(link, name, kind);
        let latest =
            set.max_by_key(|(_, entry)| (entry.expires > entry.received_at + LINGER, entry.order));
        latest.map(|(data, _)| data)
    }

    pub(crate) fn has(&self, link: u32, name: &Name, kind: Kind) -> bool {
        self.set(link, name, kind).next().is_some()
    }

    /// Returns whether `name` points to `target`, by a pointer that is not disputed.
    pub(crate) fn points(&self, link: u32, name: &Name, target: &Name) -> bool {
        self.pointer(link, name, target)
            .is_some_and(|(_, entry)| !entry.is_disputed)
    }

    /// Returns the pointer from `name` to `target`, even if it is disputed. Its data has the case of the first
    /// announcement.
    pub(crate) fn pointer(&self, link: u32, name: &Name, target: &Name) -> Option<(&Data, &Entry)> {
        let key = Key::pointer(link, name);
        let set = self.sets.get(&key)?;
        set.get_key_value(&Data::Ptr(target.clone()))
    }

    /// Restarts the lifetime of the pointer from `name` to `target`, unless it is disputed, or was withdrawn at this
    /// time: a packet with a goodbye may have other records of the service, too.
    pub(crate) fn renew(&mut self, key: &Key, target: &Name, now: Duration) {
        let entry = self.pointer_mut(key, target);
        let is_known = |e: &&mut Entry| !e.is_disputed && (!e.is_ended || e.was_withdrawn(now));
        if let Some(entry) = entry.filter(is_known) {
            entry.renew(now);
        }
    }

    /// Marks the pointer from `name` to `target` as disputed.
    pub(crate) fn dispute(&mut self, key: &Key, target: &Name, now: Duration) {
        if let Some(entry) = self.pointer_mut(key, target)
            && !entry.is_disputed
        {
            entry.mark_disputed(now);
            let due = entry.due();
            self.look_at(due);
        }
    }

    /// Ends the dispute about the pointer from `name` to `target`. A withdrawn pointer of a subtype stays disputed,
    /// because a service may leave a subtype.
    pub(crate) fn end_dispute(
        &mut self,
        key: &Key,
        target: &Name,
        is_subtype: bool,
        now: Duration,
    ) {
        if let Some(entry) = self.pointer_mut(key, target)
            && entry.is_disputed
            && !(is_subtype && entry.is_ended)
        {
            entry.renew(now);
            let due = entry.due();
            self.look_at(due);
        }
    }

    /// Gives the records of a service their whole lifetimes, because a pointer leads to it now.
    pub(crate) fn adopt(&mut self, link: u32, name: &Name) {
        self.each_of(link, name, &[Kind::Srv, Kind::Txt], Entry::adopt);
    }

    /// Records that a question was sent that [`Cache::turn`] planned, or that a goodbye caused.
    pub(crate) fn asked(&mut self, link: u32, name: &Name, kind: Kind, now: Duration) {
        self.each_of(link, name, &[kind], |entry| entry.asked(now));
    }

    fn each_of(&mut self, link: u32, name: &Name, kinds: &[Kind], mut f: impl FnMut(&mut Entry)) {
        for kind in kinds {
            let key = Key {
                link,
                name: name.clone(),
                kind: *kind,
            };
            for entry in self
                .sets
                .get_mut(&key)
                .into_iter()
                .flat_map(BTreeMap::values_mut)
            {
                f(entry);
                let due = entry.due();
                self.due = Some(self.due.map_or(due, |at| at.min(due)));
            }
        }
    }

    fn pointer_mut(&mut self, key: &Key, target: &Name) -> Option<&mut Entry> {
        self.sets.get_mut(key)?.get_mut(&Data::Ptr(target.clone()))
    }

    /// Drops all records of a name and type.
    pub(crate) fn drop_set(&mut self, link: u32, name: &Name, kind: Kind) {
        let key = Key {
            link,
            name: name.clone(),
            kind,
        };
        self.drop_key(&key);
    }

    fn drop_key(&mut self, key: &Key) {
        for (data, entry) in self.sets.remove(key).into_iter().flatten() {
            self.budget.count_out(key, &data, &entry);
        }
    }

    /// Drops the records that are not wanted.
    pub(crate) fn retain(&mut self, is_wanted: impl Fn(&Key) -> bool) {
        let keys: Vec<Key> = self
            .sets
            .keys()
            .filter(|k| !is_wanted(k))
            .cloned()
            .collect();
        keys.iter().for_each(|key| self.drop_key(key));
    }

    /// Removes the expired records, and returns those to be asked for again: `use_of` decides for each.
    pub(crate) fn turn(&mut self, now: Duration, use_of: impl Fn(&Key) -> Use) -> Due {
        let is_used = |key: &Key| use_of(key) == Use::Used;
        let mut done = Due::default();
        if self.due.is_none_or(|due| due > now) {
            return done;
        }
        self.due = None;
        let mut next: Option<Duration> = None;
        let is_along = self
            .sets
            .iter()
            .any(|(key, set)| set.values().any(|entry| entry.is_due(now)) && is_used(key));
        for (key, set) in &mut self.sets {
            for (data, entry) in &mut *set {
                let is_pointer = key.kind == Kind::Ptr && !entry.is_disputed;
                if entry.due() <= now && use_of(key) == Use::Waits {
                    entry.wait(now);
                }
                if entry.expires > now {
                    // The record has not expired.
                } else if is_used(key) && entry.ask_overdue(now) {
                    done.refresh.push((key.clone(), data.clone(), entry.source));
                } else if is_pointer && (entry.is_ended || entry.is_unanswered()) {
                    entry.mark_disputed(now);
                    done.lost.push((key.clone(), data.clone()));
                } else {
                    done.expired
                        .push((key.clone(), data.clone(), entry.clone()));
                    continue;
                }
                let is_due = if is_along {
                    entry.is_due_along(now)
                } else {
                    entry.is_due(now)
                };
                match is_due.then(|| use_of(key)) {
                    None | Some(Use::Waits) => {}
                    Some(Use::Used) if !entry.is_disputed => {
                        done.refresh.push((key.clone(), data.clone(), entry.source));
                        entry.refreshed(now);
                    }
                    Some(Use::Used | Use::Unused) => entry.refresh_at = None,
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
            self.budget.count_out(key, data, entry);
        }
        self.due = next;
        done
    }
}

/// The use of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Unused,
    Used,
    /// A question for it is waiting to be sent. Until then no time passes for it.
    Waits,
}

/// The records that are due.
#[derive(Debug, Default)]
pub(crate) struct Due {
    pub expired: Vec<(Key, Data, Entry)>,
    /// Pointers that were withdrawn, or whose refresh questions had no answer. They are disputed from now on.
    pub lost: Vec<(Key, Data)>,
    /// The records to ask for, with their sources.
    pub refresh: Vec<(Key, Data, IpAddr)>,
}

#[cfg(test)]
mod tests;
