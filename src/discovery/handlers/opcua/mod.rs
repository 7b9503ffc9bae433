//! Finds OPC UA servers: asks those that are named, and discovery servers, who is there.
//!
//! Details and properties are those of Akri's handler `opcua`, and a few more. This file connects the parts: `plan` decides, and
//! `ask` is one conversation, whose messages are in the crate `petiole-opcua`. Libraries of the whole protocol were weighed: `opcua`
//! is abandoned with known vulnerabilities, `async-opcua` has a licence that we do not take and 175 crates, and `open62541` is C.
//! Discovery needs six messages of it.
mod announced;
mod ask;
mod details;
mod plan;
mod server;

use super::super::{DetailsError, Discovery, DiscoveryError, DiscoveryHandler, turns::Turns};
use crate::model::device::{DeviceSet, Scope};
use details::Details;
use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use petiole_mdns::{Mdns, Subscription};
use petiole_opcua::EndpointUrl;
use plan::{Ask, Heard, Plan};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// The most conversations and lookups at the same time, of all Configurations. Beyond it: the others wait.
const AT_ONCE_MAX: usize = 16;
/// The time from one round of questions to the next, as in Akri.
const INTERVAL: Duration = Duration::from_secs(10);
/// The shortest time between two rounds, whatever is announced.
const INTERVAL_MIN: Duration = Duration::from_secs(2);
/// The time after which a server that announces itself has been heard, or is absent.
const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// Finds OPC UA servers.
pub struct Opcua {
    mdns: Mdns,
    turns: Turns,
    bytes: Arc<AtomicUsize>,
}

impl Opcua {
    /// Creates the handler. `mdns` is the querier of the process.
    pub fn new(mdns: Mdns) -> Self {
        Self {
            mdns,
            turns: Turns::new(AT_ONCE_MAX),
            bytes: Arc::default(),
        }
    }
}

impl DiscoveryHandler for Opcua {
    fn name(&self) -> &'static str {
        "opcua"
    }

    fn prepare(&self, details: &str) -> Result<Box<dyn Discovery>, DetailsError> {
        Ok(Box::new(OpcuaDiscovery {
            details: Details::parse(details)?,
            mdns: self.mdns.clone(),
            turns: self.turns.clone(),
            bytes: Bytes {
                all: self.bytes.clone(),
                own: 0,
            },
        }))
    }
}

struct OpcuaDiscovery {
    details: Details,
    mdns: Mdns,
    turns: Turns,
    bytes: Bytes,
}

/// The bytes that a discovery keeps, among those of all.
struct Bytes {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl Bytes {
    /// Takes over the bytes of this discovery. Returns those of the others.
    fn set(&mut self, own: usize) -> usize {
        self.all.fetch_add(own, Ordering::Relaxed);
        let all = self.all.fetch_sub(self.own, Ordering::Relaxed);
        let others = all.saturating_sub(self.own + own);
        self.own = own;
        others
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl Discovery for OpcuaDiscovery {
    fn scope(&self) -> Scope {
        self.details.scope
    }

    fn run(
        self: Box<Self>,
        found: watch::Sender<DeviceSet>,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, Result<(), DiscoveryError>> {
        Box::pin(async move {
            let interfaces = self.details.mdns.clone();
            let mut announced =
                interfaces.map(|interfaces| self.mdns.subscribe(announced::wanted(interfaces)));
            let run = Box::pin(self.follow(&mut announced, &found));
            let ended = shutdown.run_until_cancelled(run).await;
            if let Some(subscription) = announced {
                subscription.close().await;
            }
            ended.unwrap_or(Ok(()))
        })
    }
}

impl OpcuaDiscovery {
    /// Asks all servers in rounds, and publishes the devices after each answer.
    async fn follow(
        mut self: Box<Self>,
        announced: &mut Option<Subscription>,
        found: &watch::Sender<DeviceSet>,
    ) -> Result<(), DiscoveryError> {
        let start = Instant::now();
        let mut plan = Plan::new(self.details.clone());
        loop {
            let began = Instant::now();
            let urls = urls(announced);
            plan.begin(urls.clone());
            let mut asking = FuturesUnordered::new();
            loop {
                asking.extend(plan.due().into_iter().map(|ask| self.turns.ask(ask)));
                let Some(heard) = asking.next().await else {
                    break;
                };
                plan.other_bytes = self.bytes.set(plan.bytes());
                plan.hear(heard);
                publish(plan.devices(), found);
            }
            let is_settled = announced.is_none() || start.elapsed() >= SETTLED_AFTER;
            plan.end(is_settled);
            publish(plan.devices(), found);
            let next = began + INTERVAL;
            let next = if is_settled {
                next
            } else {
                next.min(start + SETTLED_AFTER)
            };
            tokio::select! {
                () = sleep_until(next) => {}
                changed = changed(announced, &urls) => {
                    changed?;
                    sleep_until(began + INTERVAL_MIN).await;
                }
            }
        }
    }
}

impl Turns {
    /// Does what the plan asks for, when it is its turn.
    async fn ask(&self, ask: Ask) -> Heard {
        let _turn = self.begin().await;
        match ask {
            Ask::Server(url, questions) => {
                let answers = ask::ask(&url, &questions).await;
                Heard::Server(url, answers)
            }
            Ask::Lookup(host) => {
                let is_known = ask::resolves(&host).await;
                Heard::Lookup(host, is_known)
            }
        }
    }
}

fn urls(announced: &mut Option<Subscription>) -> Vec<EndpointUrl> {
    let found = announced.as_mut().map(|s| s.found.borrow_and_update());
    found.map_or_else(Vec::new, |found| announced::urls(&found))
}

/// Waits until other addresses are announced.
async fn changed(
    announced: &mut Option<Subscription>,
    before: &[EndpointUrl],
) -> Result<(), DiscoveryError> {
    let Some(subscription) = announced else {
        return std::future::pending().await;
    };
    let is_other = subscription
        .found
        .wait_for(|found| announced::urls(found) != before)
        .await;
    is_other
        .map(drop)
        .map_err(|_| DiscoveryError("the mDNS querier has ended".into()))
}

fn publish(devices: DeviceSet, found: &watch::Sender<DeviceSet>) {
    found.send_if_modified(|last| {
        for problem in (devices.problems.iter()).filter(|p| !last.problems.contains(p)) {
            warn!("{problem}");
        }
        let is_new = |(id, _): &(&_, &_)| !last.devices.contains_key(*id);
        for (id, device) in devices.devices.iter().filter(is_new) {
            if let Some(own) = device.properties.get("OPCUA_ADVERTISED_URL") {
                warn!("{id} is offered instead of {own}, whose host this node does not know or cannot reach");
            }
        }
        let is_changed = *last != devices;
        *last = devices;
        is_changed
    });
}
