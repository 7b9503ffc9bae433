//! One discovery by a handler in other processes: a stream for each of its endpoints, and one set of devices.
use super::{
    endpoint::Endpoint,
    host_paths::HostPaths,
    plan::{Endpoints, Event},
    registrations::{Registration, Registrations},
    stream::{self, Isolated, KnownDevices, Stream},
};
use crate::{
    discovery::{
        interface::{Discovery, DiscoveryError, Task},
        publish::publish,
    },
    model::device::{DeviceSet, Scope},
    proto::discovery::DiscoverRequest,
    telemetry::metrics,
};
use petiole_base::{collect::CollectMap as _, waits::sleep_until_or_never};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::task::JoinMap;
use tracing::{info, warn};

/// The question that all endpoints of a handler are asked for one Configuration.
pub struct ExternalDiscovery {
    pub(super) name: String,
    pub(super) request: DiscoverRequest,
    pub(super) registrations: watch::Sender<Arc<Registrations>>,
    pub(super) host_paths: Arc<HostPaths>,
    pub(super) known_devices: KnownDevices,
    /// When the agent started.
    pub(super) agent_began: Instant,
}

impl ExternalDiscovery {
    /// Creates a discovery by one handler that has not registered, to try it.
    pub fn at(
        name: &str,
        endpoint: Endpoint,
        scope: Scope,
        details: &str,
        properties: &BTreeMap<String, String>,
    ) -> Discovery {
        let mut registrations = Registrations::default();
        let shared = scope == Scope::Shared;
        let registration = Registration::new(name.to_owned(), endpoint, shared, Duration::ZERO);
        let registered = registrations.register(registration);
        registered.expect("it is the first one");
        let discovery = Self {
            name: name.to_owned(),
            request: stream::request(details, properties),
            registrations: watch::Sender::new(Arc::new(registrations)),
            host_paths: Arc::new(HostPaths::all()),
            known_devices: KnownDevices::default(),
            agent_began: Instant::now(),
        };
        discovery.with_scope(scope)
    }

    /// Returns the discovery, whose devices have this scope.
    pub(super) fn with_scope(self, scope: Scope) -> Discovery {
        Discovery::new(scope, |task| self.follow(task))
    }

    async fn follow(self, task: Task) -> Result<(), DiscoveryError> {
        let began = Instant::now();
        let mut registrations = self.registrations.subscribe();
        let (events, mut happened) = mpsc::channel(1);
        let follower = Follower {
            id: fastrand::u64(..),
            registrations: self.registrations.clone(),
            agent_began: self.agent_began,
        };
        follower.change(|all| all.begun(&self.name, follower.id));
        let mut streams = Streams {
            running: JoinMap::new(),
            registered: BTreeMap::new(),
            events,
            configuration: task.configuration.to_string(),
        };
        let mut endpoints = Endpoints::new(&self.name);
        loop {
            let now: Vec<Registration> = registrations
                .borrow_and_update()
                .of(&self.name)
                .cloned()
                .collect();
            streams.follow(&self, &now);
            let now = now.into_iter().map(|r| (r.endpoint, r.is_restored));
            endpoints.set(&now.collect_map(), began.elapsed());
            let turn = endpoints.turn(began.elapsed());
            // Before a handler has said something there is nothing to say of its devices.
            if turn.set != DeviceSet::default() {
                publish(turn.set, &task.found);
            }
            let wake = turn.wake.map(|wake| began + wake);
            tokio::select! {
                _ = registrations.changed() => {}
                Some((endpoint, event)) = happened.recv() => {
                    self.note(&endpoints, &endpoint, &event);
                    follower.note(&self.name, &endpoint, &event);
                    endpoints.happened(&endpoint, event, began.elapsed());
                }
                Some((endpoint, ended)) = streams.running.join_next() => {
                    // Others were ended because their endpoints are not registered any more.
                    if let Err(e) = ended && e.is_panic() {
                        return Err(DiscoveryError(format!("the stream of {endpoint} ended: {e}")));
                    }
                }
                () = sleep_until_or_never(wake) => {}
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
            }
            Event::Broken(why) => {
                metrics().count_failed_discovery(handler);
                if !was_broken {
                    warn!(handler, %endpoint, "discovery failed, and is tried again: {why}");
                }
            }
            Event::Refuses(why) => {
                metrics().count_failed_discovery(handler);
                warn!(handler, %endpoint, "the handler refuses discoveryDetails: {why}");
            }
        }
    }
}

/// This discovery, as the registrations know it.
struct Follower {
    id: u64,
    registrations: watch::Sender<Arc<Registrations>>,
    agent_began: Instant,
}

impl Follower {
    fn note(&self, handler: &str, endpoint: &Endpoint, event: &Event) {
        self.change(|all| match event {
            Event::Says(_) => all.answers(handler, endpoint, self.id),
            Event::Broken(_) | Event::Refuses(_) => {
                all.ended(Some(endpoint), self.id, self.agent_began.elapsed());
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Registrations)) {
        self.registrations.send_if_modified(|all| {
            change(Arc::make_mut(all));
            false // nobody waits for it
        });
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.change(|all| all.ended(None, self.id, self.agent_began.elapsed()));
    }
}

/// The tasks of the streams. They end with it.
struct Streams {
    running: JoinMap<Endpoint, ()>,
    /// The number of registrations of each endpoint.
    registered: BTreeMap<Endpoint, watch::Sender<u64>>,
    events: mpsc::Sender<(Endpoint, Event)>,
    /// The Configuration for which they run, as text.
    configuration: String,
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
            let isolated = registration.is_isolated;
            let stream = Stream {
                endpoint: endpoint.clone(),
                request: discovery.request.clone(),
                paths: registration.paths(&discovery.host_paths),
                isolated: isolated.then(|| Isolated {
                    known_devices: discovery.known_devices.clone(),
                    configuration: self.configuration.clone(),
                }),
                registered: times.subscribe(),
                events: self.events.clone(),
            };
            registered.insert(endpoint.clone(), times);
            running.spawn(endpoint.clone(), stream.run());
        }
    }
}
