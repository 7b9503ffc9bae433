//! Decides whom to ask, and which servers answer. Pure.
use crate::{
    answer::{Answer, Application, Endpoint, Question},
    reach::{Unoffered, offered_url},
    said::{Found, Said},
    url::EndpointUrl,
};
use std::collections::{BTreeMap, BTreeSet};

/// The most servers that are asked for one survey. Beyond it: further ones are left out, and that is said.
pub const SERVERS_MAX: usize = 256;
/// The most bytes of what all servers of a survey have said. Beyond it: an answer is not used, and that is said.
const BYTES_MAX: usize = 1 << 20;
/// The failures in a row after which a server is gone: a packet may be lost.
const FAILURES: u32 = 2;
/// The failures in a row after which a server is asked in every third round only: one that is off takes the whole time of an answer.
const OFF_AFTER: u32 = 6;
/// The rounds after which the name of a host is looked up again.
const LOOKUP_ROUNDS: u64 = 6;
/// The lookups in a row that must fail until a name is unknown: one that was never known, and one that was. The DNS server may be away,
/// and a server that is reached by another address has another identity.
const UNKNOWN_AFTER: (u32, u32) = (2, 30);

/// Something to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// A server, these questions.
    Server(EndpointUrl, Vec<Question>),
    /// Whether this machine knows an address of a host.
    Lookup(String),
}

/// What came of it.
#[derive(Debug)]
pub enum Heard {
    /// The answers of a server, or why there are none.
    Server(EndpointUrl, Result<Vec<Answer>, String>),
    /// Whether this machine knows an address of a host.
    Lookup(String, bool),
}

/// The servers that answer now.
#[derive(Debug, Default)]
pub struct Seen<'a> {
    /// The servers, by the address at which they are reached.
    pub servers: BTreeMap<EndpointUrl, FoundServer<'a>>,
    /// True if there may be others that are not asked.
    pub leaves_out: bool,
    /// Who does not answer, and why, with the address.
    pub problems: Vec<String>,
}

/// A server that answers.
#[derive(Debug)]
pub struct FoundServer<'a> {
    /// What it says about itself.
    pub application: &'a Application,
    /// The address at which it is reached from here.
    pub url: EndpointUrl,
    /// The address that it gives itself.
    pub advertised: &'a str,
    /// Its endpoints, as it tells of them.
    pub endpoints: &'a [Endpoint],
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

/// The name of a host. One lookup that finds nothing is no answer, because a packet may be lost: a name of which nothing is known is
/// looked up once more at once, and one that was known in each round.
#[derive(Debug, Default)]
struct Host {
    /// The round of its last lookup.
    round: u64,
    is_asked: bool,
    /// Whether this machine knows its address, once that is known.
    is_known: Option<bool>,
    /// The lookups in a row that found none.
    failures: u32,
}

impl Host {
    fn is_due(&self, round: u64) -> bool {
        let rounds = match (self.failures, self.is_known) {
            (1.., None) => 0,
            (1.., Some(true)) => 1,
            (0, _) | (1.., Some(false)) => LOOKUP_ROUNDS,
        };
        !self.is_asked && (self.round == 0 || round - self.round >= rounds)
    }

    fn learn(&mut self, is_known: bool) {
        (self.is_asked, self.failures) = (false, self.failures.saturating_add(1));
        let (never, once) = UNKNOWN_AFTER;
        let enough = if self.is_known.is_some() { once } else { never };
        if is_known {
            (self.is_known, self.failures) = (Some(true), 0);
        } else if self.failures >= enough {
            self.is_known = Some(false);
        }
    }
}

impl Asked {
    /// Returns the question that it refuses and has answered before: a server that starts or ends does. It is a failure, and the last
    /// answer stays for as long as after others.
    fn no_longer_answered(&self, answers: &[Answer]) -> Option<String> {
        let before = self.said.as_ref()?;
        answers.iter().find_map(|answer| {
            let Answer::Refused(question, status) = answer else {
                return None;
            };
            let why = || format!("the server answered {question} with {status}");
            before.has(*question).then(why)
        })
    }

    /// Returns what it has said, unless it is gone.
    fn alive(&self) -> Option<&Said> {
        self.said.as_ref().filter(|_| self.failures < FAILURES)
    }
}

/// Whom to ask, round by round, and who has answered.
///
/// A round [begins](Survey::begin); [`Survey::due`] returns what to ask now, and the answers go in by [`Survey::hear`], in any order and
/// one at a time, until nothing is due and nothing is being asked. Then the round [ends](Survey::end). A discovery server that is down
/// takes none of its servers with it: each is asked itself.
pub struct Survey {
    urls: Vec<EndpointUrl>,
    asks_for_network: bool,
    takes: Box<dyn Fn(&Application) -> bool + Send>,
    round: u64,
    /// True if there are more servers than are asked: in the last round, and in this one.
    leaves_out: bool,
    leaves_out_now: bool,
    /// The most bytes that the caller has for what the servers say.
    pub free_bytes: usize,
    /// The addresses that were given: those of the caller, and those that were announced.
    sources: Vec<EndpointUrl>,
    asked: BTreeMap<EndpointUrl, Asked>,
    hosts: BTreeMap<String, Host>,
}

impl Survey {
    /// Creates one that asks at `urls`, and asks discovery servers there for those of their networks if `asks_for_network`. Only
    /// servers that `takes` wants count.
    pub fn new(
        urls: Vec<EndpointUrl>,
        asks_for_network: bool,
        takes: impl Fn(&Application) -> bool + Send + 'static,
    ) -> Self {
        Self {
            urls,
            asks_for_network,
            takes: Box::new(takes),
            round: 0,
            leaves_out: false,
            leaves_out_now: false,
            free_bytes: BYTES_MAX,
            sources: vec![],
            asked: BTreeMap::new(),
            hosts: BTreeMap::new(),
        }
    }

    /// Begins to ask everything anew. `announced` are the addresses that multicast DNS has at present.
    pub fn begin(&mut self, announced: Vec<EndpointUrl>) {
        self.round += 1;
        self.leaves_out_now = false;
        self.sources.clone_from(&self.urls);
        for url in announced {
            if !self.sources.contains(&url) {
                self.sources.push(url);
            }
        }
    }

    /// Returns what to ask now. Nothing is left to do in a round when there is nothing, and nothing is being asked.
    pub fn due(&mut self) -> Vec<Ask> {
        let mut questions = vec![Question::FindServers, Question::GetEndpoints];
        let mut wanted: Vec<(EndpointUrl, Vec<Question>)> = vec![];
        let further = self.on_network().into_iter();
        wanted.extend(further.map(|url| (url, questions.clone())));
        if self.asks_for_network {
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
        for (place, (url, questions)) in (0_u64..).zip(wanted) {
            if self.asked.len() >= SERVERS_MAX && !self.asked.contains_key(&url) {
                self.leaves_out = true;
                self.leaves_out_now = true;
                continue;
            }
            let asked = self.asked.entry(url.clone()).or_default();
            if asked.round < self.round {
                asked.round = self.round;
                let has_turn = asked.failures < OFF_AFTER || (self.round + place).is_multiple_of(3);
                due.extend(has_turn.then_some(Ask::Server(url, questions)));
            }
        }
        for host in self.hosts_of_answers() {
            let known = self.hosts.entry(host.clone()).or_default();
            if known.is_due(self.round) {
                // What was known counts until the answer comes.
                (known.round, known.is_asked) = (self.round, true);
                due.push(Ask::Lookup(host));
            }
        }
        due
    }

    /// Takes over an answer.
    pub fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Lookup(host, is_known) => self.hosts.entry(host).or_default().learn(is_known),
            Heard::Server(url, Ok(answers)) => {
                let asked = self.asked.get(&url);
                let asked = asked.filter(|asked| asked.failures + 1 < FAILURES);
                if let Some(why) = asked.and_then(|asked| asked.no_longer_answered(&answers)) {
                    return self.hear(Heard::Server(url, Err(why)));
                }
                let said = Said::new(answers, |application| {
                    application.kind.is_server() && (self.takes)(application)
                });
                let free = self.most() - self.bytes();
                let asked = self.asked.entry(url).or_default();
                let said = said.after(asked.said.as_ref(), self.round);
                let before = asked.said.as_ref().map_or(0, Said::bytes);
                asked.failures = 0;
                asked.error = (said.bytes() > free + before).then(|| {
                    format!(
                        "its answers have {} bytes, and those of all servers together {} KiB at most, and half of what others leave: name fewer addresses, or choose by names",
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

    /// Returns whether each server has answered, or failed as often as one that is known may.
    pub fn is_settled(&self) -> bool {
        let is_open =
            |asked: &Asked| asked.said.is_none() && (1..FAILURES).contains(&asked.failures);
        !self.asked.values().any(is_open)
    }

    /// Returns how many bytes the servers have said.
    pub fn bytes(&self) -> usize {
        let said = self.asked.values().filter_map(|asked| asked.said.as_ref());
        said.map(Said::bytes).sum()
    }

    /// Returns how many bytes they may say.
    fn most(&self) -> usize {
        self.free_bytes.min(BYTES_MAX).max(self.bytes())
    }

    /// Ends the round: what nobody wanted in it is forgotten, and each name is looked up again after a minute.
    pub fn end(&mut self) {
        let round = self.round;
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

    /// Returns whether this machine knows an address of a host, once that is known.
    fn knows(&self, host: &str) -> Option<bool> {
        self.hosts.get(host).and_then(|host| host.is_known)
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
            let named = said.named().map(|(application, is_former)| Found {
                is_former,
                ..Found::new(application, source, &|host| self.knows(host))
            });
            // What a server says of itself is not lost from a list, and what nobody can reach is no loss.
            let named = named.filter(|it| !it.is_former || !it.is_self && it.unusable.is_none());
            found.extend(named.take(free));
        }
        found
    }

    /// Returns whether a server tells of no endpoints at an address. Some tell of them only at the address that they have for
    /// themselves, to the letter.
    fn has_no_endpoints(&self, url: &EndpointUrl) -> bool {
        let said = self.asked.get(url).and_then(|asked| asked.said.as_ref());
        said.is_some_and(|said| said.endpoints.is_empty())
    }

    /// Returns the servers that answer, and what is wrong with others.
    pub fn seen(&self) -> Seen<'_> {
        let mut seen = Seen::default();
        for source in &self.sources {
            if let Some(why) = self
                .asked
                .get(source)
                .and_then(|asked| asked.error.as_ref())
            {
                seen.problems.push(format!("{source}: {why}"));
            }
        }
        for (source, url) in self.told_of_network() {
            if let Err(Unoffered::Bad(why)) = offered_url(url, source, &|_| None) {
                let text = format!("{url:?}, of which {source} tells, is left out: it {why}");
                seen.problems.push(text);
            }
        }
        for url in self.on_network() {
            let asked = self.asked.get(&url);
            if let Some(why) = asked.and_then(|asked| asked.error.as_ref()) {
                let text = format!("{url}, of which a discovery server tells: {why}");
                seen.problems.push(text);
            }
        }
        for found in self.found() {
            self.offer(&found, &mut seen);
        }
        if self.leaves_out {
            seen.leaves_out = true;
            seen.problems.push(format!(
                "servers are left out: {SERVERS_MAX} are the most; name fewer addresses, or divide them among several"
            ));
        }
        seen.problems.dedup();
        seen
    }

    /// Adds a server that answers, or says why it does not.
    fn offer<'a>(&'a self, found: &Found<'a>, seen: &mut Seen<'a>) {
        let (application, source) = (found.application, found.source);
        let name = &application.name;
        let Some(url) = &found.url else {
            if let Some(why) = &found.unusable {
                let text = format!("{name:?}, of which {source} tells, is left out: {why}");
                seen.problems.push(text);
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
            let server = || FoundServer {
                application,
                url: url.clone(),
                advertised: found.advertised,
                endpoints: &said.endpoints,
            };
            seen.servers.entry(url.clone()).or_insert_with(server);
        } else if let Some(why) =
            (asked.error.as_ref()).filter(|_| !found.is_self && !found.is_former)
        {
            let text = format!("{url} ({name:?}), of which {source} tells: {why}");
            seen.problems.push(text);
        }
    }
}

#[cfg(test)]
mod tests;
