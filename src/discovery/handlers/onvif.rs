//! Finds ONVIF cameras, as Akri's handler `onvif` does: by WS-Discovery on every interface and in named networks.
//!
//! This file connects the parts: the crate `petiole-onvif` knows the protocols, `plan` decides, `network` and `conversation` use
//! the network.
mod conversation;
mod credentials;
mod details;
mod network;
mod plan;
mod said;

use super::{
    super::{
        interface::{
            DetailsError, Discovery, DiscoveryError, DiscoveryHandler, Properties, Reads, Task,
        },
        part::{Bytes, Part},
        turns::Turns,
    },
    neighbour_table::NeighbourTable,
};
use crate::{
    discovery::publish::publish,
    model::device::{DeviceSet, Scope},
};
use credentials::Store;
use details::Details;
use ipnet::IpNet;
use network::Network;
use petiole_onvif::{Device as Found, Prober};
use plan::{Catalog, Outcome};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    task::{JoinSet, yield_now},
    time::{Instant, sleep_until},
};

/// The interval at which the interfaces of the machine are read.
const INTERFACES: Duration = Duration::from_secs(5);
/// The pause after datagrams were read. It bounds the work that others cause.
const AFTER_READ: Duration = Duration::from_millis(10);

/// The longest time of the first look: a camera that is new all the time, or fails, holds it up no longer.
const LOOK_MAX: Duration = Duration::from_mins(1);
/// The same while its cameras wait for those of other Configurations.
const LONGEST_LOOK: Duration = Duration::from_mins(10);

/// The most bytes of what the devices of all Configurations say; a namespace, and in it a Configuration, may have half of what the
/// others leave. Beyond it: further devices are left out.
const ALL_BYTES_MAX: usize = 8 << 20;

/// The most cameras of all Configurations that are asked at the same time: twice as many as of one. Beyond it: the others wait.
const ALL_ASKED_MAX: usize = 64;

/// Finds ONVIF cameras.
#[derive(Debug)]
pub struct Onvif {
    neighbours: Arc<NeighbourTable>,
    bytes: Bytes,
    turns: Turns,
}

impl Default for Onvif {
    fn default() -> Self {
        Self {
            neighbours: Arc::default(),
            bytes: Bytes::new(ALL_BYTES_MAX),
            turns: Turns::new(ALL_ASKED_MAX),
        }
    }
}

impl DiscoveryHandler for Onvif {
    fn name(&self) -> &'static str {
        "onvif"
    }

    /// A list of credentials names other properties.
    fn reads(&self) -> Reads {
        Reads::All
    }

    fn prepare(&self, details: &str, properties: &Properties) -> Result<Discovery, DetailsError> {
        let discovery = OnvifDiscovery {
            details: Arc::new(Details::parse(details)?),
            store: Arc::new(Store::read(properties)?),
            neighbours: self.neighbours.clone(),
            bytes: self.bytes.clone(),
            turns: self.turns.clone(),
        };
        Ok(Discovery::new(Scope::Shared, async move |task: Task| {
            let run = Run::new(&discovery, &task);
            run.follow(&discovery, &task.found).await
        }))
    }
}

#[derive(Clone)]
struct OnvifDiscovery {
    details: Arc<Details>,
    store: Arc<Store>,
    neighbours: Arc<NeighbourTable>,
    bytes: Bytes,
    turns: Turns,
}

/// The state of a running discovery.
struct Run {
    start: Instant,
    network: Network,
    prober: Prober,
    part: Part,
    catalog: Catalog,
    talks: JoinSet<(Arc<Found>, Outcome)>,
    /// When the interfaces are read next.
    links_at: Duration,
    /// When datagrams are read next.
    read_at: Duration,
}

impl Run {
    fn new(discovery: &OnvifDiscovery, task: &Task) -> Self {
        let probing = discovery.details.probing.clone();
        Self {
            start: Instant::now(),
            network: Network::new(),
            prober: Prober::new(probing, fastrand::u64(..), Duration::ZERO),
            part: Part::new(&discovery.bytes, &task.configuration),
            catalog: Catalog::new(discovery.details.clone()),
            talks: JoinSet::new(),
            links_at: Duration::ZERO,
            read_at: Duration::ZERO,
        }
    }

    async fn follow(
        mut self,
        discovery: &OnvifDiscovery,
        found: &watch::Sender<DeviceSet>,
    ) -> Result<(), DiscoveryError> {
        let mut was_complete = false;
        loop {
            let now = self.start.elapsed();
            if now >= self.links_at {
                self.read_links(&discovery.details, now)?;
            }
            let turn = self.prober.turn(now);
            self.part.set(self.prober.bytes());
            self.prober.limit_to(self.part.most());
            for probe in &turn.send {
                self.network.send(probe).await;
            }
            if turn.has_changed {
                self.catalog.set_cameras(self.prober.devices(), now);
            }
            for job in self.catalog.start(self.talks.len(), now) {
                let OnvifDiscovery {
                    details,
                    store,
                    neighbours,
                    bytes: _,
                    turns,
                } = discovery.clone();
                self.talks.spawn(async move {
                    let _turn = turns.begin().await;
                    let outcome = conversation::ask(&job, &details, &store, &neighbours).await;
                    (job.camera, outcome)
                });
            }
            let look_max = if discovery.turns.are_taken() {
                LONGEST_LOOK
            } else {
                LOOK_MAX
            };
            let is_settled = self.catalog.is_settled() || now >= look_max;
            let is_complete = self.prober.is_complete(now) && is_settled;
            if self.catalog.take_change() || is_complete != was_complete {
                // A camera that comes later does not make the first look incomplete again.
                was_complete |= is_complete;
                publish(devices(&self, was_complete), found);
            }
            let wake = [
                Some(self.links_at),
                self.catalog.wake(now),
                Some(self.read_at).filter(|at| *at > now),
            ];
            let wake = wake.into_iter().flatten().fold(turn.wake, Duration::min);
            tokio::select! {
                Some(ended) = self.talks.join_next() => {
                    let (camera, outcome) = ended.map_err(|e| DiscoveryError(e.to_string()))?;
                    self.catalog.finished(&camera, outcome, self.start.elapsed());
                }
                () = self.network.readable(), if now >= self.read_at => self.read(),
                () = sleep_until(self.start + wake) => {}
            }
            yield_now().await;
        }
    }

    fn read(&mut self) {
        let now = self.start.elapsed();
        let prober = &mut self.prober;
        self.network.receive(|source, bytes| {
            if !prober.receive(source, bytes, now) {
                tracing::debug!(%source, "a datagram is no message of a device");
            }
        });
        self.read_at = now + AFTER_READ;
    }

    /// Reads the interfaces. Those that appear later are used, too.
    fn read_links(&mut self, details: &Details, now: Duration) -> Result<(), DiscoveryError> {
        let is_first = self.links_at.is_zero();
        self.links_at = now + INTERFACES;
        let interfaces = &details.interfaces;
        let mut links = petiole_mdns::links().map_err(|e| DiscoveryError(e.to_string()))?;
        // Other machines cannot reach what this one has on its loopback interface.
        links.retain(|l| interfaces.uses(&l.name) && !(l.is_loopback && interfaces.are_all()));
        let near: Vec<IpNet> = links
            .iter()
            .flat_map(|link| link.addresses.clone())
            .collect();
        self.catalog.set_near(near);
        let paths = self.network.use_links(&links);
        if is_first && paths.is_empty() && details.probing.subnets.is_empty() {
            return Err(DiscoveryError(
                "no network interface to look for cameras on: every interface is down or left out by `interfaces`".into(),
            ));
        }
        self.prober.set_paths(paths, now);
        Ok(())
    }
}

fn devices(run: &Run, is_complete: bool) -> DeviceSet {
    DeviceSet {
        complete: is_complete,
        left_out: run.prober.has_left_out(),
        ..run.catalog.devices()
    }
}
