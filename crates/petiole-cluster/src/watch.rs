//! Keeps whole sets of objects up to date. During relists, expired versions and outages of the server the last known
//! set stays.
use super::{
    kept::{Listing, trim},
    requests::{code, reason},
};
pub use super::{
    kept::{Objects, Set, named},
    read::{Bounded, Read},
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
use petiole_base::backoff;
use petiole_model::model::budget::Room;
use serde::de::DeserializeOwned;
use std::{fmt::Debug, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// The first wait after a failure. A server that restarts is found again soon.
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(3);
/// The time after which a failure counts as a new one, and the waits start over.
const RESET_AFTER: Duration = Duration::from_secs(30);
/// The most events that are processed together. They lead to one new set.
const BATCH: usize = 512;
/// The same for objects that are as large as a user likes. The next constant is the number of them in one page of a list.
const SMALL_BATCH: usize = 16;
const SMALL_PAGE: u32 = 16;
/// The least time between two lists that are made because there is room again for objects that were left out.
const BETWEEN_LISTS: Duration = Duration::from_secs(10);

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
        room,
    } = selection;
    let batch = room.map_or(BATCH, |_| SMALL_BATCH);
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
        .ready_chunks(batch)
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
    /// The room for the objects; `None` if there are only as many as the cluster needs.
    room: Option<Room>,
}

impl Selection {
    pub fn new(what: &'static str, config: watcher::Config) -> Self {
        Self {
            what,
            config,
            is_optional: false,
            room: None,
        }
    }

    /// Returns the same with a room for the objects.
    #[must_use]
    pub fn within(mut self, room: Room) -> Self {
        // Where the server does not stream lists, a page is in memory at once.
        self.config = self.config.page_size(SMALL_PAGE);
        Self {
            room: Some(room),
            ..self
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
    run_within(apis, selection, |object| (reduce(object), 0), set, shutdown).await
}

/// Does the same with objects whose bytes `reduce` returns, too. The selection may have a room for them: those that do not
/// fit are named and not kept. Once there is room for one of them all are listed again.
pub async fn run_within<K, T, Name>(
    apis: Vec<Api<Read<K>>>,
    selection: Selection,
    reduce: impl Fn(K) -> (T, usize),
    set: watch::Sender<Set<T, Name>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Default + Clone,
    Name: From<String> + Clone + Ord,
{
    let mut listings: Vec<Listing<T, Name>> = apis.iter().map(|_| Listing::default()).collect();
    loop {
        let streams = apis.iter().cloned().enumerate().map(|(n, api)| {
            let events = events(api, selection.clone());
            Box::pin(events.map(move |batch| (n, batch)))
        });
        let mut streams = select_all(streams);
        let (mut again, mut has_changed): (Option<Instant>, bool) = (None, false);
        let began = Instant::now();
        loop {
            let next = tokio::select! {
                biased;
                () = shutdown.cancelled() => return Ok(()),
                next = streams.next() => next,
                () = sleep_until(again.unwrap_or(began)), if again.is_some() => break,
            };
            let Some((n, batch)) = next else {
                return Ok(());
            };
            let mut is_changed = false;
            for event in batch.into_iter().flatten() {
                let (listing, is_new) =
                    (&mut listings[n], matches!(event, watcher::Event::Apply(_)));
                let count = listing.current.sizes.len();
                is_changed |= listing.follow(event, &reduce, selection.room);
                has_changed |= is_new || listing.current.sizes.len() < count;
            }
            if is_changed && listings.iter().all(|listing| listing.lists > 0) {
                let has_room = trim(listings.iter_mut().map(|l| &mut l.current), selection.room);
                let soon = (began + BETWEEN_LISTS).max(Instant::now());
                // Where nothing has changed, the same list has no more the next time.
                again = again.or(has_changed.then_some(soon)).filter(|_| has_room);
                set.send_replace(Some(Arc::new(Listing::joined(&listings))));
            }
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
}
