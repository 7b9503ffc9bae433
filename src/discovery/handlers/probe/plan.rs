//! Which hosts are devices, by what they answered in the last rounds. Pure.
use super::{
    super::{
        super::part::Part,
        problems::{problem, such_as},
    },
    details::{Details, Identity, Target},
};
use crate::model::device::{Device, DeviceSet};
use petiole_base::collect::CollectMap as _;
use petiole_probe::Facts;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

/// The rounds in a row without an answer after which a device is gone.
pub(super) const ROUNDS: u32 = 3;
/// The most problems of single hosts. Beyond it: the others are counted.
const FAILURES_MAX: usize = 16;
/// The bytes of an answer beside its texts.
const ANSWER_BYTES: usize = 512;

/// What a host answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) address: SocketAddr,
    pub(super) mac: Option<String>,
    pub(super) facts: Facts,
}

impl Answer {
    fn bytes(&self) -> usize {
        let texts = self
            .facts
            .iter()
            .map(|(name, value)| name.len() + value.len());
        ANSWER_BYTES + texts.sum::<usize>()
    }
}

struct KnownHost {
    answer: Answer,
    failures: u32,
    /// The round since which it has had its identity.
    since: u64,
}

/// The hosts of a discovery.
pub(super) struct Catalog {
    details: Arc<Details>,
    known: BTreeMap<Target, KnownHost>,
    /// Why hosts that are named by themselves do not answer.
    failures: BTreeMap<Target, String>,
    /// What the last round says of other devices that do not answer.
    silent: Option<String>,
    round: u64,
    part: Part,
    bytes: usize,
    /// Whether devices were left out, in the last round and in this one.
    leaves_out: [bool; 2],
    /// What is said of the addresses that must be named to be asked.
    unnamed: Option<String>,
}

impl Catalog {
    /// `unnamed` are the addresses that are not asked.
    pub(super) fn new(details: Arc<Details>, part: Part, unnamed: &[Target]) -> Self {
        Self {
            details,
            known: BTreeMap::new(),
            failures: BTreeMap::new(),
            silent: None,
            round: 0,
            part,
            bytes: 0,
            leaves_out: [false; 2],
            unnamed: such_as(
                unnamed.len(),
                unnamed.first(),
                "addresses are not asked",
                UNNAMED,
            ),
        }
    }

    /// Returns the address at which a host has answered.
    pub(super) fn address_of(&self, target: &Target) -> Option<SocketAddr> {
        Some(self.known.get(target)?.answer.address)
    }

    /// Ends a round.
    pub(super) fn end_round(&mut self) {
        self.round += 1;
        self.leaves_out = [self.leaves_out[1], false];
        let is_silent = |(target, known): &(&Target, &KnownHost)| {
            known.failures > 0 && !self.details.is_named(target)
        };
        let mut silent = self
            .known
            .iter()
            .filter(is_silent)
            .map(|(target, _)| target);
        let first = silent.next();
        self.silent = such_as(1 + silent.count(), first, "devices do not answer", SILENT);
    }

    /// Takes what a host answered.
    pub(super) fn hear(&mut self, target: Target, heard: Result<Answer, String>) {
        match heard {
            Ok(answer) => self.take(target, answer),
            Err(why) => {
                tracing::debug!("{target}: {why}");
                let known = self.known.get_mut(&target);
                let failures = known.map_or(0, |known| {
                    known.failures += 1;
                    known.failures
                });
                if failures >= ROUNDS {
                    self.forget(&target);
                }
                if self.details.is_named(&target) {
                    self.failures.insert(target, problem(why));
                }
            }
        }
        self.part.set(self.bytes);
    }

    fn take(&mut self, target: Target, answer: Answer) {
        let before = self.forget(&target);
        if !self.is_wanted(&answer) {
            return tracing::debug!("{target}: it answers, and does not fit `match`");
        }
        let bytes = self.bytes + answer.bytes();
        // A device that is there keeps its place.
        if before.is_none() && bytes > self.part.most() {
            self.leaves_out[1] = true;
            return;
        }
        let same =
            before.filter(|known| self.id(&target, &known.answer) == self.id(&target, &answer));
        let known = KnownHost {
            since: same.map_or(self.round, |known| known.since),
            answer,
            failures: 0,
        };
        self.bytes = bytes;
        self.known.insert(target, known);
    }

    /// Forgets a host. Returns what it was.
    fn forget(&mut self, target: &Target) -> Option<KnownHost> {
        self.failures.remove(target);
        let known = self.known.remove(target);
        self.bytes -= known.as_ref().map_or(0, |known| known.answer.bytes());
        known
    }

    fn is_wanted(&self, answer: &Answer) -> bool {
        let properties = properties(answer);
        self.details.filters.iter().all(|(name, filter)| {
            properties
                .get(name)
                .is_some_and(|value| filter.matches(value))
        })
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns the devices and the problems.
    pub(super) fn devices(&self, is_complete: bool) -> DeviceSet {
        let port = self.details.port;
        let failures = self.failures.iter().take(FAILURES_MAX);
        let failures = failures.map(|(target, why)| format!("{target}:{port}: {why}"));
        let mut problems: Vec<String> = failures.collect();
        let (mut nameless, mut twins) = (vec![], vec![]);
        let (mut devices, mut taken) = (BTreeMap::new(), BTreeSet::new());
        let mut known: Vec<_> = self.known.iter().collect();
        // Whoever says an identity later is no device while another host has it.
        known.sort_by_key(|(_, known)| known.since);
        for (target, known) in known {
            let Some(id) = self.id(target, &known.answer) else {
                nameless.push(target);
                continue;
            };
            // One address is one device, whatever its names are.
            let is_new = match self.details.identity {
                Identity::Address => taken.insert(known.answer.address.to_string()),
                Identity::Mac | Identity::Fact(_) => taken.insert(id.clone()),
            };
            if is_new {
                let device = device(&id, target, &known.answer);
                devices.insert(device.id.clone(), Arc::new(device));
            } else {
                twins.push(target);
            }
        }
        let others = self.failures.keys().skip(FAILURES_MAX);
        for (hosts, what, why) in [
            (
                others.collect(),
                "more named hosts do not answer",
                "as above",
            ),
            (nameless, "hosts are left out", NAMELESS),
            (twins, "hosts are left out", TWINS),
        ] {
            problems.extend(such_as(hosts.len(), hosts.first().copied(), what, why));
        }
        problems.extend(self.silent.clone());
        problems.extend(self.unnamed.clone());
        let left_out = self.leaves_out.contains(&true);
        problems.extend(left_out.then(|| LEFT_OUT.to_owned()));
        self.details.only.of(DeviceSet {
            devices,
            complete: is_complete,
            left_out,
            problems,
            troubles: vec![],
        })
    }

    fn id(&self, target: &Target, answer: &Answer) -> Option<String> {
        match self.details.identity {
            Identity::Address => Some(self.details.id(target)),
            Identity::Mac => answer.mac.clone(),
            Identity::Fact(name) => answer.facts.get(name).map(str::to_owned),
        }
    }
}

const NAMELESS: &str =
    "what `identity` names is not known of them; set `identity` to another property";
const TWINS: &str =
    "others have the same identity; if they are other devices, set `identity` to another property";
const SILENT: &str = "each is gone after three rounds without an answer";
const UNNAMED: &str = "networks of this machine, of links, of clouds' metadata and of the cluster are asked only if an entry of `hosts` lies within them (and one of the chart's probe.networks)";
const LEFT_OUT: &str = "devices are left out, because there is more text about them than is kept: name fewer hosts, or `match` fewer";

fn properties(answer: &Answer) -> BTreeMap<String, String> {
    let facts = answer
        .facts
        .iter()
        .map(|(name, value)| (name, value.to_owned()));
    let more = [
        ("ADDRESS", Some(answer.address.ip().to_string())),
        ("PORT", Some(answer.address.port().to_string())),
        ("MAC_ADDRESS", answer.mac.clone()),
    ];
    let more = more
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    facts
        .chain(more)
        .map(|(name, value)| (format!("PROBE_{name}"), value))
        .collect_map()
}

fn device(id: &str, target: &Target, answer: &Answer) -> Device {
    let mut device = Device::new(id);
    device.properties = properties(answer);
    if let Target::Name(name) = target {
        device
            .properties
            .insert("PROBE_HOST".to_owned(), name.clone());
    }
    device.connection = ["PROBE_ADDRESS", "PROBE_PORT"].map(str::to_owned).into();
    device
}

#[cfg(test)]
mod tests;
