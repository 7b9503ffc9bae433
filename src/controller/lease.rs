//! Decides which replica acts: the one whose name is in the Lease. The Lease is watched, and its holder is believed for as
//! long as the Lease is valid by its own times: a replica that cannot renew it stops acting before another begins.
use super::shared::{NAME, Shared};
use crate::{
    backoff::Backoff,
    cluster::watch::{Read, Selection, Set},
    model::names::ObjectKey,
};
use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::{Api, runtime::watcher};
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The time for which a Lease is valid that is not renewed: new devices wait for so long if the replica that acts is killed.
const DURATION_S: u64 = 9;
/// The time before its end at which it is renewed.
const RENEWED_BEFORE_S: u64 = 4;
/// A step that takes longer hangs; one that only sleeps can be begun anew at any time.
const STEP_MAX: Duration = Duration::from_secs(20);
/// A release that takes longer is left to the Lease's own end.
const RELEASE_MAX: Duration = Duration::from_secs(3);
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(3);

/// The parts of a Lease that are read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Held {
    holder: Option<String>,
    /// The end of the Lease unless it is renewed.
    until: Option<Timestamp>,
    /// The time for which it was taken or renewed.
    valid: Duration,
}

/// A Lease, and when this process saw that it was taken or renewed.
#[derive(Debug, Default)]
struct Seen {
    held: Held,
    at: Option<Instant>,
}

pub(super) fn watched(shared: &Shared) -> (Vec<Api<Read<Lease>>>, Selection) {
    let api = Api::namespaced(shared.client.clone(), &shared.settings.namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    (vec![api], Selection::new("lease", config))
}

pub(super) fn held(lease: Lease) -> Held {
    let spec = lease.spec.unwrap_or_default();
    let seconds = spec.lease_duration_seconds;
    let valid = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let valid = valid.map(Duration::from_secs);
    Held {
        valid: valid.unwrap_or_default(),
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        until: (spec.renew_time.zip(valid))
            .and_then(|(renewed, valid)| renewed.0.checked_add(valid).ok()),
    }
}

impl Held {
    /// Returns for how much longer `identity` leads.
    fn leads_for(&self, identity: &str, now: Timestamp) -> Option<Duration> {
        let is_holder = self.holder.as_deref() == Some(identity);
        let left = self.until.filter(|_| is_holder)?.duration_since(now);
        Duration::try_from(left).ok().filter(|left| !left.is_zero())
    }
}

impl Seen {
    fn notice(&mut self, held: Held, now: Instant) {
        if self.at.is_none() || self.held != held {
            self.at = Some(now);
            self.held = held;
        }
    }

    /// Returns for how much longer `identity` leads, by the Lease's times and by a clock that does not step: this
    /// machine's may be set back.
    fn leads_for(&self, identity: &str, clock: Timestamp, now: Instant) -> Option<Duration> {
        let by_clock = self.held.leads_for(identity, clock)?;
        let seen_for = now - self.at?;
        let left = by_clock.min(self.held.valid.saturating_sub(seen_for));
        (!left.is_zero()).then_some(left)
    }
}

/// Takes the Lease when it is free and keeps it; gives it back at `shutdown`, so that another replica need not wait
/// for its end. An API server that is away is waited for.
pub(super) async fn run(
    shared: Arc<Shared>,
    lease: watch::Receiver<Set<Held>>,
    is_leader: watch::Sender<bool>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (published, ()) = tokio::join!(
        publish(&shared, lease.clone(), is_leader, shutdown.clone()),
        keep(&shared, lease, shutdown)
    );
    published
}

fn current(shared: &Shared, lease: &Set<Held>) -> Held {
    let key = ObjectKey::new(&shared.settings.namespace, NAME);
    let known = lease.as_ref().and_then(|leases| leases.objects.get(&key));
    known.map(|held| (**held).clone()).unwrap_or_default()
}

/// Says whether this replica leads, as the Lease has it.
async fn publish(
    shared: &Shared,
    mut lease: watch::Receiver<Set<Held>>,
    is_leader: watch::Sender<bool>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let identity = &shared.settings.identity;
    let mut seen = Seen::default();
    loop {
        seen.notice(current(shared, &lease.borrow_and_update()), Instant::now());
        let left = seen.leads_for(identity, shared.clock.now(), Instant::now());
        let left = left.filter(|_| !shutdown.is_cancelled());
        is_leader.send_if_modified(|leads| {
            let is_changed = *leads != left.is_some();
            *leads = left.is_some();
            match (is_changed, *leads) {
                (false, _) => {}
                (true, true) => info!(%identity, "leads: holds the Lease"),
                (true, false) => info!(%identity, holder = seen.held.holder, "leads no more"),
            }
            is_changed
        });
        if shutdown.is_cancelled() {
            return Ok(());
        }
        tokio::select! {
            () = shutdown.cancelled() => {}
            changed = lease.changed() => changed?,
            () = sleep(left.unwrap_or(Duration::MAX)) => {}
        }
    }
}

/// Takes and renews the Lease.
async fn keep(shared: &Shared, mut lease: watch::Receiver<Set<Held>>, shutdown: CancellationToken) {
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    let mut is_failing = false;
    let mut manager = None;
    while !shutdown.is_cancelled() {
        let outcome = tokio::select! {
            () = shutdown.cancelled() => break,
            // One who waits knows of the last holder's time only, and may look at once.
            () = given_back(shared, &mut lease) => { manager = None; continue; }
            outcome = timeout(STEP_MAX, step(shared, &mut manager)) => outcome,
        };
        match outcome {
            Ok(Err(e)) => {
                if !is_failing {
                    warn!("the Lease cannot be taken or renewed, tried again until it can: {e:#}");
                }
                is_failing = true;
                shutdown
                    .run_until_cancelled(sleep(backoff.next_wait()))
                    .await;
            }
            Ok(Ok(_)) | Err(_) => {
                if is_failing {
                    info!("the Lease can be taken and renewed again");
                }
                is_failing = false;
                backoff.reset();
            }
        }
    }
    let leads =
        current(shared, &lease.borrow()).leads_for(&shared.settings.identity, shared.clock.now());
    if let Some(manager) = manager.filter(|_| leads.is_some()) {
        match timeout(RELEASE_MAX, manager.release()).await {
            Ok(Ok(())) => info!("the Lease is given back"),
            Ok(Err(e)) => warn!("the Lease is not given back, it ends by itself: {e}"),
            Err(_) => {
                warn!("the Lease is not given back within {RELEASE_MAX:?}, it ends by itself")
            }
        }
    }
}

/// Returns once the Lease changes to one that nobody holds.
async fn given_back(shared: &Shared, lease: &mut watch::Receiver<Set<Held>>) {
    let mut holder = current(shared, &lease.borrow_and_update()).holder;
    while lease.changed().await.is_ok() {
        let now = current(shared, &lease.borrow_and_update()).holder;
        if holder.is_some() && now.is_none() {
            return;
        }
        holder = now;
    }
    std::future::pending().await
}

/// Waits until the Lease has another holder, and renews it in between.
async fn step(shared: &Shared, manager: &mut Option<LeaseManager>) -> anyhow::Result<bool> {
    let manager = match manager {
        Some(manager) => manager,
        none => {
            let settings = &shared.settings;
            let built = LeaseManagerBuilder::new(shared.client.clone(), NAME)
                .with_namespace(&settings.namespace)
                .with_identity(&settings.identity)
                .with_duration(DURATION_S)
                .with_grace(RENEWED_BEFORE_S)
                .build()
                .await?;
            none.insert(built)
        }
    };
    Ok(manager.changed().await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cluster::{events, watch::Objects},
        controller::{clock::WallClock, fixtures::settings},
    };
    use http_body_util::Full;
    use hyper::{Method, Request, Response, body::Bytes};
    use k8s_openapi::{
        api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::MicroTime,
    };
    use kube::{Client, client::Body};
    use serde_json::{Value, json};
    use std::convert::Infallible;

    fn lease(holder: &str, renewed: i64) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(Timestamp::from_second(renewed).unwrap())),
            ..LeaseSpec::default()
        };
        Lease {
            spec: Some(spec),
            ..Lease::default()
        }
    }

    #[test]
    fn a_replica_leads_while_the_lease_names_it_and_is_valid() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mine = held(lease("me", 100));
        assert_eq!(mine.leads_for("me", at(105)), Some(Duration::from_secs(10)));
        assert_eq!(mine.leads_for("me", at(115)), None);
        assert_eq!(mine.leads_for("me", at(200)), None);
        assert_eq!(held(lease("other", 100)).leads_for("me", at(105)), None);
        assert_eq!(held(lease("", 100)).leads_for("", at(105)), None);
        assert_eq!(held(Lease::default()).leads_for("me", at(105)), None);
    }

    #[test]
    fn a_clock_that_is_set_back_makes_nobody_lead_for_longer() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let (begin, mut seen) = (Instant::now(), Seen::default());
        let after = |seconds| begin + Duration::from_secs(seconds);
        seen.notice(held(lease("me", 100)), begin);
        let left = seen.leads_for("me", at(105), after(5));
        assert_eq!(left, Some(Duration::from_secs(10)));
        // The same Lease again, by a clock that was set back by an hour.
        seen.notice(held(lease("me", 100)), after(14));
        let left = seen.leads_for("me", at(114 - 3_600), after(14));
        assert_eq!(left, Some(Duration::from_secs(1)));
        assert_eq!(seen.leads_for("me", at(115 - 3_600), after(15)), None);
        seen.notice(held(lease("me", 115)), after(15));
        assert!(seen.leads_for("me", at(115), after(15)).is_some());
        // One that begins anew under its old name did not see the renewal.
        assert_eq!(seen.leads_for("me", at(200), after(16)), None);
    }

    /// An API server with one Lease, which is not there at first; each change of it is seen at once.
    fn api_server(seen: Arc<watch::Sender<Set<Held>>>) -> Client {
        let lease = Arc::new(std::sync::Mutex::new(None::<Value>));
        let server = tower::service_fn(move |request: Request<Body>| {
            let (lease, seen) = (lease.clone(), seen.clone());
            async move {
                let method = request.method().clone();
                let body = request.into_body().collect_bytes().await.unwrap();
                let mut lease = lease.lock().unwrap();
                if method != Method::GET {
                    let change: Value = serde_json::from_slice(&body).unwrap();
                    let now = lease.get_or_insert_with(|| json!({"metadata": {"name": NAME}}));
                    json_patch::merge(now, &change);
                    let held = held(serde_json::from_value(now.clone()).unwrap());
                    let mut all = Objects::default();
                    let key = ObjectKey::new("petiole", NAME);
                    all.objects.insert(key, Arc::new(held));
                    seen.send_replace(Some(Arc::new(all)));
                }
                let (code, body) = match &*lease {
                    Some(lease) => (200, lease.to_string()),
                    None => (404, json!({"status": "Failure", "code": 404, "message": "", "reason": "NotFound"}).to_string()),
                };
                let response = Response::builder().status(code);
                Ok::<_, Infallible>(response.body(Full::new(Bytes::from(body))).unwrap())
            }
        });
        Client::new(server, "petiole")
    }

    fn replica(client: &Client, identity: &str) -> Arc<Shared> {
        Arc::new(Shared {
            events: events::events(client.clone(), "test", "test").0,
            client: client.clone(),
            clock: WallClock::System,
            settings: settings(identity),
            is_leader: watch::channel(false).1,
            offered: watch::Sender::default(),
            not_offered: watch::Sender::default(),
        })
    }

    #[tokio::test]
    async fn a_lease_that_is_given_back_is_taken_at_once() {
        let lease = Arc::new(watch::Sender::new(None));
        let client = api_server(lease.clone());
        let start = |identity| {
            let stop = CancellationToken::new();
            let (leads, leads_rx) = watch::channel(false);
            let shared = replica(&client, identity);
            let run = run(shared, lease.subscribe(), leads, stop.clone());
            (run, leads_rx, stop)
        };
        let (first, mut first_leads, stop_first) = start("first");
        let (second, mut second_leads, stop_second) = start("second");
        let story = async {
            first_leads.wait_for(|leads| *leads).await.unwrap();
            // The other knows that it has to wait, and for whom.
            sleep(Duration::from_millis(50)).await;
            assert!(!*second_leads.borrow());
            stop_first.cancel();
            second_leads.wait_for(|leads| *leads).await.unwrap();
            assert!(!*first_leads.borrow());
            stop_second.cancel();
        };
        let second = async {
            somebody_leads(&lease).await;
            second.await
        };
        let all = async { tokio::join!(first, second, story) };
        let (first, second, ()) = Box::pin(timeout(Duration::from_secs(5), all))
            .await
            .unwrap();
        assert!(first.is_ok() && second.is_ok());
    }

    async fn somebody_leads(lease: &watch::Sender<Set<Held>>) {
        let mut lease = lease.subscribe();
        let is_held = |set: &Set<Held>| {
            let mut held = set.iter().flat_map(|set| set.objects.values());
            held.any(|held| held.holder.is_some())
        };
        lease.wait_for(is_held).await.unwrap();
    }
}
