//! Decides which servers to ask, and which devices their answers make.
//!
//! Pure: a round of questions begins, [`Plan::due`] returns what to ask now, and the answers go in by [`Plan::hear`], in any order
//! and one at a time. A discovery server that is down takes none of its servers with it: each is asked itself.
use super::{
    details::Details,
    server::{Found, Said, Unoffered, device, offered_url},
};
use crate::model::{
    device::{DeviceId, DeviceSet},
    limits::cut,
};
use petiole_opcua::{Answer, EndpointUrl, Question};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The most servers that are asked for one Configuration. Beyond it: further ones are left out (`DiscoveryIncomplete`).
pub(super) const SERVERS_MAX: usize = 256;
/// The most bytes of what all servers of a Configuration have said. Beyond it: an answer is not used (`DiscoveryIncomplete`).
const BYTES_MAX: usize = 1 << 20;
/// The most bytes of what the servers of all Configurations have said; each may have half of what the others leave. Beyond it: an
/// answer is not used (`DiscoveryIncomplete`).
const ALL_BYTES_MAX: usize = 8 << 20;
/// The failures in a row after which a server is gone: a packet may be lost.
const FAILURES: u32 = 2;
/// The rounds after which the name of a host is looked up again.
const LOOKUP_ROUNDS: u64 = 6;
/// The longest text about one server in a problem, in bytes.
const PROBLEM_BYTES: usize = 500;

/// Something to do for the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ask {
    Server(EndpointUrl, Vec<Question>),
    /// Whether this node knows an address of a host.
    Lookup(String),
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Heard {
    Server(EndpointUrl, Result<Vec<Answer>, String>),
    Lookup(String, bool),
}

/// A server that is asked.
#[derive(Debug, Default)]
struct Asked {
    /// The last round in which it was asked.
    round: u64,
    /// What it has said, which stays until it says something else.
    said: Option<Said>,
    /// Why it did not answer the last time, and how often it did not in a row.
    error: Option<String>,
    failures: u32,
}

impl Asked {
    /// Returns what it has said, unless it is gone.
    fn alive(&self) -> Option<&Said> {
        self.said.as_ref().filter(|_| self.failures < FAILURES)
    }
}

pub(super) struct Plan {
    details: Details,
    round: u64,
    is_complete: bool,
    /// True if there are more servers than are asked: in the last round, and in this one.
    leaves_out: bool,
    leaves_out_now: bool,
    /// The bytes of what the servers of other Configurations have said.
    pub(super) other_bytes: usize,
    /// The addresses that were given: those of the details, and those that were announced.
    sources: Vec<EndpointUrl>,
    asked: BTreeMap<EndpointUrl, Asked>,
    /// The names of hosts, each with the round of its lookup, and whether this node knows its address, once that is known.
    hosts: BTreeMap<String, (u64, Option<bool>)>,
}

impl Plan {
    pub(super) fn new(details: Details) -> Self {
        Self {
            details,
            round: 0,
            is_complete: false,
            leaves_out: false,
            leaves_out_now: false,
            other_bytes: 0,
            sources: vec![],
            asked: BTreeMap::new(),
            hosts: BTreeMap::new(),
        }
    }

    /// Begins to ask everything anew. `announced` are the addresses that multicast DNS has at present.
    pub(super) fn begin(&mut self, announced: Vec<EndpointUrl>) {
        self.round += 1;
        self.leaves_out_now = false;
        self.sources.clone_from(&self.details.urls);
        for url in announced {
            if !self.sources.contains(&url) {
                self.sources.push(url);
            }
        }
    }

    /// Returns what to ask now. Nothing is left to do in a round when there is nothing, and nothing is being asked.
    pub(super) fn due(&mut self) -> Vec<Ask> {
        let mut questions = vec![Question::FindServers, Question::GetEndpoints];
        let mut wanted: Vec<(EndpointUrl, Vec<Question>)> = vec![];
        let further = self.on_network().into_iter();
        wanted.extend(further.map(|url| (url, questions.clone())));
        if self.details.asks_for_network {
            questions.push(Question::FindServersOnNetwork);
        }
        let sources = self
            .sources
            .iter()
            .map(|url| (url.clone(), questions.clone()));
        wanted.splice(0..0, sources);
        for found in self.found() {
            let is_answered = found.is_self && !self.has_no_endpoints(found.source);
            let url = found.url.filter(|url| !is_answered && url != found.source);
            wanted.extend(url.map(|url| (url, vec![Question::GetEndpoints])));
        }
        let mut due = vec![];
        for (url, questions) in wanted {
            if self.asked.len() >= SERVERS_MAX && !self.asked.contains_key(&url) {
                self.leaves_out = true;
                self.leaves_out_now = true;
                continue;
            }
            let asked = self.asked.entry(url.clone()).or_default();
            if asked.round < self.round {
                asked.round = self.round;
                due.push(Ask::Server(url, questions));
            }
        }
        for host in self.hosts_of_answers() {
            let (round, is_known) = self.hosts.get(&host).copied().unwrap_or_default();
            if round == 0 || self.round - round >= LOOKUP_ROUNDS {
                // What was known counts until the answer comes.
                self.hosts.insert(host.clone(), (self.round, is_known));
                due.push(Ask::Lookup(host));
            }
        }
        due
    }

    pub(super) fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Lookup(host, is_known) => {
                self.hosts.insert(host, (self.round, Some(is_known)));
            }
            Heard::Server(url, Ok(answers)) => {
                let names = &self.details.names;
                let said = Said::new(answers, |application| {
                    application.kind.is_server() && names.take(&application.name)
                });
                let free = self.most() - self.bytes();
                let asked = self.asked.entry(url).or_default();
                let before = asked.said.as_ref().map_or(0, Said::bytes);
                asked.failures = 0;
                asked.error = (said.bytes() > free + before).then(|| {
                    format!(
                        "its answers have {} bytes, and those of all servers of a Configuration {} KiB at most, and half of what other Configurations leave: divide discoveryUrls among several Configurations, or choose by applicationNames",
                        said.bytes(),
                        BYTES_MAX >> 10
                    )
                });
                if asked.error.is_none() {
                    asked.said = Some(said);
                }
            }
            Heard::Server(url, Err(why)) => {
                let asked = self.asked.entry(url).or_default();
                asked.error = Some(why);
                asked.failures = asked.failures.saturating_add(1);
            }
        }
    }

    /// Returns how many bytes the servers have said.
    pub(super) fn bytes(&self) -> usize {
        let said = self.asked.values().filter_map(|asked| asked.said.as_ref());
        said.map(Said::bytes).sum()
    }

    /// Returns how many bytes they may say.
    fn most(&self) -> usize {
        let share = ALL_BYTES_MAX.saturating_sub(self.other_bytes) / 2;
        share.min(BYTES_MAX).max(self.bytes())
    }

    /// Ends the round: what nobody wanted in it is forgotten, and each name is looked up again after a minute. `is_settled` says
    /// that everything that announces itself has had the time to.
    pub(super) fn end(&mut self, is_settled: bool) {
        let round = self.round;
        self.is_complete |= is_settled;
        self.leaves_out = self.leaves_out_now;
        self.asked.retain(|_, asked| asked.round == round);
        let used = self.hosts_of_answers();
        self.hosts.retain(|host, _| used.contains(host));
    }

    /// Returns what discovery servers know by multicast DNS, as many as are asked: who tells, and the address as it tells it.
    fn told_of_network(&self) -> impl Iterator<Item = (&EndpointUrl, &str)> {
        let told = self.sources.iter().flat_map(|source| {
            let said = self.asked.get(source).and_then(|asked| asked.said.as_ref());
            let urls = said.into_iter().flat_map(|said| &said.on_network);
            urls.map(move |url| (source, url.as_str()))
        });
        told.take(SERVERS_MAX)
    }

    /// Returns the addresses that discovery servers know by multicast DNS.
    fn on_network(&self) -> Vec<EndpointUrl> {
        let told = self.told_of_network();
        let offered = told
            .filter_map(|(source, url)| offered_url(url, source, &|host| self.knows(host)).ok());
        let mut urls: Vec<EndpointUrl> = vec![];
        for url in offered {
            if !urls.contains(&url) && !self.sources.contains(&url) {
                urls.push(url);
            }
        }
        urls
    }

    /// Returns the names in all answers that must be looked up.
    fn hosts_of_answers(&self) -> BTreeSet<String> {
        let found = self.found().into_iter();
        let advertised = found.map(|found| (found.source, found.advertised));
        let names = advertised
            .chain(self.told_of_network())
            .filter_map(|(source, url)| match offered_url(url, source, &|_| None) {
                Err(Unoffered::Lookup(host)) => Some(host),
                Ok(_) | Err(Unoffered::Bad(_)) => None,
            });
        names.collect()
    }

    /// Returns whether this node knows an address of a host, once that is known.
    fn knows(&self, host: &str) -> Option<bool> {
        self.hosts.get(host).and_then(|(_, is_known)| *is_known)
    }

    /// Returns the servers that the answers name, in the order of their sources, as many as are asked.
    fn found(&self) -> Vec<Found<'_>> {
        let sources = self.sources.iter().cloned().chain(self.on_network());
        let mut found = vec![];
        for source in sources {
            let Some((source, said)) = (self.asked.get_key_value(&source))
                .and_then(|(source, asked)| Some((source, asked.said.as_ref()?)))
            else {
                continue;
            };
            // One more than are asked, so that the last one is seen to be left out.
            let free = (SERVERS_MAX + 1).saturating_sub(found.len());
            let applications = said.applications.iter().take(free);
            found.extend(
                applications
                    .map(|application| Found::new(application, source, &|host| self.knows(host))),
            );
        }
        found
    }

    /// Returns whether a server tells of no endpoints at an address. Some tell of them only at the address that they have for
    /// themselves, to the letter.
    fn has_no_endpoints(&self, url: &EndpointUrl) -> bool {
        let said = self.asked.get(url).and_then(|asked| asked.said.as_ref());
        said.is_some_and(|said| said.endpoints.is_empty())
    }

    /// Returns the devices of all answers so far.
    pub(super) fn devices(&self) -> DeviceSet {
        let mut set = DeviceSet {
            complete: self.is_complete,
            ..DeviceSet::default()
        };
        for source in &self.sources {
            if let Some(why) = self
                .asked
                .get(source)
                .and_then(|asked| asked.error.as_ref())
            {
                set.problems
                    .push(cut(format!("{source}: {why}"), PROBLEM_BYTES));
            }
        }
        for found in self.found() {
            self.offer(&found, &mut set);
        }
        if self.leaves_out {
            set.left_out = true;
            set.problems.push(format!(
                "servers are left out: {SERVERS_MAX} are the most of a Configuration; name fewer discoveryUrls, or divide them among several"
            ));
        }
        set.problems.dedup();
        set
    }

    /// Adds the device of a server to a set, or says why it is none.
    fn offer(&self, found: &Found<'_>, set: &mut DeviceSet) {
        let (name, source) = (&found.application.name, found.source);
        let Some(url) = &found.url else {
            if let Some(why) = &found.unusable {
                let text = format!("{name:?}, of which {source} tells, is left out: {why}");
                set.problems.push(cut(text, PROBLEM_BYTES));
            }
            return;
        };
        let own = if found.is_self { source } else { url };
        let Some(asked) = self.asked.get(own) else {
            return;
        };
        if let Some(said) = asked.alive() {
            let by_its_address = self.asked.get(url).and_then(Asked::alive);
            let said = by_its_address
                .filter(|_| said.endpoints.is_empty())
                .unwrap_or(said);
            let id = DeviceId::new(url.as_str());
            let device = || Arc::new(device(found, url, said));
            set.devices.entry(id).or_insert_with(device);
        } else if let Some(why) = asked.error.as_ref().filter(|_| !found.is_self) {
            let text = format!("{url} ({name:?}), of which {source} tells: {why}");
            set.problems.push(cut(text, PROBLEM_BYTES));
        }
    }
}

#[cfg(test)]
mod tests;
