//! Follows the objects that a watch selects, change by change. After a list that begins anew it says which objects are
//! gone. During outages of the server nothing is said: the last known objects stay.
pub use super::keys::version_of;
use super::{
    keys::key_of,
    read::Read,
    watch::{Selection, events},
};
use futures::{StreamExt as _, stream::select_all};
use kube::{Api, Resource, runtime::watcher::Event};
use petiole_model::model::names::Key;
use serde::de::DeserializeOwned;
use std::{collections::BTreeSet, fmt::Debug, marker::PhantomData, sync::Arc};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// An object as a watch has shown it, or as the API server has answered.
#[derive(Debug)]
pub struct Change<T, Name = String> {
    pub key: Key<Name>,
    /// `None` if the object is gone, or cannot be read.
    pub object: Option<Arc<T>>,
    /// The version of the object; 0 if it is not known, as of an object that a list does not have any more.
    pub version: u64,
}

/// Says that a watch has listed all its objects anew: the changes before it name those that are gone.
#[derive(Debug)]
pub struct Listed<T> {
    /// `None` if the watch is of all namespaces.
    pub namespace: Option<String>,
    of: PhantomData<T>,
}

impl<T> Listed<T> {
    pub const fn new(namespace: Option<String>) -> Self {
        Self {
            namespace,
            of: PhantomData,
        }
    }
}

/// The keys of the objects of one `Api`.
struct Listing<T, Name> {
    known: BTreeSet<Key<Name>>,
    /// The objects of a list that is not complete.
    next: Vec<Change<T, Name>>,
    is_complete: bool,
}

impl<T, Name: From<String> + Clone + Ord> Listing<T, Name> {
    fn follow<K: Resource>(
        &mut self,
        event: Event<Read<K>>,
        reduce: &impl Fn(K) -> T,
        changes: &mut Vec<Change<T, Name>>,
    ) {
        match event {
            Event::Init => self.next.clear(),
            Event::InitApply(object) => self.next.push(shown(object, reduce)),
            Event::InitDone => {
                let next = std::mem::take(&mut self.next);
                let there = next.iter().filter(|change| change.object.is_some());
                let there = there.map(|change| change.key.clone()).collect();
                let before = std::mem::replace(&mut self.known, there);
                let gone = before.into_iter().filter(|key| !self.known.contains(key));
                changes.extend(gone.map(|key| Change {
                    key,
                    object: None,
                    version: 0,
                }));
                changes.extend(next);
                self.is_complete = true;
            }
            Event::Apply(object) => {
                let change = shown(object, reduce);
                match change.object {
                    Some(_) => self.known.insert(change.key.clone()),
                    None => self.known.remove(&change.key),
                };
                changes.push(change);
            }
            Event::Delete(object) => {
                let key = key_of(object.meta()).typed();
                self.known.remove(&key);
                changes.push(Change {
                    key,
                    object: None,
                    version: version_of(object.meta()),
                });
            }
        }
    }
}

fn shown<K: Resource, T, Name: From<String>>(
    object: Read<K>,
    reduce: &impl Fn(K) -> T,
) -> Change<T, Name> {
    Change {
        key: key_of(object.meta()).typed(),
        version: version_of(object.meta()),
        object: object.0.ok().map(|object| Arc::new(reduce(object))),
    }
}

/// Sends the changes of the objects of all `apis`, in batches, until `shutdown`. The first batch is the complete list of
/// all of them, also if there is none; each later list is followed by a [`Listed`]. `reduce` drops the parts of an object that are
/// not used, to save memory.
pub async fn follow<K, T, Name, C>(
    apis: Vec<Api<Read<K>>>,
    selection: Selection,
    reduce: impl Fn(K) -> T,
    changes: mpsc::Sender<C>,
    shutdown: CancellationToken,
) -> anyhow::Result<()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Default + Clone,
    Name: From<String> + Clone + Ord,
    C: From<Vec<Change<T, Name>>> + From<Listed<T>> + Send + Sync + 'static,
{
    let namespaces: Vec<_> = (apis.iter())
        .map(|api| api.namespace().map(str::to_owned))
        .collect();
    let mut listings: Vec<_> = (apis.iter().map(|_| Listing {
        known: BTreeSet::new(),
        next: vec![],
        is_complete: false,
    }))
    .collect();
    let streams = apis.into_iter().enumerate().map(|(n, api)| {
        let events = events(api, selection.clone());
        Box::pin(events.map(move |batch| (n, batch)))
    });
    let mut streams = select_all(streams);
    let mut batch = vec![];
    let mut has_listed = false;
    while let Some(Some((n, events))) = shutdown.run_until_cancelled(streams.next()).await {
        let mut listed = None;
        for event in events.into_iter().flatten() {
            if has_listed && matches!(event, Event::InitDone) {
                listed = Some(Listed::new(namespaces[n].clone()));
            }
            listings[n].follow(event, &reduce, &mut batch);
        }
        let is_first = !has_listed && listings.iter().all(|listing| listing.is_complete);
        has_listed |= is_first;
        if is_first || has_listed && !batch.is_empty() {
            let batch = std::mem::take(&mut batch);
            if changes.send(batch.into()).await.is_err() {
                break;
            }
        }
        if let Some(listed) = listed
            && changes.send(listed.into()).await.is_err()
        {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::{ObjectMeta, error_boundary::InvalidObject};

    fn object(name: &str, version: &str) -> Read<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object.metadata.resource_version = Some(version.to_owned());
        Read(Ok(object))
    }

    fn unreadable(name: &str) -> Read<ConfigMap> {
        let mut invalid = InvalidObject {
            error: "spec is missing".to_owned(),
            metadata: ObjectMeta::default(),
        };
        invalid.metadata.name = Some(name.to_owned());
        Read(Err(invalid))
    }

    /// Returns each change after these events: the name, whether the object is there, and its version.
    fn after(events: Vec<Event<Read<ConfigMap>>>) -> Vec<(String, bool, u64)> {
        let mut listing = Listing::<_, String> {
            known: BTreeSet::new(),
            next: vec![],
            is_complete: false,
        };
        let mut changes = vec![];
        for event in events {
            listing.follow(event, &drop, &mut changes);
        }
        let changes = changes.into_iter();
        changes
            .map(|change| (change.key.name, change.object.is_some(), change.version))
            .collect()
    }

    fn listed(objects: Vec<Read<ConfigMap>>) -> Vec<Event<Read<ConfigMap>>> {
        let objects = objects.into_iter().map(Event::InitApply);
        let all = [Event::Init].into_iter().chain(objects);
        all.chain([Event::InitDone]).collect()
    }

    fn change(name: &str, is_there: bool, version: u64) -> (String, bool, u64) {
        (name.to_owned(), is_there, version)
    }

    #[test]
    fn a_list_that_is_complete_names_what_is_gone_and_one_that_is_not_says_nothing() {
        let mut events = listed(vec![object("gone", "1"), object("stays", "2")]);
        events.extend([Event::Init, Event::InitApply(object("stays", "2"))]);
        let first = [change("gone", true, 1), change("stays", true, 2)];
        assert_eq!(after(events.clone()), first);
        events.push(Event::InitDone);
        let second = [change("gone", false, 0), change("stays", true, 2)];
        assert_eq!(after(events), [first, second].concat());
    }

    #[test]
    fn an_object_that_cannot_be_read_is_gone_until_it_can_be_read_again() {
        let mut events = listed(vec![object("one", "1")]);
        events.push(Event::Apply(unreadable("one")));
        events.push(Event::Apply(object("one", "3")));
        events.push(Event::Delete(object("one", "4")));
        let expected = [
            change("one", true, 1),
            change("one", false, 0),
            change("one", true, 3),
            change("one", false, 4),
        ];
        assert_eq!(after(events), expected);
    }
}
