//! Which hosts are devices, by what they answered in the last rounds. Pure.
use super::{
    super::super::part::Part,
    details::{Details, Identity, Target},
};
use crate::model::{
    device::{Device, DeviceSet},
    limits::cut,
};
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
/// The longest text about a host in a problem, in bytes. Beyond it: the end is cut off.
const PROBLEM_MAX: usize = 500;
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

struct Known {
    answer: Answer,
    failures: u32,
    /// The round since which it has had its identity.
    since: u64,
}

/// The hosts of a discovery.
pub(super) struct Catalog {
    details: Arc<Details>,
    known: BTreeMap<Target, Known>,
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

    /// Ends a round.
    pub(super) fn end_round(&mut self) {
        self.round += 1;
        self.leaves_out = [self.leaves_out[1], false];
        let is_silent = |(target, known): &(&Target, &Known)| {
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
                    self.failures.insert(target, cut(why, PROBLEM_MAX));
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
        let known = Known {
            since: same.map_or(self.round, |known| known.since),
            answer,
            failures: 0,
        };
        self.bytes = bytes;
        self.known.insert(target, known);
    }

    /// Forgets a host. Returns what it was.
    fn forget(&mut self, target: &Target) -> Option<Known> {
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
        DeviceSet {
            devices,
            complete: is_complete,
            left_out,
            problems,
            troubles: vec![],
        }
    }

    fn id(&self, target: &Target, answer: &Answer) -> Option<String> {
        match self.details.identity {
            Identity::Address => Some(format!("{target}:{}", self.details.port)),
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

/// Returns one problem of several hosts.
fn such_as(count: usize, first: Option<&Target>, what: &str, why: &str) -> Option<String> {
    first.map(|first| format!("{count} {what}, such as {first}: {why}"))
}

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
        .collect()
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
mod tests {
    use super::{super::super::super::part::Bytes, *};
    use crate::model::typed_names::ConfigurationKey;
    use petiole_probe::certificate;

    fn catalog(details: &str, bytes: usize) -> Catalog {
        let part = Part::new(&Bytes::new(bytes), &ConfigurationKey::new("a", "b"));
        Catalog::new(
            Arc::new(Details::parse(details, "public").unwrap_or_else(|e| panic!("{e}"))),
            part,
            &[target("10.1.9.9")],
        )
    }

    fn target(address: &str) -> Target {
        Target::Address(address.parse().unwrap())
    }

    fn answer(address: &str, shown: &[u8]) -> Result<Answer, String> {
        Ok(Answer {
            address: format!("{address}:443").parse().unwrap(),
            mac: None,
            facts: certificate(shown),
        })
    }

    fn addresses(catalog: &Catalog) -> Vec<String> {
        let set = catalog.devices(true);
        set.devices
            .values()
            .map(|d| d.properties["PROBE_ADDRESS"].clone())
            .collect()
    }

    fn fails(catalog: &mut Catalog, address: &str) {
        catalog.hear(target(address), Err("no connection: why?".to_owned()));
    }

    /// The problems beside that of the address that is not asked.
    fn problems(catalog: &Catalog) -> Vec<String> {
        let mut problems = catalog.devices(true).problems;
        problems
            .retain(|problem| !problem.starts_with("1 addresses are not asked, such as 10.1.9.9"));
        problems
    }

    #[test]
    fn a_device_is_gone_after_three_rounds_without_an_answer_and_one_answer_starts_anew() {
        let mut catalog = catalog("{hosts: 10.1.2.0/24, ask: https}", 1 << 20);
        fails(&mut catalog, "10.1.2.3");
        catalog.end_round();
        assert!(problems(&catalog).is_empty(), "nobody is there");
        for answers in [true, true, false] {
            catalog.hear(target("10.1.2.3"), answer("10.1.2.3", b"a"));
            for _ in 0..2 {
                fails(&mut catalog, "10.1.2.3");
                catalog.end_round();
                assert_eq!(addresses(&catalog), ["10.1.2.3"]);
                let said = &problems(&catalog)[0];
                assert!(
                    said.starts_with("1 devices do not answer, such as 10.1.2.3"),
                    "{said}"
                );
            }
            if !answers {
                fails(&mut catalog, "10.1.2.3");
                catalog.end_round();
            }
        }
        assert!(addresses(&catalog).is_empty() && problems(&catalog).is_empty());
        assert_eq!((catalog.bytes, catalog.len()), (0, 0));
    }

    #[test]
    fn problems_are_few_however_many_hosts_do_not_answer() {
        let hosts: Vec<_> = (0..200).map(|n| format!("10.1.2.{n}")).collect();
        let details = format!("{{hosts: [{}, 10.1.3.0/24], ask: https}}", hosts.join(", "));
        let mut catalog = catalog(&details, 1 << 20);
        for host in &hosts {
            fails(&mut catalog, host);
        }
        for n in 1..200 {
            let address = format!("10.1.3.{n}");
            catalog.hear(target(&address), answer(&address, &[n]));
            fails(&mut catalog, &address);
        }
        catalog.end_round();
        let problems = problems(&catalog);
        assert_eq!(problems.len(), FAILURES_MAX + 2, "{problems:?}");
        assert!(
            problems[FAILURES_MAX].starts_with("184 more named hosts"),
            "{problems:?}"
        );
        assert!(
            problems[FAILURES_MAX + 1].starts_with("199 devices"),
            "{problems:?}"
        );
    }

    #[test]
    fn a_host_that_is_named_by_itself_is_a_problem_until_it_answers() {
        let mut catalog = catalog("{hosts: [10.1.2.3, plc], ask: https}", 1 << 20);
        for round in 0..5 {
            fails(&mut catalog, "10.1.2.3");
            assert_eq!(problems(&catalog).len(), 1, "{round}");
        }
        catalog.hear(Target::Name("plc".to_owned()), answer("10.1.2.4", b"b"));
        catalog.hear(target("10.1.2.3"), answer("10.1.2.3", b"a"));
        assert!(problems(&catalog).is_empty());
        let set = catalog.devices(true);
        let ids: Vec<_> = set.devices.keys().map(|id| id.as_str()).collect();
        assert_eq!(ids, ["10.1.2.3:443", "plc:443"]);
    }

    #[test]
    fn a_device_that_moves_stays_the_same_one_and_no_other_host_takes_its_identity() {
        let mut catalog = catalog("{hosts: 10.1.2.0/24, ask: tls}", 1 << 20);
        catalog.hear(target("10.1.2.3"), answer("10.1.2.3", b"a"));
        catalog.end_round();
        let id = catalog.devices(true).devices.keys().next().unwrap().clone();
        catalog.hear(target("10.1.2.2"), answer("10.1.2.2", b"a"));
        catalog.hear(target("10.1.2.9"), answer("10.1.2.9", b"a"));
        for _ in 0..2 {
            assert_eq!(addresses(&catalog), ["10.1.2.3"]);
            let problem = &problems(&catalog)[0];
            assert!(
                problem.starts_with("2 hosts are left out, such as 10.1.2.2"),
                "{problem}"
            );
            fails(&mut catalog, "10.1.2.3");
        }
        fails(&mut catalog, "10.1.2.3");
        assert_eq!(addresses(&catalog), ["10.1.2.2"]);
        catalog.end_round();
        catalog.hear(target("10.1.2.3"), answer("10.1.2.3", b"a"));
        assert_eq!(addresses(&catalog), ["10.1.2.2"]);
        catalog.hear(target("10.1.2.2"), answer("10.1.2.2", b"another"));
        assert_eq!(addresses(&catalog).len(), 2);
        let moved = &catalog.devices(true).devices[&id];
        assert_eq!(moved.properties["PROBE_ADDRESS"], "10.1.2.9");
    }

    #[test]
    fn one_address_is_one_device_whatever_its_names_are() {
        let mut catalog = catalog("{hosts: [plc, 10.1.2.3], ask: modbus}", 1 << 20);
        catalog.hear(Target::Name("plc".to_owned()), answer("10.1.2.3", b"a"));
        catalog.hear(target("10.1.2.3"), answer("10.1.2.3", b"a"));
        assert_eq!(addresses(&catalog), ["10.1.2.3"]);
        assert!(problems(&catalog)[0].starts_with("1 hosts are left out, such as plc"));
    }

    #[test]
    fn hosts_that_do_not_match_or_lack_their_identity_are_no_devices() {
        let filter = format!(
            "{{hosts: 10.1.2.0/24, ask: tls, match: {{PROBE_ADDRESS: {{regex: \"10[.]1[.]2[.]3\"}}}}}}"
        );
        let mut filtered = catalog(&filter, 1 << 20);
        filtered.hear(target("10.1.2.3"), answer("10.1.2.3", b"a"));
        filtered.hear(target("10.1.2.4"), answer("10.1.2.4", b"b"));
        assert_eq!(addresses(&filtered), ["10.1.2.3"]);
        let mut nameless = catalog("{hosts: 10.1.2.0/24, ask: tls, identity: mac}", 1 << 20);
        nameless.hear(target("10.1.2.3"), answer("10.1.2.3", b"a"));
        let set = nameless.devices(true);
        assert!(set.devices.is_empty() && set.problems[0].contains("`identity`"));
    }

    #[test]
    fn what_is_kept_is_bounded_and_devices_that_are_there_stay() {
        let mut catalog = catalog("{hosts: 10.1.2.0/24, ask: tls}", 4 * (ANSWER_BYTES + 200));
        for n in 1..9 {
            let address = format!("10.1.2.{n}");
            catalog.hear(target(&address), answer(&address, &[n]));
        }
        let set = catalog.devices(true);
        assert!(set.left_out && !set.is_whole() && (1..8).contains(&set.devices.len()));
        catalog.end_round();
        catalog.hear(target("10.1.2.1"), answer("10.1.2.1", b"another"));
        assert!(addresses(&catalog).contains(&"10.1.2.1".to_owned()));
        assert!(
            !catalog.devices(true).is_whole(),
            "until a round says otherwise"
        );
        catalog.end_round();
        assert!(catalog.devices(true).is_whole());
    }
}
