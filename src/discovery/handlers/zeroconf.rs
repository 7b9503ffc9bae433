//! Finds services that announce themselves by mDNS and DNS-SD (Bonjour, Avahi, zeroconf): cameras, printers, brokers,
//! hubs.
//!
//! This file connects the parts: `plan` decides, and the querier of the process, of the crate `petiole-mdns`, uses the
//! network.
mod address;
mod budget;
mod details;
mod environment;
mod events;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod notices;
mod plan;
mod service;
mod tracked;

use super::{
    super::{
        interface::{DetailsError, Discovery, DiscoveryError, DiscoveryHandler, Properties, Task},
        part::Bytes,
        turns::Turns,
    },
    problems::NO_MDNS_INTERFACE,
};
use crate::{discovery::publish::publish, model::device::DeviceId, telemetry::metrics};
use budget::ServiceBudget;
use details::Details;
use events::KnownServices;
use petiole_base::waits::sleep_until_or_never;
use petiole_mdns::{Counts, Found, Mdns};
use plan::Tracker;
use std::{collections::BTreeSet, time::Duration};
use tokio::time::{Instant, sleep_until};

/// The time after which the services are looked at again for which there was no room.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// Finds mDNS services of one kind. All discoveries of one handler share one querier, and take over its changes one after
/// another.
#[derive(Clone)]
pub struct Zeroconf {
    mdns: Mdns,
    turns: Turns,
    bytes: Bytes,
}

impl Default for Zeroconf {
    fn default() -> Self {
        Self {
            mdns: Mdns::observed(count),
            turns: Turns::new(1),
            bytes: budget::all_bytes(),
        }
    }
}

/// Adds what the querier has counted to the metrics of the process.
fn count(counts: &Counts) {
    let ignored = counts.ignored.iter();
    let ignored = ignored.map(|(reason, count)| (reason.label(), *count));
    let all = [("sent", counts.sent), ("received", counts.received)];
    metrics().mdns.count_packets(all.into_iter().chain(ignored));
    metrics().mdns.count_records(counts.refused, counts.records);
}

impl Zeroconf {
    /// Returns the querier, for handlers whose devices may announce themselves, too: a process needs one.
    pub(super) fn mdns(&self) -> Mdns {
        self.mdns.clone()
    }
}

impl DiscoveryHandler for Zeroconf {
    fn name(&self) -> &'static str {
        "zeroconf"
    }

    fn prefer(&self, devices: &BTreeSet<DeviceId>) {
        let names = devices.iter().map(|id| id.as_str().to_ascii_lowercase());
        self.mdns.prefer(names.collect());
    }

    fn prepare(&self, details: &str, _: &Properties) -> Result<Discovery, DetailsError> {
        let (details, zeroconf) = (Details::parse(details)?, self.clone());
        let scope = details.scope;
        Ok(Discovery::new(scope, |task| zeroconf.follow(details, task)))
    }
}

impl Zeroconf {
    /// Publishes the devices at each change of the services, until the querier ends.
    async fn follow(self, details: Details, task: Task) -> Result<(), DiscoveryError> {
        let start = Instant::now();
        let mut subscription = self.mdns.subscribe(details.wanted());
        let mut known = KnownServices::new(details.changes_at_once());
        let budget = ServiceBudget::within(&self.bytes, &task.configuration);
        let mut tracker = Tracker::new(details, budget);
        let (mut is_news, mut look_again) = (false, start + LOOK_AGAIN);
        loop {
            let turn = self.turns.take(|| {
                let now = start.elapsed();
                if is_news {
                    let services = subscription.found.borrow_and_update();
                    check(&services)?;
                    for event in known.events(&services) {
                        tracker.apply(event, now);
                    }
                }
                tracker.is_behind = known.is_behind();
                Ok::<_, DiscoveryError>(tracker.turn(now))
            });
            let turn = turn.await?;
            if let Some(devices) = turn.publish {
                publish(devices, &task.found);
            }
            is_news = known.is_behind();
            if is_news {
                continue;
            }
            let wake = turn.wake.map(|wake| start + wake);
            tokio::select! {
                biased;
                changed = subscription.found.changed() => {
                    changed.map_err(|_| DiscoveryError("the mDNS querier has ended".into()))?;
                    is_news = true;
                }
                () = sleep_until_or_never(wake) => {}
                () = sleep_until(look_again) => {
                    // What did not fit, here or into the Configuration's part, may fit now.
                    look_again = Instant::now() + LOOK_AGAIN;
                    known.look_again(tracker.look_again());
                    publish(tracker.published(), &task.found);
                    is_news = true;
                }
            }
        }
    }
}

/// Returns an error if a browse begins without an interface. An interface that disappears later may come back.
fn check(found: &Found) -> Result<(), DiscoveryError> {
    if found.interfaces != Some(0) || found.has_begun {
        return Ok(());
    }
    Err(DiscoveryError(NO_MDNS_INTERFACE.into()))
}
