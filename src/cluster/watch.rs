//! Keeps whole sets of objects up to date. During relists, expired versions and outages of the server the last known
//! set stays.
pub use super::read::Read;
use super::{
    keys::key_of,
    requests::{code, reason},
};
use crate::{
    backoff,
    model::names::{Key, ObjectKey},
};
use futures::{Stream, StreamExt as _, future::ready, stream::select_all};
use kube::{
    Api, Client, Resource,
    core::NamespaceResourceScope,
    runtime::{
        WatchStreamExt as _,
        utils::Backoff,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// The first wait after a failure. A server that restarts is found again soon.
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(3);
/// The time after which a failure counts as a new one, and the waits start over.
const RESET_AFTER: Duration = Duration::from_secs(30);
/// The most events that are processed together. They lead to one new set.
const BATCH: usize = 512;

/// The last known objects of one kind, each reduced to the fields that are used. `Name` is the type of their names.
#[derive(Debug)]
pub struct Objects<T, Name = String> {
    pub objects: BTreeMap<Key<Name>, Arc<T>>,
    /// Objects that failed to deserialize, with the error.
    pub unreadable: BTreeMap<Key<Name>, String>,
}

impl<T, Name: Clone> Clone for Objects<T, Name> {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            unreadable: self.unreadable.clone(),
        }
    }
}

impl<T, Name> Default for Objects<T, Name> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            unreadable: BTreeMap::new(),
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

/// Returns the events of a watch in batches, without end. The first list comes as events of the watch where the server can
/// do that (KEP-3157), because it costs the server a fraction of the memory, and otherwise in pages. Errors are logged
/// here, and they are part of the stream for callers that must know about outages.
pub fn events<K>(
    api: Api<Read<K>>,
    selection: Selection,
) -> impl Stream<Item = Vec<watcher::Result<Event<Read<K>>>>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Default + Clone,
{
    let Selection {
        what,
        config,
        is_optional,
    } = selection;
    let mut is_away = false;
    let paged = watcher(api.clone(), config.clone());
    watcher(api, config.streaming_lists())
        .take_while(|event| ready(!is_streaming_refused(event)))
        .chain(paged)
        .backoff(Retry::default())
        .inspect(move |event| match event {
            Err(e) if is_optional => debug!(what, "cannot watch these objects: {}", why(e)),
            Err(e) if !is_away => {
                is_away = true;
                warn!(
                    what,
                    "cannot watch these objects; the last known ones stay in use: {}",
                    why(e)
                );
            }
            // The list is not complete yet and may still fail.
            Err(_) | Ok(Event::Init | Event::InitApply(_)) => {}
            Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) if is_away => {
                is_away = false;
                info!(what, "these objects are watched again");
            }
            Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => {}
        })
        .ready_chunks(BATCH)
}

/// Returns whether the server refuses to send lists over watches.
fn is_streaming_refused<T>(event: &watcher::Result<T>) -> bool {
    match event {
        Err(watcher::Error::WatchStartFailed(e)) => {
            code(e) == Some(422) && reason(e).contains("sendInitialEvents")
        }
        _ => false,
    }
}

/// Returns one `Api` for each namespace, or one for all namespaces if `namespaces` is empty.
pub fn apis<K>(client: &Client, namespaces: &[String]) -> Vec<Api<Read<K>>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespaces {
        [] => vec![Api::all(client.clone())],
        some => (some.iter())
            .map(|namespace| Api::namespaced(client.clone(), namespace))
            .collect(),
    }
}

/// The objects that a watch selects.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The word for the objects in the log.
    pub what: &'static str,
    pub config: watcher::Config,
    /// True if the caller goes on without a watch. Outages are then no warnings.
    is_optional: bool,
}

impl Selection {
    pub fn new(what: &'static str, config: watcher::Config) -> Self {
        Self {
            what,
            config,
            is_optional: false,
        }
    }

    /// Returns the same for a caller that goes on without a watch.
    #[must_use]
    pub fn optional(self) -> Self {
        Self {
            is_optional: true,
            ..self
        }
    }
}

/// Publishes the union of all `apis` to `set` at each change, until `shutdown`. `reduce` drops the parts of an object
/// that are not used, to save memory.
pub async fn run<K, T, Name>(
    apis: Vec<Api<Read<K>>>,
    selection: Selection,
    reduce: impl Fn(K) -> T,
    set: watch::Sender<Set<T, Name>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Default + Clone,
    Name: From<String> + Clone + Ord,
{
    let mut listings: Vec<Listing<T, Name>> = apis.iter().map(|_| Listing::default()).collect();
    let streams = apis.into_iter().enumerate().map(|(n, api)| {
        let events = events(api, selection.clone());
        Box::pin(events.map(move |batch| (n, batch)))
    });
    let mut streams = select_all(streams);
    while let Some((n, batch)) = shutdown.run_until_cancelled(streams.next()).await.flatten() {
        let mut is_changed = false;
        for event in batch.into_iter().flatten() {
            is_changed |= listings[n].follow(event, &reduce);
        }
        if is_changed && listings.iter().all(|listing| listing.is_complete) {
            set.send_replace(Some(Arc::new(Listing::joined(&listings))));
        }
    }
    Ok(())
}

/// The set of one `Api`, and the new list that will replace it after a relist.
struct Listing<T, Name> {
    current: Objects<T, Name>,
    next: Objects<T, Name>,
    /// True if a complete list was received.
    is_complete: bool,
}

impl<T, Name> Default for Listing<T, Name> {
    fn default() -> Self {
        Self {
            current: Objects::default(),
            next: Objects::default(),
            is_complete: false,
        }
    }
}

impl<T, Name: From<String> + Clone + Ord> Listing<T, Name> {
    fn joined(listings: &[Self]) -> Objects<T, Name> {
        let mut all = Objects::default();
        for Self { current, .. } in listings {
            all.objects.extend(current.objects.clone());
            all.unreadable.extend(current.unreadable.clone());
        }
        all
    }

    /// Applies one event. Returns whether the current set has changed.
    fn follow<K: Resource>(&mut self, event: Event<Read<K>>, reduce: impl Fn(K) -> T) -> bool {
        match event {
            Event::Init => self.next = Objects::default(),
            Event::InitApply(object) => insert(&mut self.next, object, reduce),
            Event::InitDone => {
                self.current = std::mem::take(&mut self.next);
                self.is_complete = true;
                return true;
            }
            Event::Apply(object) => {
                insert(&mut self.current, object, reduce);
                return true;
            }
            Event::Delete(object) => {
                let key = key_of(object.meta()).typed();
                self.current.objects.remove(&key);
                self.current.unreadable.remove(&key);
                return true;
            }
        }
        false
    }
}

fn insert<K, T, Name>(set: &mut Objects<T, Name>, object: Read<K>, reduce: impl Fn(K) -> T)
where
    K: Resource,
    Name: From<String> + Ord,
{
    let key = key_of(object.meta()).typed();
    match object.0 {
        Ok(object) => {
            set.unreadable.remove(&key);
            set.objects.insert(key, Arc::new(reduce(object)));
        }
        Err(invalid) => {
            set.objects.remove(&key);
            set.unreadable.insert(key, invalid.error);
        }
    }
}

fn why(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(e)
        | watcher::Error::WatchStartFailed(e)
        | watcher::Error::WatchFailed(e) => reason(e),
        watcher::Error::WatchError(status) => status.message.clone(),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

/// Adapts our back-off to kube's trait. kube asks for a reset after each event, even within a list that fails. Here the
/// waits start over only if the last failure is long ago.
struct Retry {
    backoff: backoff::Backoff,
    failed: Option<Instant>,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            backoff: backoff::Backoff::new(FIRST_RETRY, LONGEST_RETRY),
            failed: None,
        }
    }
}

impl Iterator for Retry {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if (self.failed.replace(now)).is_some_and(|failed| now - failed > RESET_AFTER) {
            self.backoff.reset();
        }
        Some(self.backoff.next_wait())
    }
}

impl Backoff for Retry {
    fn reset(&mut self) {}
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
            listing.follow(event, |object| object.immutable == Some(true));
        }
        let current = listing.current;
        let objects = current.objects.into_iter();
        (
            objects.map(|(key, value)| (key.name, *value)).collect(),
            current.unreadable.into_keys().map(|key| key.name).collect(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_fails_at_once_is_tried_less_and_less_often() {
        let mut retry = Retry::default();
        let mut wait = Duration::ZERO;
        for _ in 0..10 {
            retry.reset(); // the list began
            wait = retry.next().unwrap();
            tokio::time::advance(wait).await;
        }
        assert!(wait > LONGEST_RETRY / 2);
        tokio::time::advance(RESET_AFTER * 2).await;
        assert!(retry.next().unwrap() <= FIRST_RETRY);
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
}
