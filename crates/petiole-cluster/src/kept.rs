//! Sets of objects by the events of their watches, with their sizes, and those that there is no room for.
use super::{
    keys::{key_of, version_of},
    read::Read,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Resource, core::ObjectMeta, runtime::watcher::Event};
use petiole_model::model::{
    budget::{Claim, Room},
    names::{Key, ObjectKey},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The last known objects of one kind, each reduced to the fields that are used. `Name` is the type of their names.
#[derive(Debug)]
pub struct Objects<T, Name = String> {
    pub objects: BTreeMap<Key<Name>, Arc<T>>,
    /// Objects that failed to deserialize, with the error.
    pub unreadable: BTreeMap<Key<Name>, String>,
    /// Objects that are not kept, because there is no room for all.
    pub left_out: BTreeSet<Key<Name>>,
    /// The number of complete lists until now.
    pub lists: usize,
    /// The newest version of each namespace, also of what was deleted since the last list.
    pub newest: BTreeMap<String, u64>,
}

impl<T, Name: Clone> Clone for Objects<T, Name> {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            unreadable: self.unreadable.clone(),
            left_out: self.left_out.clone(),
            lists: self.lists,
            newest: self.newest.clone(),
        }
    }
}

impl<T, Name> Default for Objects<T, Name> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            left_out: BTreeSet::new(),
            lists: 0,
            newest: BTreeMap::new(),
        }
    }
}

/// A watched set; `None` until the first complete list.
pub type Set<T, Name = String> = Option<Arc<Objects<T, Name>>>;

/// Returns the object of that name in a set of objects that are in no namespace.
pub fn named<T>(set: &Set<T>, name: &str) -> Option<Arc<T>> {
    let object = set.as_ref()?.objects.get(&ObjectKey::new("", name));
    object.cloned()
}

/// The set of one `Api`, and the new list that will replace it after a relist.
pub(super) struct Listing<T, Name> {
    pub(super) current: Kept<T, Name>,
    next: Kept<T, Name>,
    /// The number of complete lists that were received.
    pub(super) lists: usize,
}

impl<T, Name> Default for Listing<T, Name> {
    fn default() -> Self {
        Self {
            current: Kept::default(),
            next: Kept::default(),
            lists: 0,
        }
    }
}

impl<T, Name: From<String> + Clone + Ord> Listing<T, Name> {
    pub(super) fn joined(listings: &[Self]) -> Objects<T, Name> {
        let mut all = Objects::default();
        for Self { current, lists, .. } in listings {
            all.lists += lists;
            all.objects.extend(current.objects.clone());
            all.unreadable.extend(current.unreadable.clone());
            all.newest.extend(current.newest.clone());
            let left_out = current.sizes.keys();
            (all.left_out).extend(
                left_out
                    .filter(|key| !current.objects.contains_key(key))
                    .cloned(),
            );
        }
        all
    }

    /// Applies one event. Returns whether the current set has changed.
    pub(super) fn follow<K: Resource>(
        &mut self,
        event: Event<Read<K>>,
        reduce: impl Fn(K) -> (T, usize),
        room: Option<Room>,
    ) -> bool {
        match event {
            Event::Init => self.next = Kept::default(),
            Event::InitApply(object) => {
                self.next.insert(object, reduce);
                // A list may be larger than the memory. It is trimmed now and then, as that takes longer than to insert.
                if room.is_some_and(|room| self.next.exceeds_twice(room)) {
                    trim([&mut self.next].into_iter(), room);
                }
            }
            Event::InitDone => {
                self.current = std::mem::take(&mut self.next);
                self.lists += 1;
                return true;
            }
            Event::Apply(object) => {
                self.current.insert(object, reduce);
                return true;
            }
            Event::Delete(object) => {
                self.current.note(object.meta());
                self.current.remove(&key_of(object.meta()).typed());
                return true;
            }
        }
        false
    }
}

#[derive(Debug)]
pub(super) struct Kept<T, Name> {
    pub(super) objects: BTreeMap<Key<Name>, Arc<T>>,
    /// Objects that failed to deserialize, with the error.
    pub(super) unreadable: BTreeMap<Key<Name>, String>,
    /// All objects that can be read, also those that are not kept.
    pub(super) sizes: BTreeMap<Key<Name>, Size>,
    bytes: usize,
    /// The newest version of each namespace.
    newest: BTreeMap<String, u64>,
}

#[derive(Debug)]
pub(super) struct Size {
    created: Option<Time>,
    bytes: usize,
}

impl<T, Name> Default for Kept<T, Name> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            sizes: BTreeMap::new(),
            bytes: 0,
            newest: BTreeMap::new(),
        }
    }
}

impl<T, Name: From<String> + Clone + Ord> Kept<T, Name> {
    pub(super) fn insert<K: Resource>(
        &mut self,
        object: Read<K>,
        reduce: impl Fn(K) -> (T, usize),
    ) {
        let key: Key<Name> = key_of(object.meta()).typed();
        self.note(object.meta());
        self.remove(&key);
        match object.0 {
            Ok(object) => {
                let created = object.meta().creation_timestamp.clone();
                let (object, bytes) = reduce(object);
                self.bytes += bytes;
                self.sizes.insert(key.clone(), Size { created, bytes });
                self.objects.insert(key, Arc::new(object));
            }
            Err(invalid) => drop(self.unreadable.insert(key, invalid.error)),
        }
    }

    fn note(&mut self, metadata: &ObjectMeta) {
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let newest = self.newest.entry(namespace).or_default();
        *newest = version_of(metadata).max(*newest);
    }

    pub(super) fn remove(&mut self, key: &Key<Name>) {
        self.unreadable.remove(key);
        let size = self.sizes.remove(key);
        if self.objects.remove(key).is_some() {
            self.bytes -= size.map_or(0, |size| size.bytes);
        }
    }

    pub(super) fn exceeds_twice(&self, room: Room) -> bool {
        self.bytes / 2 > room.bytes || self.objects.len() / 2 > room.count
    }

    fn keep(&mut self, kept: &BTreeSet<Key<Name>>) {
        self.objects.retain(|key, _| kept.contains(key));
        let sizes = self.objects.keys().filter_map(|key| self.sizes.get(key));
        self.bytes = sizes.map(|size| size.bytes).sum();
    }
}

/// Forgets the objects that there is no room for. Returns whether there is room for one that was forgotten.
pub(super) fn trim<'a, T: 'a, Name: From<String> + Clone + Ord + 'a>(
    listings: impl Iterator<Item = &'a mut Kept<T, Name>>,
    room: Option<Room>,
) -> bool {
    let Some(room) = room else { return false };
    let mut listings: Vec<_> = listings.collect();
    let claims = listings.iter().flat_map(|listing| &listing.sizes);
    let claims = claims.map(|(key, size)| Claim {
        key,
        namespace: &key.namespace,
        since: &size.created,
        bytes: size.bytes,
    });
    let kept: Option<BTreeSet<Key<Name>>> =
        (room.kept(claims.collect())).map(|kept| kept.into_iter().cloned().collect());
    let mut has_room = false;
    for listing in &mut listings {
        let missing = |key: &&Key<Name>| !listing.objects.contains_key(key);
        has_room |= (listing.sizes.keys().filter(missing))
            .any(|key| kept.as_ref().is_none_or(|kept| kept.contains(key)));
        if let Some(kept) = &kept {
            listing.keep(kept);
        }
    }
    has_room
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::error_boundary::InvalidObject;

    fn readable(name: &str, label: &str) -> Read<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object.immutable = Some(label == "b");
        Read(Ok(object))
    }

    fn unreadable(name: &str) -> Read<ConfigMap> {
        let mut invalid = InvalidObject {
            error: "spec is missing".to_owned(),
            metadata: Default::default(),
        };
        invalid.metadata.name = Some(name.to_owned());
        Read(Err(invalid))
    }

    fn after(events: Vec<Event<Read<ConfigMap>>>) -> (Vec<(String, bool)>, Vec<String>) {
        let mut listing = Listing::<_, String>::default();
        for event in events {
            listing.follow(event, |object| (object.immutable == Some(true), 0), None);
        }
        let current = listing.current;
        let objects = current.objects.into_iter();
        (
            objects.map(|(key, value)| (key.name, *value)).collect(),
            current.unreadable.into_keys().map(|key| key.name).collect(),
        )
    }

    #[test]
    fn a_set_is_replaced_when_its_successor_is_complete_and_not_before() {
        let mut events = vec![
            Event::Init,
            Event::InitApply(readable("gone", "a")),
            Event::InitDone,
            Event::Init,
            Event::InitApply(readable("new", "a")),
        ];
        assert_eq!(after(events.clone()).0, [("gone".to_owned(), false)]);
        events.push(Event::InitDone);
        assert_eq!(after(events).0, [("new".to_owned(), false)]);
    }

    #[test]
    fn an_object_that_cannot_be_read_is_named_and_the_others_go_on() {
        let listed = vec![
            Event::Init,
            Event::InitApply(unreadable("bad")),
            Event::InitApply(readable("good", "a")),
            Event::InitDone,
            Event::Apply(readable("good", "b")),
        ];
        let expected = (vec![("good".to_owned(), true)], vec!["bad".to_owned()]);
        assert_eq!(after(listed.clone()), expected);
        let mended = [listed, vec![Event::Apply(readable("bad", "a"))]].concat();
        assert_eq!(after(mended).1, [""; 0]);
    }

    #[test]
    fn a_set_says_how_far_its_watch_has_come_until_a_list_begins_anew() {
        let object = |name: &str, version: u32| {
            let Read(mut object) = readable(name, "a");
            let metadata = &mut object.as_mut().unwrap().metadata;
            metadata.namespace = Some("default".to_owned());
            metadata.resource_version = Some(version.to_string());
            Read(object)
        };
        let mut listing = Listing::<_, String>::default();
        let mut newest_after = |event| {
            listing.follow(event, |_: ConfigMap| ((), 0), None);
            let all = Listing::joined(std::slice::from_ref(&listing));
            all.newest.get("default").copied()
        };
        assert_eq!(newest_after(Event::Apply(object("one", 3))), Some(3));
        assert_eq!(newest_after(Event::Delete(object("one", 7))), Some(7));
        assert_eq!(newest_after(Event::Apply(object("two", 5))), Some(7));
        newest_after(Event::Init);
        newest_after(Event::InitApply(object("two", 5)));
        assert_eq!(newest_after(Event::InitDone), Some(5));
    }

    fn object(namespace: &str, name: &str) -> Read<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some(namespace.to_owned());
        object.metadata.name = Some(name.to_owned());
        Read(Ok(object))
    }

    fn names(kept: &Kept<(), String>) -> Vec<&str> {
        kept.objects.keys().map(|key| key.name.as_str()).collect()
    }

    #[test]
    fn objects_beyond_the_room_are_forgotten_and_read_again_once_there_is_room() {
        let room = Room {
            count: 10,
            bytes: 100,
        };
        let mut kept: Kept<(), String> = Kept::default();
        let trimmed = |kept: &mut Kept<(), String>| trim([kept].into_iter(), Some(room));
        for name in ["a", "b", "c", "d"] {
            kept.insert(object("full", name), |_| ((), 40));
        }
        assert!(!trimmed(&mut kept));
        assert_eq!(names(&kept), ["a", "b"]);
        kept.insert(object("other", "z"), |_| ((), 40));
        assert!(!trimmed(&mut kept));
        assert_eq!(names(&kept), ["a", "z"], "the namespace with the most");
        kept.remove(&Key::new("full", "a".to_owned()));
        assert!(trimmed(&mut kept), "b fits now");
        kept.insert(object("full", "b"), |_| ((), 40));
        assert!(!trimmed(&mut kept));
        assert_eq!(names(&kept), ["b", "z"]);
    }
}
