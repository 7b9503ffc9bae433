//! One discovery by a handler in other processes: a stream for each of its endpoints, and one set of devices.
use super::{
    endpoint::Endpoint,
    host_paths::HostPaths,
    plan::{Endpoints, Event},
    registrations::{Registration, Registrations},
    stream::{self, Stream},
};
use crate::{
    discovery::{Discovery, DiscoveryError},
    model::device::{DeviceSet, Scope},
    proto::discovery::DiscoverRequest,
    telemetry::metrics,
};
use futures::future::BoxFuture;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::JoinMap};
use tracing::{info, warn};

/// Of the problems of a list so many are named in the log.
const PROBLEMS_NAMED: usize = 5;

/// What is asked of all endpoints of a handler.
pub struct ExternalDiscovery {
    pub(super) name: String,
    pub(super) scope: Scope,
    pub(super) request: DiscoverRequest,
    pub(super) registrations: watch::Sender<Arc<Registrations>>,
    pub(super) host_paths: Arc<HostPaths>,
}

impl ExternalDiscovery {
    /// A discovery by one handler that has not registered, to try it.
    pub fn at(
        (name, endpoint): (&str, Endpoint),
        scope: Scope,
        details: &str,
        properties: &BTreeMap<String, String>,
    ) -> Self {
        let mut registrations = Registrations::default();
        let registration = Registration {
            name: name.to_owned(),
            endpoint,
            shared: scope == Scope::Shared,
            times: 0,
        };
        registrations
            .register(registration)
            .map(drop)
            .expect("it is the first one");
        Self {
            name: name.to_owned(),
            scope,
            request: stream::request(details, properties),
            registrations: watch::Sender::new(Arc::new(registrations)),
            host_paths: Arc::new(HostPaths::all()),
        }
    }

    async fn follow(self, found: &watch::Sender<DeviceSet>) -> Result<(), DiscoveryError> {
        let began = Instant::now();
        let mut registrations = self.registrations.subscribe();
        let (events, mut happened) = mpsc::channel(1);
        let mut streams = Streams {
            running: JoinMap::new(),
            registered: BTreeMap::new(),
            events,
        };
        let mut endpoints = Endpoints::new(&self.name);
        loop {
            let now: Vec<Registration> = registrations
                .borrow_and_update()
                .of(&self.name)
                .cloned()
                .collect();
            streams.follow(&self, &now);
            endpoints.set(
                &now.into_iter().map(|r| r.endpoint).collect(),
                began.elapsed(),
            );
            let turn = endpoints.turn(began.elapsed());
            // Before a handler has said something there is nothing to say of its devices.
            if turn.set != DeviceSet::default() {
                publish(turn.set, found);
            }
            let wake = async {
                match turn.wake {
                    Some(wake) => tokio::time::sleep_until(began + wake).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = registrations.changed() => {}
                Some((endpoint, event)) = happened.recv() => {
                    self.note(&endpoints, &endpoint, &event);
                    endpoints.happened(&endpoint, event, began.elapsed());
                }
                Some((endpoint, ended)) = streams.running.join_next() => {
                    // Others were ended because their endpoints are not registered any more.
                    if let Err(e) = ended && e.is_panic() {
                        return Err(DiscoveryError(format!("the stream of {endpoint} ended: {e}")));
                    }
                }
                () = wake => {}
            }
        }
    }

    /// Logs what is new, and counts.
    fn note(&self, endpoints: &Endpoints, endpoint: &Endpoint, event: &Event) {
        let (handler, was_broken) = (&self.name, endpoints.is_broken(endpoint));
        match event {
            Event::Says(list) => {
                if was_broken {
                    info!(handler, %endpoint, devices = list.devices.len(), "the handler answers again");
                }
                let touch = |all: &mut Arc<Registrations>| {
                    Arc::make_mut(all).touch(handler, endpoint);
                    false // nobody waits for it
                };
                self.registrations.send_if_modified(touch);
            }
            Event::Broken(why) => {
                metrics().count_discovery(handler, false);
                if !was_broken {
                    warn!(handler, %endpoint, "discovery failed, and is tried again: {why}");
                }
            }
            Event::Refuses(why) => {
                metrics().count_discovery(handler, false);
                warn!(handler, %endpoint, "the handler refuses discoveryDetails: {why}");
            }
        }
    }
}

impl Discovery for ExternalDiscovery {
    fn scope(&self) -> Scope {
        self.scope
    }

    fn run(
        self: Box<Self>,
        found: watch::Sender<DeviceSet>,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, Result<(), DiscoveryError>> {
        Box::pin(async move {
            tokio::select! {
                () = shutdown.cancelled() => Ok(()),
                ended = self.follow(&found) => ended,
            }
        })
    }
}

/// The tasks of the streams. They end with it.
struct Streams {
    running: JoinMap<Endpoint, ()>,
    /// How often each endpoint has registered.
    registered: BTreeMap<Endpoint, watch::Sender<u64>>,
    events: mpsc::Sender<(Endpoint, Event)>,
}

impl Streams {
    /// Starts and ends streams, so that there is one for each endpoint.
    fn follow(&mut self, discovery: &ExternalDiscovery, now: &[Registration]) {
        let wanted: BTreeSet<&Endpoint> = now.iter().map(|r| &r.endpoint).collect();
        let (running, registered) = (&mut self.running, &mut self.registered);
        registered.retain(|endpoint, _| {
            let is_wanted = wanted.contains(endpoint);
            if !is_wanted {
                running.abort(endpoint);
            }
            is_wanted
        });
        for registration in now {
            let endpoint = &registration.endpoint;
            if let Some(times) = registered.get(endpoint) {
                times.send_if_modified(|times| {
                    std::mem::replace(times, registration.times) != registration.times
                });
                continue;
            }
            let times = watch::Sender::new(registration.times);
            let stream = Stream {
                endpoint: endpoint.clone(),
                request: discovery.request.clone(),
                host_paths: discovery.host_paths.clone(),
                registered: times.subscribe(),
                events: self.events.clone(),
            };
            registered.insert(endpoint.clone(), times);
            running.spawn(endpoint.clone(), stream.run());
        }
    }
}

/// Publishes a set that is another one, and logs the problems that are new.
fn publish(set: DeviceSet, found: &watch::Sender<DeviceSet>) {
    found.send_if_modified(|last| {
        let is_new = |problem: &&String| !last.problems.contains(problem);
        let new: Vec<&String> = set
            .problems
            .iter()
            .filter(is_new)
            .take(PROBLEMS_NAMED + 1)
            .collect();
        for problem in new.iter().take(PROBLEMS_NAMED) {
            warn!("{problem}");
        }
        if new.len() > PROBLEMS_NAMED {
            warn!("and there are more problems: {} in all", set.problems.len());
        }
        let is_changed = *last != set;
        *last = set;
        is_changed
    });
}
