//! Decides which of two views of an object is the newer one: what its watch shows, or what the API server has answered to
//! a write. So the controller reads its own writes, and a watch that is behind does not undo them.
use super::world::{BrokerJob, BrokerPod, OwnedService, OwnedSlice};
use crate::{
    cluster::changes::{Change, version_of},
    model::names::Key,
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::Resource;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// A list may be older than an answer. If it is, the watch that follows it shows the object long before this time.
const SHOWS_WITHIN: Duration = Duration::from_secs(30);

/// The source of an object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin {
    Watch,
    Answer,
}

/// An object as it was before a change and as it is now.
pub(crate) type Turned<T> = [Option<T>; 2];

/// The objects of one kind that were written, and how far their watch has come.
#[derive(Debug)]
pub(crate) struct Shown<Name> {
    /// The newest version that the watch has shown of each namespace.
    newest: BTreeMap<String, u64>,
    /// The answers that the watch has not shown yet.
    answers: BTreeMap<Key<Name>, Answered>,
    /// The uids of objects that were deleted, as long as the watch shows them without a sign of it.
    deleted: BTreeSet<String>,
}

#[derive(Debug)]
struct Answered {
    version: u64,
    /// True if the watch shows an object of this name.
    is_shown: bool,
    /// True if the watch has listed all its objects since.
    is_listed: bool,
    /// The time until which it is kept. `None` as long as the watch can be behind: it may be silent for hours.
    until: Option<Instant>,
}

/// An object that the controller writes.
pub(crate) trait Versioned: Clone {
    fn version(&self) -> u64;
    fn uid(&self) -> &str;
    /// Marks an object as one that is being deleted.
    fn mark_deleted(&mut self);
}

impl<Name> Default for Shown<Name> {
    fn default() -> Self {
        Self {
            newest: BTreeMap::new(),
            answers: BTreeMap::new(),
            deleted: BTreeSet::new(),
        }
    }
}

impl<Name: Ord + Clone> Shown<Name> {
    /// Puts a changed object among the others. Returns `None` if this is no change.
    pub(crate) fn take<T: Versioned>(
        &mut self,
        objects: &mut BTreeMap<Key<Name>, Arc<T>>,
        mut change: Change<T, Name>,
        origin: Origin,
    ) -> Option<Turned<Arc<T>>> {
        let known = objects.get(&change.key);
        let known_version = known.map(|known| known.version());
        let is_newer = match origin {
            Origin::Watch => self.shows(&change),
            Origin::Answer => {
                self.is_answer_newer(&change.key, change.version, known_version)
                    && self.note(&change, known.is_some())
            }
        };
        let is_versioned = change.object.is_some() && change.version > 0;
        if !is_newer || is_versioned && known_version == Some(change.version) {
            return None;
        }
        if let Some(object) = &mut change.object {
            self.mark(object);
        }
        let before = match &change.object {
            Some(object) => objects.insert(change.key, object.clone()),
            None => objects.remove(&change.key),
        };
        let is_same =
            |object: &Arc<T>| (change.object.as_ref()).is_some_and(|now| now.uid() == object.uid());
        if let Some(gone) = before.as_ref().filter(|before| !is_same(before)) {
            self.deleted.remove(gone.uid());
        }
        (before.is_some() || change.object.is_some()).then_some([before, change.object])
    }

    /// Returns whether what the watch shows is newer than every answer.
    fn shows<T>(&mut self, change: &Change<T, Name>) -> bool {
        let (key, version) = (&change.key, change.version);
        if let Some(newest) = self.newest.get_mut(&key.namespace) {
            *newest = version.max(*newest);
        } else {
            self.newest.insert(key.namespace.clone(), version);
        }
        match self.answers.get_mut(key) {
            Some(answer) if version < answer.version => {
                answer.is_shown = change.object.is_some();
                false
            }
            Some(_) => {
                self.answers.remove(key);
                true
            }
            None => true,
        }
    }

    /// Returns whether an answer is newer than what the watch has shown. An object that the watch does not show any more
    /// was deleted after the write.
    fn is_answer_newer(&self, key: &Key<Name>, version: u64, known: Option<u64>) -> bool {
        let newest = self.newest.get(&key.namespace).copied();
        version > known.or(newest).unwrap_or(0)
    }

    fn note<T>(&mut self, change: &Change<T, Name>, is_known: bool) -> bool {
        let before = self.answers.get(&change.key);
        let answer = Answered {
            version: change.version,
            is_shown: before.map_or(is_known, |before| before.is_shown),
            is_listed: false,
            until: None,
        };
        self.answers.insert(change.key.clone(), answer);
        true
    }

    /// Marks an object that was deleted and is shown as it was before.
    fn mark<T: Versioned>(&mut self, object: &mut Arc<T>) {
        if !self.deleted.contains(object.uid()) {
            return;
        }
        Arc::make_mut(object).mark_deleted();
    }

    /// Records that the object with this uid was deleted.
    pub(crate) fn deleted<T: Versioned>(&mut self, object: &mut Arc<T>) {
        self.deleted.insert(object.uid().to_owned());
        self.mark(object);
    }

    /// Records that the watch has listed all its objects, of one namespace or of all.
    pub(crate) fn listed(&mut self, namespace: Option<&str>) {
        let is_in = |key: &Key<Name>| namespace.is_none_or(|namespace| key.namespace == namespace);
        let answers = self.answers.iter_mut().filter(|(key, _)| is_in(key));
        answers.for_each(|(_, answer)| answer.is_listed = true);
    }

    /// Returns the end of each object that was answered, and that a list does not have, nor what has come after it.
    pub(crate) fn overdue<T>(&mut self, now: Instant) -> Vec<Change<T, Name>> {
        let newest = &self.newest;
        let is_due = |key: &Key<Name>, answer: &mut Answered| {
            let is_passed = (newest.get(&key.namespace)).is_some_and(|seen| *seen > answer.version);
            if is_passed || answer.is_listed {
                answer.until.get_or_insert(now + SHOWS_WITHIN);
            }
            answer.until.is_some_and(|until| until <= now)
        };
        let overdue: Vec<_> = self.answers.extract_if(.., is_due).collect();
        let gone = overdue.into_iter().filter(|(_, answer)| !answer.is_shown);
        gone.map(|(key, _)| Change {
            key,
            object: None,
            version: 0,
        })
        .collect()
    }

    /// Returns the time at which the next one is overdue.
    pub(crate) fn first_due(&self) -> Option<Instant> {
        let answers = self.answers.values();
        answers.filter_map(|answer| answer.until).min()
    }
}

impl<K: Resource + Clone> Versioned for K {
    fn version(&self) -> u64 {
        version_of(self.meta())
    }

    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    fn mark_deleted(&mut self) {
        let time = &mut self.meta_mut().deletion_timestamp;
        // Nobody reads the time, which only the API server knows.
        time.get_or_insert(Time(Timestamp::UNIX_EPOCH));
    }
}

/// An object of which its [`Meta`](super::world::Meta) is kept.
macro_rules! reduced {
    ($kind:ident) => {
        impl Versioned for $kind {
            fn version(&self) -> u64 {
                self.meta.version
            }

            fn uid(&self) -> &str {
                &self.meta.uid
            }

            fn mark_deleted(&mut self) {
                self.meta.is_deleting = true;
            }
        }
    };
}

reduced!(BrokerPod);
reduced!(BrokerJob);
reduced!(OwnedService);
reduced!(OwnedSlice);

#[cfg(test)]
mod tests;
