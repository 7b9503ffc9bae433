//! The loop of the controller: it takes in what the watches show, sends the requests that `turns.rs` decides, and hands their
//! answers back.
use super::{
    brokers, evictions,
    lists::{self, serve::Question},
    news::News,
    nodes::{self, absent_node::Now},
    offered::{self, Recalled},
    outcome::Note,
    services,
    shared::Shared,
    status, tally,
    turn::{Answer, Request},
    turns::Turns,
    watches::{BATCHES, Watches},
    world::World,
};
use crate::{publish, supervisor::ChannelClosed};
use futures::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

/// The pause after a count for the metrics, in multiples of the time that it took: each count visits every object.
const PAUSE: u32 = 20;
/// The time from a change to a count, in which what the change leads to is sent.
const COUNTED_AFTER: Duration = Duration::from_millis(100);
/// The longest time for a request, which may be several in a row.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
/// The most answers that are taken in before what the watches show.
const ANSWERS_AT_ONCE: usize = 64;

fn turns(shared: &Shared) -> Turns {
    let settings = &shared.settings;
    Turns::new(settings.resource_prefix.clone(), now(shared))
        .allowing(settings.device_networks.clone())
        .with_room(settings.instances_bytes)
}

/// Runs the loop, and answers `questions`. `is_listed` becomes true once all objects are known.
pub(super) async fn run(
    shared: &Shared,
    mut watches: Watches,
    mut questions: mpsc::Receiver<Question>,
    is_listed: watch::Sender<bool>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut is_leader = shared.is_leader.clone();
    let mut not_offered = shared.not_offered.subscribe();
    let mut recalled = shared.recalled.subscribe();
    let mut turns = turns(shared);
    let (mut open, mut counts) = (FuturesUnordered::new(), Counts::new());
    while !shutdown.is_cancelled() {
        let is_complete = turns.is_listed();
        publish::if_changed(&is_listed, is_complete);
        let leads = is_complete && *is_leader.borrow_and_update();
        turns.lead(leads, now(shared));
        let requests = turns.step(now(shared)).into_iter();
        open.extend(requests.map(|(part, request)| async move {
            let answer = ask(shared, &request).await;
            (part, request, answer)
        }));
        write(shared, turns.take_notes());
        let wake = turns.wakes_at(Instant::now()).into_iter();
        let wake = wake.chain(counts.due_at()).min();
        let happened = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            changed = is_leader.changed() => {
                changed?;
                counts.outdated();
                // Another replica may act now.
                offer(shared, None);
                continue;
            }
            changed = not_offered.changed() => {
                changed?;
                turns.see_not_offered(not_offered.borrow_and_update().clone());
                continue;
            }
            changed = recalled.changed() => {
                changed?;
                counts.outdated();
                continue;
            }
            Some(question) = questions.recv() => {
                let world = turns.part(question.name());
                question.answer(&world);
                continue;
            }
            happened = next(&mut open, &mut watches, wake) => happened?,
        };
        if happened.is_configured || !happened.news.is_empty() {
            counts.outdated();
        }
        take_in(&mut turns, happened, &mut watches, now(shared));
        if counts.due_at().is_some_and(|at| at <= Instant::now()) {
            count(shared, &mut counts, leads.then(|| turns.world()));
        }
    }
    // What was sent is answered, and nothing else is begun.
    while let Some((part, request, answer)) = open.next().await {
        turns.answered(part, &request, answer, now(shared));
    }
    write(shared, turns.take_notes());
    Ok(())
}

fn take_in(turns: &mut Turns, happened: Happened<Answered>, watches: &mut Watches, now: Now) {
    for (part, request, answer) in happened.answers {
        turns.answered(part, &request, answer, now);
    }
    happened.news.into_iter().for_each(|news| turns.see(news));
    if happened.is_configured {
        turns.see_configurations(watches.configurations.borrow_and_update().as_deref());
    }
}

/// A part, its request, and the answer.
type Answered = (String, Request, Answer);

/// What has happened since the last step.
struct Happened<A> {
    answers: Vec<A>,
    news: Vec<News>,
    is_configured: bool,
}

/// Waits for something, or until `wake`. Returns all that is there by then: neither answers nor news wait for the other,
/// however fast they come.
async fn next<F: Future>(
    open: &mut FuturesUnordered<F>,
    watches: &mut Watches,
    wake: Option<Instant>,
) -> anyhow::Result<Happened<F::Output>> {
    let (mut answers, mut news, mut is_configured) = (vec![], vec![], false);
    tokio::select! {
        biased; // the others are taken below
        Some(answer) = open.next() => answers.push(answer),
        first = watches.others.recv() => news.push(first.ok_or(ChannelClosed)?),
        changed = watches.configurations.changed() => {
            changed?;
            is_configured = true;
        }
        () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
    }
    while answers.len() < ANSWERS_AT_ONCE
        && let Some(Some(answer)) = open.next().now_or_never()
    {
        answers.push(answer);
    }
    while news.len() < BATCHES
        && let Ok(batch) = watches.others.try_recv()
    {
        news.push(batch);
    }
    is_configured |= watches.configurations.has_changed()?;
    Ok(Happened {
        answers,
        news,
        is_configured,
    })
}

fn now(shared: &Shared) -> Now {
    Now {
        clock: shared.clock.now(),
        instant: Instant::now(),
    }
}

/// Sends a request, and returns its answer. A connection that stands still in an answer holds up its part no longer than one
/// that gives none.
async fn ask(shared: &Shared, request: &Request) -> Answer {
    match timeout(ANSWERED_WITHIN, send(shared, request)).await {
        Ok(answer) => answer,
        Err(_) => Answer::none(request),
    }
}

async fn send(shared: &Shared, request: &Request) -> Answer {
    match request {
        Request::Look(node) => Answer::Pods(nodes::pods_of(shared, node).await),
        Request::Device(action) => Answer::Written(nodes::act(shared, action).await),
        Request::Broker(action) => Answer::Written(brokers::perform(shared, action).await),
        Request::Service(action) => Answer::Written(services::act(shared, action).await),
        Request::List(action) => Answer::Written(lists::act(shared, action).await),
        Request::Status(action) => Answer::Written(status::act(shared, action).await),
        Request::Eviction(action) => Answer::Written(evictions::act(shared, action).await),
    }
}

/// Visits every object, for the metrics and for the scheduler.
fn count(shared: &Shared, counts: &mut Counts, world: Option<&World>) {
    counts.count(world);
    offer(shared, world);
}

/// Says what the scheduler is to be offered of the devices of this world.
fn offer(shared: &Shared, world: Option<&World>) {
    if let Some(prefixes) = &shared.settings.claims {
        let before = shared.offered.borrow().clone();
        let offered = world.and_then(|world| {
            let recalled = match before {
                Some(_) => Arc::default(),
                None => take_recalled(shared)?,
            };
            let before = before.as_deref();
            Some(offered::plan::plan(world, prefixes, before, &recalled))
        });
        publish::if_changed(&shared.offered, offered.map(Arc::new));
    }
}

/// Takes what was offered by another replica. A replica that begins to act again has to read it again.
fn take_recalled(shared: &Shared) -> Option<Arc<Recalled>> {
    let mut taken = None;
    shared.recalled.send_if_modified(|recalled| {
        taken = recalled.take();
        false
    });
    taken
}

fn write(shared: &Shared, notes: Vec<Note>) {
    for note in notes {
        note.write(&shared.events);
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

    fn outdated(&mut self) {
        if !std::mem::replace(&mut self.is_outdated, true) {
            self.not_before = self.not_before.max(Instant::now() + COUNTED_AFTER);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cluster::{SIDE_BY_SIDE, watch::Objects},
        controller::fixtures::{Fake, configuration, instance, node_devices, ready, shown},
    };
    use axum::http::{Request, Response};
    use kube::{Client, client::Body};
    use serde_json::json;
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };
    use tokio::time::sleep;

    /// Runs the loop in a cluster with many devices that have no Instance, until it ends.
    async fn ends_with(
        fake: &mut Fake,
        ends: impl FnOnce(mpsc::Sender<News>),
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let device = |n| json!({ "id": format!("device-{n}"), "properties": {} });
        let devices: Vec<_> = (0..3 * SIDE_BY_SIDE).map(device).collect();
        let view = json!({
            "namespace": "default", "name": "cam", "complete": true, "generation": 1, "devices": devices,
        });
        let many = json!({ "spec": { "maxInstances": 1_000 } });
        let world = World::default()
            .with_nodes([("a", ready())])
            .with_node_devices(node_devices("a", json!([view])))
            .with_configuration(configuration("cam", many));
        let (sender, others) = mpsc::channel(16);
        shown(&World::default(), &world, |news| {
            sender.try_send(news).unwrap()
        });
        ends(sender);
        let (set, configurations) = watch::channel(None);
        set.send_replace(Some(Arc::new(Objects {
            objects: world.configurations,
            ..Objects::default()
        })));
        let (leader, is_leader) = watch::channel(true);
        fake.shared.is_leader = is_leader;
        let watches = Watches {
            configurations,
            others,
        };
        let (listed, is_listed) = watch::channel(false);
        let (_, questions) = mpsc::channel(1);
        let running = run(&fake.shared, watches, questions, listed, stop);
        timeout(Duration::from_secs(60), running).await??;
        assert!(*is_listed.borrow());
        drop((set, leader));
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_end_what_was_sent_is_answered_and_nothing_else_is_begun() {
        let (stop, answered) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
        let (stopped, count) = (stop.clone(), answered.clone());
        let server = tower::service_fn(move |_: Request<Body>| {
            stopped.cancel();
            let count = count.clone();
            async move {
                sleep(Duration::from_secs(1)).await;
                count.fetch_add(1, Ordering::Relaxed);
                let created = serde_json::to_vec(&instance("cam-1", json!({}))).unwrap();
                Ok::<_, Infallible>(Response::new(Body::from(created)))
            }
        });
        let mut fake = Fake::new(|_| (404, json!({})));
        fake.shared.client = Client::new(server, "default");
        let mut kept = None;
        let ended = ends_with(&mut fake, |sender| kept = Some(sender), stop).await;
        ended.unwrap();
        assert_eq!(answered.load(Ordering::Relaxed), SIDE_BY_SIDE);
    }

    #[tokio::test]
    async fn what_is_shown_waits_for_no_answer_and_no_answer_for_what_is_shown() {
        let mut open: FuturesUnordered<_> = (0..1_000).map(std::future::ready).collect();
        let (sender, others) = mpsc::channel(BATCHES);
        let (set, configurations) = watch::channel(None);
        let mut watches = Watches {
            configurations,
            others,
        };
        for _ in 0..10 {
            sender.try_send(News::Pods(vec![])).unwrap();
            set.send_replace(None);
            let happened = next(&mut open, &mut watches, None).await.unwrap();
            assert!((1..=ANSWERS_AT_ONCE).contains(&happened.answers.len()));
            assert_eq!(happened.news.len(), 1);
            assert!(happened.is_configured);
            watches.configurations.mark_unchanged();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn watches_that_end_end_the_loop_with_an_error() {
        let mut fake = Fake::new(|_| (404, json!({})));
        let ended = ends_with(&mut fake, drop, CancellationToken::new()).await;
        assert!(ended.unwrap_err().is::<ChannelClosed>());
    }

    #[tokio::test]
    async fn a_replica_that_acts_again_offers_nothing_before_it_has_read_what_was_offered_meanwhile()
     {
        let mut fake = Fake::new(|_| (200, json!({})));
        fake.shared.settings.claims = Some("akri.sh".parse().unwrap());
        let (shared, world) = (&fake.shared, World::default());
        let is_offered = |world: Option<&World>| {
            offer(shared, world);
            shared.offered.borrow().is_some()
        };
        assert!(!is_offered(Some(&world)));
        shared.recalled.send_replace(Some(Arc::default()));
        assert!(is_offered(Some(&world)) && is_offered(Some(&world)));
        assert!(!is_offered(None) && !is_offered(Some(&world)));
    }
}
