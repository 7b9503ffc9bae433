//! Holds the Instances of this node: from the watch, and from this node's last writes. Pure.
use super::plan::has_left;
use crate::{
    api::instance::Instance,
    model::instance_name::InstanceKey,
    store::{
        interface::{Instances, instance_key, without_fields},
        news::is_same_for,
    },
};
use std::{collections::BTreeMap, sync::Arc};

/// The most deletions that no watch has reported yet. There are never nearly as many at a time. Beyond it: the
/// oldest are forgotten.
const DELETED_MAX: usize = 10_000;
/// The number of lists after which a deletion is dropped: the second list certainly began after it.
const LISTS_WAITED_FOR: u8 = 2;

/// An event of a watch, of the Instances of one namespace or of all.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Init,
    Listed(Box<Instance>),
    Complete,
    Applied(Box<Instance>),
    /// An object that cannot be read as an Instance.
    Unreadable(InstanceKey),
    Deleted(Box<Instance>),
}

/// The most Instances that left a watch and are remembered. There are never nearly as many while one answer is
/// awaited. Beyond it: the oldest are forgotten.
const LEFT_MAX: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct KnownInstances {
    instances: BTreeMap<InstanceKey, Arc<Instance>>,
    /// The incomplete lists, by the namespace of the watch.
    listing: BTreeMap<Option<String>, BTreeMap<InstanceKey, Arc<Instance>>>,
    /// The Instances that were missing on the server, by uid. An earlier event may still arrive.
    deleted: BTreeMap<String, Deletion>,
    /// The answers that no watch has shown yet. What a watch has shown is replaced by what it shows next, whatever its version: the
    /// server may have been restored from a backup.
    answered: BTreeMap<InstanceKey, Answer>,
    /// The versions at which Instances left the watch, with their uids. An answer to an earlier request may still
    /// arrive, and no event would correct it.
    left: BTreeMap<u64, String>,
    /// The name of this node.
    node: String,
    /// True if more changed since the last publication than which slots other nodes hold.
    has_news: bool,
    /// True if a list has arrived, or the Instances of an earlier run are used instead.
    has_begun: bool,
}

#[derive(Debug)]
struct Deletion {
    namespace: String,
    /// The number of lists since the deletion. A list may replace the event of the deletion.
    lists: u8,
}

#[derive(Debug)]
struct Answer {
    version: u64,
    /// The number of lists since the answer.
    lists: u8,
}

impl KnownInstances {
    pub(crate) fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            ..Self::default()
        }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns whether more is to be published than which slots other nodes hold.
    pub(crate) fn has_news(&self) -> bool {
        self.has_news
    }

    /// Records a publication. Returns whether it says more than which slots other nodes hold.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Records that every watch has had its list.
    pub(crate) fn begin(&mut self) {
        self.has_news = true;
        self.has_begun = true;
    }

    /// Begins with the Instances of an earlier run, in the namespaces that have not been listed yet.
    pub(crate) fn begin_with(&mut self, earlier: Instances, is_listed: impl Fn(&str) -> bool) {
        for (key, instance) in earlier {
            if !is_listed(&key.namespace) {
                self.instances.entry(key).or_insert(instance);
            }
        }
        self.begin();
    }

    /// Takes over an event of the watch of `namespace`.
    pub(crate) fn follow(&mut self, namespace: &Option<String>, event: Event) {
        match event {
            Event::Init => {
                self.listing.insert(namespace.clone(), BTreeMap::new());
            }
            Event::Listed(instance) => {
                let instance = without_fields(*instance);
                let key = instance_key(&instance.metadata);
                // Two copies of all Instances would be most of an agent's memory.
                let instance = match self.instances.get(&key) {
                    Some(known) if **known == instance => known.clone(),
                    _ => Arc::new(instance),
                };
                self.listing
                    .entry(namespace.clone())
                    .or_default()
                    .insert(key, instance);
            }
            Event::Complete => self.complete(namespace),
            Event::Applied(instance) => self.take_shown(Arc::new(without_fields(*instance))),
            // The Instance stays as it was last, because nothing says that its device is gone.
            Event::Unreadable(key) => {
                if let (Some(listing), Some(known)) =
                    (self.listing.get_mut(namespace), self.instances.get(&key))
                {
                    listing.insert(key, known.clone());
                }
            }
            Event::Deleted(instance) => self.forget(&instance),
        }
    }

    fn complete(&mut self, namespace: &Option<String>) {
        self.has_news = true;
        let listed = self.listing.remove(namespace).unwrap_or_default();
        let is_listed =
            |key: &InstanceKey| namespace.as_ref().is_none_or(|ns| *ns == key.namespace);
        let before = std::mem::take(&mut self.instances);
        for (key, instance) in before {
            let is_behind = (listed.get(&key)).is_some_and(|listed| self.is_behind(&key, listed));
            if !is_listed(&key) || is_behind {
                self.instances.insert(key, instance);
            }
        }
        for instance in listed.into_values() {
            self.take_shown(instance);
        }
        self.answered.retain(|key, answer| {
            answer.lists += u8::from(is_listed(key));
            answer.lists < LISTS_WAITED_FOR
        });
        self.deleted.retain(|_, deletion| {
            let is_covered = namespace
                .as_ref()
                .is_none_or(|ns| *ns == deletion.namespace);
            deletion.lists += u8::from(is_covered);
            deletion.lists < LISTS_WAITED_FOR
        });
    }

    /// Records a write with the server's answer. No watch reports an Instance that this node has left: the event of
    /// leaving may have arrived before the answer, and so may one of joining it again.
    pub(crate) fn written(&mut self, instance: Instance) {
        if has_left(&instance, &self.node) {
            let key = instance_key(&instance.metadata);
            self.has_news |= remove_unless_newer(&mut self.instances, &key, &instance);
            for listing in self.listing.values_mut() {
                remove_unless_newer(listing, &key, &instance);
            }
        } else {
            self.read(instance);
        }
    }

    /// Takes over an Instance that was read again.
    pub(crate) fn read(&mut self, instance: Instance) {
        let instance = Arc::new(without_fields(instance));
        for listing in self.listing.values_mut() {
            // The Instance may have been listed before this write.
            listing.insert(instance_key(&instance.metadata), instance.clone());
        }
        self.take_answer(instance);
    }

    /// Records that an Instance is missing on the server. One that the watch has shown since is another one.
    pub(crate) fn deleted(&mut self, asked: &Instance) {
        let key = instance_key(&asked.metadata);
        let is_it = |known: &Arc<Instance>| known.metadata.uid == asked.metadata.uid;
        if self.instances.get(&key).is_some_and(is_it) {
            self.instances.remove(&key);
            self.note_deletion(&key, asked);
            self.has_news = true;
        }
        for listing in self.listing.values_mut() {
            if listing.get(&key).is_some_and(is_it) {
                listing.remove(&key);
            }
        }
    }

    fn note_deletion(&mut self, key: &InstanceKey, instance: &Instance) {
        let Some(uid) = instance.metadata.uid.clone() else {
            return;
        };
        if self.deleted.len() >= DELETED_MAX {
            self.deleted.pop_first();
        }
        let deletion = Deletion {
            namespace: key.namespace.clone(),
            lists: 0,
        };
        self.deleted.insert(uid, deletion);
    }

    /// Takes over the answer to a request, which the watch may have overtaken.
    fn take_answer(&mut self, instance: Arc<Instance>) {
        let key = instance_key(&instance.metadata);
        let known = self.instances.get(&key);
        let is_shown = known.and_then(|known| Some(version(known)? >= version(&instance)?));
        if is_shown == Some(true) || self.has_left_since(&instance) {
            return;
        }
        if let Some(version) = version(&instance) {
            self.answered
                .insert(key.clone(), Answer { version, lists: 0 });
        }
        self.take(key, instance);
    }

    /// Takes over what the watch shows, which may be older than an answer.
    fn take_shown(&mut self, instance: Arc<Instance>) {
        let key = instance_key(&instance.metadata);
        if !self.is_behind(&key, &instance) {
            self.answered.remove(&key);
            self.take(key, instance);
        }
    }

    fn is_behind(&self, key: &InstanceKey, shown: &Instance) -> bool {
        let answer = self.answered.get(key);
        answer.is_some_and(|answer| version(shown).is_some_and(|shown| shown < answer.version))
    }

    fn take(&mut self, key: InstanceKey, instance: Arc<Instance>) {
        if (instance.metadata.uid.as_ref()).is_some_and(|uid| self.deleted.contains_key(uid)) {
            return;
        }
        let before = self.instances.insert(key, instance.clone());
        let is_same = before.is_some_and(|before| is_same_for(&before, &instance, &self.node));
        self.has_news |= !is_same;
    }

    fn has_left_since(&self, instance: &Instance) -> bool {
        let later = version(instance).map(|version| self.left.range(version..));
        let mut later = later.into_iter().flatten();
        later.any(|(_, uid)| Some(uid) == instance.metadata.uid.as_ref())
    }

    fn forget(&mut self, gone: &Instance) {
        let key = instance_key(&gone.metadata);
        if let Some(uid) = &gone.metadata.uid {
            self.deleted.remove(uid);
            self.left
                .extend(version(gone).map(|version| (version, uid.clone())));
            if self.left.len() > LEFT_MAX {
                self.left.pop_first();
            }
        }
        self.has_news |= remove_unless_newer(&mut self.instances, &key, gone);
    }

    /// Returns an Instance as the server has it.
    pub(crate) fn stored(&self, key: &InstanceKey) -> Option<Arc<Instance>> {
        self.instances.get(key).cloned()
    }

    /// Returns all Instances as this node sees them: without those being deleted.
    pub(crate) fn published(&self) -> Instances {
        let is_there = |instance: &Arc<Instance>| instance.metadata.deletion_timestamp.is_none();
        (self.instances.iter())
            .filter(|(_, instance)| is_there(instance))
            .map(|(key, instance)| (key.clone(), instance.clone()))
            .collect()
    }
}

/// Returns the version of an Instance. Versions of one object are ordered as numbers (KEP-5504).
fn version(instance: &Instance) -> Option<u64> {
    let version = instance.metadata.resource_version.as_ref();
    version.and_then(|version| version.parse().ok())
}

/// Removes what this node has left, unless it has returned since by a later write. Returns whether it was there.
fn remove_unless_newer(
    known: &mut BTreeMap<InstanceKey, Arc<Instance>>,
    key: &InstanceKey,
    left: &Instance,
) -> bool {
    let is_newer = |known: &Arc<Instance>| version(known) > version(left);
    !known.get(key).is_some_and(is_newer) && known.remove(key).is_some()
}

#[cfg(test)]
mod tests;
