//! The loop of the controller: it takes in what the watches show, sends the requests that `turns.rs` decides, and hands their
//! answers back.
use super::{
    brokers,
    nodes::{self, absent_node::Now},
    outcome::Note,
    services,
    shared::Shared,
    status, tally,
    turn::{Answer, Request},
    turns::Turns,
    watches::Watches,
    world::World,
};
use crate::{publish, supervisor::ChannelClosed};
use futures::{StreamExt as _, stream::FuturesUnordered};
use k8s_openapi::jiff::Timestamp;
use std::sync::Arc;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// The pause after a count for the metrics, in multiples of the time that it took: each count visits every object.
const PAUSE: u32 = 20;

/// Runs the loop. `is_listed` becomes true once all objects are known.
pub(super) async fn run(
    shared: Arc<Shared>,
    mut watches: Watches,
    is_listed: watch::Sender<bool>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let shared = &*shared;
    let mut is_leader = shared.is_leader.clone();
    let mut turns = Turns::new(shared.settings.resource_prefix.clone(), now());
    let mut open = FuturesUnordered::new();
    let mut counts = Counts::new();
    while !shutdown.is_cancelled() {
        let is_complete = turns.is_listed();
        publish::if_changed(&is_listed, is_complete);
        let leads = is_complete && *is_leader.borrow_and_update();
        turns.lead(leads, now());
        let requests = turns.step(now()).into_iter();
        open.extend(requests.map(|(part, request)| async move {
            let answer = ask(shared, &request).await;
            (part, request, answer)
        }));
        turns
            .take_notes()
            .into_iter()
            .for_each(|n| write(shared, n));
        let wake = turns.wakes_at(Instant::now());
        let count = counts.due_at();
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            changed = is_leader.changed() => {
                changed?;
                counts.is_outdated = true;
            }
            Some((part, request, answer)) = open.next() => {
                turns.answered(part, &request, answer, now());
            }
            news = watches.others.recv() => {
                turns.see(news.ok_or(ChannelClosed)?);
                counts.is_outdated = true;
            }
            changed = watches.configurations.changed() => {
                changed?;
                turns.see_configurations(watches.configurations.borrow_and_update().as_deref());
                counts.is_outdated = true;
            }
            () = sleep_until(count.unwrap_or_else(Instant::now)), if count.is_some() => {
                counts.count(leads.then(|| turns.world()));
            }
            () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
        }
    }
    // What was sent is answered, and nothing else is begun.
    while open.next().await.is_some() {}
    Ok(())
}

fn now() -> Now {
    Now {
        clock: Timestamp::now(),
        instant: Instant::now(),
    }
}

/// Sends a request, and returns its answer.
async fn ask(shared: &Shared, request: &Request) -> Answer {
    match request {
        Request::Look(node) => Answer::Pods(nodes::pods_of(shared, node).await),
        Request::Device(action) => Answer::Written(nodes::act(shared, action).await),
        Request::Broker(action) => Answer::Performed(brokers::perform(shared, action).await),
        Request::Service(action) => Answer::Acted(services::act(shared, action).await),
        Request::Status(action) => Answer::Written(status::act(shared, action).await),
    }
}

fn write(shared: &Shared, note: Note) {
    let Note {
        about,
        reason,
        text,
        is_warning,
    } = note;
    if is_warning {
        shared.events.warning(about, &reason, text);
    } else {
        shared.events.normal(about, &reason, text);
    }
}

/// The times of the counts for the metrics.
struct Counts {
    not_before: Instant,
    /// True if something has changed since the last count.
    is_outdated: bool,
}

impl Counts {
    fn new() -> Self {
        Self {
            not_before: Instant::now(),
            is_outdated: true,
        }
    }

    fn due_at(&self) -> Option<Instant> {
        self.is_outdated.then_some(self.not_before)
    }

    fn count(&mut self, world: Option<&World>) {
        let begun = Instant::now();
        tally::count(world);
        self.is_outdated = false;
        self.not_before = begun + begun.elapsed() * (PAUSE + 1);
    }
}
