//! Finds devices that announce nothing: asks hosts of given networks, at a bounded rate, by a protocol that identifies them.
//!
//! This file connects the parts: the crate `petiole-probe` knows the protocols, `networks` says who may be asked, `ask` uses the network,
//! and `plan` decides.
mod ask;
mod details;
mod networks;
mod plan;
mod rate;
mod tls;

pub use networks::{AllowedNetwork, Networks};

use super::{
    super::{
        interface::{
            DetailsError, Discovery, DiscoveryError, DiscoveryHandler, Properties, Reads, Task,
        },
        part::{Bytes, Part},
        turns::Turns,
    },
    certificates::unfit,
    neighbour_table::NeighbourTable,
};
use crate::{discovery::publish::publish, model::device::DeviceSet};
use ask::{PUBLIC, Settings};
use details::{Details, PER_SECOND_MAX, Target};
use futures::{StreamExt as _, stream};
use petiole_probe::Question;
use plan::{Catalog, ROUNDS};
use rate::Rate;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// The most hosts that are asked at the same time, of all Configurations. Beyond it: the others wait.
const AT_ONCE_MAX: usize = 256;
/// The most hosts that are asked at the same time, of one Configuration. Beyond it: its others wait.
const OWN_AT_ONCE_MAX: usize = 128;
/// The most bytes of what is kept of the answers of all Configurations; a namespace, and in it a Configuration, may have half of what
/// the others leave. Beyond it: devices that come later are left out (`DiscoveryIncomplete`).
const ALL_BYTES_MAX: usize = 16 << 20;
/// The longest community, in bytes. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const COMMUNITY_MAX: usize = 255;
const COMMUNITY: &str = "community";
const CA: &str = "ca";
/// The shortest time between two sets of devices.
const BETWEEN_SETS: Duration = Duration::from_millis(200);
/// The time between two lines about a round, for `petiole discover`.
const BETWEEN_LINES: Duration = Duration::from_secs(2);

/// Finds devices that announce nothing.
pub struct Probe {
    networks: Networks,
    turns: Turns,
    rate: Arc<Rate>,
    bytes: Bytes,
    neighbours: Arc<NeighbourTable>,
}

impl Probe {
    /// Creates the handler. Only hosts of these networks are asked.
    pub fn new(networks: Networks) -> Self {
        Self {
            networks,
            turns: Turns::new(AT_ONCE_MAX),
            rate: Arc::new(Rate::new(PER_SECOND_MAX)),
            bytes: Bytes::new(ALL_BYTES_MAX),
            neighbours: Arc::default(),
        }
    }
}

impl DiscoveryHandler for Probe {
    fn name(&self) -> &'static str {
        "probe"
    }

    fn reads(&self) -> Reads {
        Reads::Only(&[COMMUNITY, CA])
    }

    fn prepare(&self, details: &str, properties: &Properties) -> Result<Discovery, DetailsError> {
        let value = |name: &str| properties.get(name).map(String::as_str);
        let community = value(COMMUNITY);
        let details = Details::parse(details, community.unwrap_or(PUBLIC))?;
        let is_fit = |text: &str| {
            let is_snmp = matches!(details.question, Some(Question::Snmp(_)));
            is_snmp && (1..=COMMUNITY_MAX).contains(&text.len())
        };
        if !community.is_none_or(is_fit) {
            let why = format!("it is for `ask: snmp`, and has 1 to {COMMUNITY_MAX} bytes");
            return Err(unfit(COMMUNITY, &why));
        }
        if value(CA).is_some() && !details.is_tls {
            return Err(unfit(CA, "what `ask` names has no TLS"));
        }
        self.networks.check(&details.hosts)?;
        let scope = details.scope;
        let settings = Settings {
            details: Arc::new(details),
            networks: self.networks.clone(),
            special: self.networks.special(),
            tls: tls::config(value(CA))?,
            neighbours: self.neighbours.clone(),
        };
        let discovery = Arc::new(ProbeDiscovery {
            settings,
            turns: self.turns.clone(),
            rate: self.rate.clone(),
            bytes: self.bytes.clone(),
        });
        Ok(Discovery::new(scope, |task| discovery.follow(task)))
    }
}

struct ProbeDiscovery {
    settings: Settings,
    turns: Turns,
    rate: Arc<Rate>,
    bytes: Bytes,
}

/// Keeps what is known of the hosts, and tells it.
struct SeenHosts {
    catalog: Catalog,
    is_complete: bool,
    found: watch::Sender<DeviceSet>,
}

impl SeenHosts {
    fn publish(&self) {
        publish(self.catalog.devices(self.is_complete), &self.found);
    }
}

impl ProbeDiscovery {
    /// Asks all hosts in rounds without end.
    async fn follow(self: Arc<Self>, task: Task) -> Result<(), DiscoveryError> {
        let details = &self.settings.details;
        let may_ask = |target: &Target| match target {
            Target::Address(ip) => self.settings.may_ask(*ip),
            Target::Name(_) => true,
        };
        let (targets, unnamed): (Vec<_>, Vec<_>) = details.targets().partition(may_ask);
        let part = Part::new(&self.bytes, &task.configuration);
        let mut seen = SeenHosts {
            catalog: Catalog::new(details.clone(), part, &unnamed),
            is_complete: false,
            found: task.found,
        };
        let own_rate = Arc::new(Rate::new(details.per_second));
        // A host that is silent once may be there: a device of which nothing is known yet has its three rounds at once.
        let mut began = Instant::now();
        let mut silent = targets.clone();
        for _ in 0..ROUNDS {
            silent = self.ask(silent, &own_rate, &mut seen).await;
        }
        seen.is_complete = true;
        loop {
            seen.catalog.end_round();
            seen.publish();
            sleep_until(began + details.interval).await;
            began = Instant::now();
            self.ask(targets.clone(), &own_rate, &mut seen).await;
        }
    }

    /// Asks hosts once. Returns those that did not answer.
    async fn ask(
        self: &Arc<Self>,
        mut targets: Vec<Target>,
        own_rate: &Arc<Rate>,
        seen: &mut SeenHosts,
    ) -> Vec<Target> {
        // The nodes do not meet at one host.
        fastrand::shuffle(&mut targets);
        let total = targets.len();
        // The one chain of turns bounds how many wait, and nobody holds a turn while it waits for its own rate.
        let (me, own_rate) = (self.clone(), own_rate.clone());
        let known = |target: Target| {
            let address = seen.catalog.address_of(&target);
            (target, address)
        };
        let targets: Vec<_> = targets.into_iter().map(known).collect();
        let begun = stream::iter(targets).then(move |target| {
            let (me, own_rate) = (me.clone(), own_rate.clone());
            async move {
                own_rate.turn().await;
                let turn = me.turns.begin().await;
                me.rate.turn().await;
                (target, turn, me)
            }
        });
        let heard = begun.map(|((target, known), turn, me)| async move {
            let heard = ask::ask(&target, known, &me.settings).await;
            drop(turn);
            (target, heard)
        });
        let mut heard = Box::pin(heard.buffer_unordered(OWN_AT_ONCE_MAX));
        let (mut count, mut silent) = (0, vec![]);
        let mut publish_at = Instant::now();
        let mut line_at = publish_at + BETWEEN_LINES;
        while let Some((target, heard)) = heard.next().await {
            count += 1;
            if heard.is_err() {
                silent.push(target.clone());
            }
            seen.catalog.hear(target, heard);
            let now = Instant::now();
            if now >= publish_at {
                seen.publish();
                publish_at = now + BETWEEN_SETS;
            }
            if now >= line_at {
                let devices = seen.catalog.len();
                tracing::debug!(target: "petiole::progress", "{count} of {total} hosts are asked, {devices} are devices");
                line_at = now + BETWEEN_LINES;
            }
        }
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_that_would_have_no_effect_is_refused() {
        let refusal = |ask: &str, name: &str, value: &str| {
            let properties = Properties::from([(name.to_owned(), value.to_owned())]);
            let details = format!("{{hosts: 10.1.2.3, ask: {ask}}}");
            let prepared = Probe::new(Networks::ALL).prepare(&details, &properties);
            prepared.err().map(|e| e.to_string())
        };
        assert_eq!(refusal("snmp", COMMUNITY, "plant"), None);
        for (ask, name, value, said) in [
            ("https", CA, "", "it has no certificates in PEM"),
            ("{redfish: {tls: false}}", CA, "", "has no TLS"),
            ("snmp", CA, "", "has no TLS"),
            ("snmp", COMMUNITY, "", "has 1 to 255 bytes"),
            ("modbus", COMMUNITY, "plant", "it is for `ask: snmp`"),
        ] {
            let refusal = refusal(ask, name, value).unwrap_or_default();
            assert!(refusal.contains(said), "{ask} {name}: {refusal}");
        }
    }
}
