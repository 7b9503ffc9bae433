//! Which probes to send, and which devices are there. Pure: the time is the time since any start.
//!
//! Each round has three probes for each interface and family, one of each spelling. A device that has not answered a round is
//! asked at its own address in the next ones; after three rounds it is gone.
mod known;
mod outgoing;
mod sweep;

pub use known::Device;
pub use outgoing::{Family, Outgoing, To};

use crate::message::{Endpoint, Kind, Message, Sequence, Spelling};
use fastrand::Rng;
use ipnet::Ipv4Net;
use known::{Answer, Known, PORT, probed};
use outgoing::uuid;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use sweep::Sweep;

/// The most devices of a prober. Beyond it: further ones are left out.
pub const DEVICES_MAX: usize = 1024;
/// The most bytes of what the devices of a prober say. Beyond it: further ones are left out, and known ones stay as they were.
const BYTES_MAX: usize = 8 << 20;
/// The most devices that answer from one address. Beyond it: further ones are left out.
const DEVICES_OF_SOURCE_MAX: usize = 64;
/// The most addresses of all `subnets` together, which are those of a /20. Beyond it: the caller refuses them.
pub const SUBNET_ADDRESSES_MAX: u64 = 4096;
/// The most probes that wait for their time. Beyond it: a probe is not sent.
const DUE_MAX: usize = 4096;
/// The number of probes whose ids are remembered.
const IDS: usize = 256;
/// The time between the first rounds: a datagram may be lost.
const FIRST_ROUNDS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
/// The time between rounds. Three of them, and one for the last answers, are less than a minute.
const ROUND: Duration = Duration::from_secs(12);
/// The most milliseconds that a round is late. Nodes that started together do not ask together for ever.
const JITTER: u64 = 500;
/// The time between the probes of a round.
const BETWEEN_SPELLINGS: Duration = Duration::from_millis(100);
/// The time between probes to devices at their own addresses.
const BETWEEN_DEVICES: Duration = Duration::from_millis(10);
/// The unanswered rounds after which a device is gone.
const UNANSWERED: u32 = 3;
/// The time after a Bye at which the device is asked whether the Bye was its own.
const BYE_CHECK: Duration = Duration::from_secs(2);
const SECOND: Duration = Duration::from_secs(1);
/// The time for which answers that were sent before a Bye may come after it.
const LATE_ANSWERS: Duration = Duration::from_secs(1);
/// The time for which a Bye is remembered.
const BYE_FOR: Duration = Duration::from_secs(10);
/// The number of Byes that are remembered.
const BYES: usize = 256;

/// The choices of a caller.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The time that devices have to answer before the first look is complete.
    pub window: Duration,
    /// Other networks, whose addresses are probed one by one.
    pub subnets: Vec<Ipv4Net>,
    /// The probes per second for these.
    pub per_second: u32,
}

/// What is to be done now.
#[derive(Debug)]
pub struct Turn {
    /// The probes to send.
    pub send: Vec<Outgoing>,
    /// True if the devices are others than at the turn before.
    pub has_changed: bool,
    /// The time of the next turn, if nothing is received before.
    pub wake: Duration,
}

#[derive(Debug)]
struct Left {
    at: Duration,
    sequence: Option<Sequence>,
}

/// Finds devices.
#[derive(Debug)]
pub struct Prober {
    settings: Settings,
    random: Rng,
    paths: BTreeSet<(u32, Family)>,
    devices: BTreeMap<String, Known>,
    /// The devices that have said Bye.
    left: BTreeMap<String, Left>,
    /// The probes that wait, by their time and a number.
    due: BTreeMap<(Duration, u64), (To, Spelling)>,
    numbers: u64,
    ids: VecDeque<(String, Spelling)>,
    sweep: Option<Sweep>,
    began: Duration,
    round_began: Duration,
    next_round: Duration,
    /// The number of first rounds that have been.
    early: usize,
    has_changed: bool,
    has_left_out: bool,
    /// The most bytes that may be kept, and those that are.
    limit: usize,
    bytes: usize,
}

impl Prober {
    /// Makes a prober. Equal seeds make equal message ids.
    pub fn new(settings: Settings, seed: u64, now: Duration) -> Self {
        Self {
            sweep: Sweep::new(&settings.subnets, settings.per_second, now),
            settings,
            random: Rng::with_seed(seed),
            paths: BTreeSet::new(),
            devices: BTreeMap::new(),
            left: BTreeMap::new(),
            due: BTreeMap::new(),
            numbers: 0,
            ids: VecDeque::new(),
            began: now,
            round_began: now,
            next_round: now,
            early: 0,
            has_changed: false,
            has_left_out: false,
            limit: BYTES_MAX,
            bytes: 0,
        }
    }

    /// Sets the most bytes of what devices say, up to 8 MiB.
    pub fn limit_to(&mut self, bytes: usize) {
        self.limit = bytes.min(BYTES_MAX);
    }

    /// Returns how many bytes devices have said.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the interfaces with the families that can be used on each. A further one begins with the first rounds.
    pub fn set_paths(&mut self, paths: BTreeSet<(u32, Family)>, now: Duration) {
        if paths.iter().any(|path| !self.paths.contains(path)) {
            self.early = 0;
            self.next_round = now;
        }
        self.paths = paths;
    }

    /// Returns the devices that are there.
    pub fn devices(&self) -> impl Iterator<Item = &Arc<Device>> {
        self.devices.values().map(|known| &known.device)
    }

    /// Returns whether devices were left out because there are too many.
    pub fn has_left_out(&self) -> bool {
        self.has_left_out
    }

    /// Returns whether every device has had the time to answer.
    pub fn is_complete(&self, now: Duration) -> bool {
        now >= self.complete_at().unwrap_or(Duration::MAX)
    }

    fn complete_at(&self) -> Option<Duration> {
        let looked = self.began + FIRST_ROUNDS[0] + self.settings.window;
        match &self.sweep {
            Some(sweep) => Some(looked.max(sweep.first_end? + self.settings.window)),
            None => Some(looked),
        }
    }

    /// Takes a datagram. Returns whether it was a message of a device.
    pub fn receive(&mut self, source: SocketAddr, bytes: &[u8], now: Duration) -> bool {
        let Some(message) = Message::read(bytes) else {
            return false;
        };
        let source = probed(source);
        let relates_to = message.relates_to.as_deref();
        let is_it = |(id, _): &&(String, Spelling)| Some(id.as_str()) == relates_to;
        let spelling = self.ids.iter().find(is_it).map(|(_, spelling)| *spelling);
        for endpoint in message.endpoints {
            let answer = |endpoint: Endpoint, is_restart| Answer {
                source,
                endpoint,
                sequence: message.sequence,
                spelling,
                is_restart,
            };
            match message.kind {
                Kind::Bye => self.leave(&endpoint.address, source, message.sequence, now),
                // Each message comes several times, so a Hello may come after the Bye that followed it.
                Kind::Hello | Kind::Matches
                    if self.is_late(&endpoint.address, message.sequence, now) => {}
                Kind::Hello => {
                    if let Some(is_restart) = self.is_fresh_hello(&endpoint, message.sequence) {
                        self.left.remove(&endpoint.address);
                        self.probe(now + BETWEEN_SPELLINGS, To::Address(source), Spelling::Any);
                        self.hear(answer(endpoint, is_restart), now);
                    }
                }
                Kind::Matches => self.hear(answer(endpoint, false), now),
            }
        }
        true
    }

    fn hear(&mut self, answer: Answer, now: Duration) {
        let address = &answer.endpoint.address;
        if let Some(known) = self.devices.get_mut(address) {
            let (before, source) = (known.clone(), answer.source);
            let has_changed = known.hear(answer, now);
            let bytes = self.bytes + known.bytes() - before.bytes();
            if bytes > self.bytes.max(self.limit) {
                *known = before.heard_again(source, now);
                self.leave_out();
            } else {
                (self.bytes, self.has_changed) = (bytes, self.has_changed | has_changed);
            }
            return;
        }
        if !answer.endpoint.is_onvif {
            return;
        }
        let ip = answer.source.ip();
        let is_of_source = |known: &&Known| known.device.sources.iter().any(|s| s.ip() == ip);
        let of_source = self.devices.values().filter(is_of_source).count();
        let address = address.clone();
        let known = Known::new(answer, now);
        let bytes = self.bytes + known.bytes();
        let is_full = self.devices.len() >= DEVICES_MAX || bytes > self.limit;
        if is_full || of_source >= DEVICES_OF_SOURCE_MAX {
            return self.leave_out();
        }
        self.left.remove(&address);
        self.devices.insert(address, known);
        (self.bytes, self.has_changed) = (bytes, true);
    }

    fn leave_out(&mut self) {
        self.has_changed |= !self.has_left_out;
        self.has_left_out = true;
    }

    /// Returns whether a Hello says that its device was restarted; `None` if the Hello is older than what is known.
    fn is_fresh_hello(&self, endpoint: &Endpoint, sequence: Option<Sequence>) -> Option<bool> {
        let known = self.devices.get(&endpoint.address);
        let before = known.and_then(|known| known.sequence);
        match (before, sequence) {
            (Some(before), Some(sequence)) if sequence <= before => None,
            (Some(before), Some(sequence)) => Some(sequence.instance > before.instance),
            (Some(_) | None, None) | (None, Some(_)) => Some(known.is_some()),
        }
    }

    /// Returns whether a message was sent before its device said Bye.
    fn is_late(&self, address: &str, sequence: Option<Sequence>, now: Duration) -> bool {
        let Some(left) = self.left.get(address) else {
            return false;
        };
        match (left.sequence, sequence) {
            (Some(bye), Some(sequence)) => sequence <= bye,
            (Some(_) | None, None) | (None, Some(_)) => now < left.at + LATE_ANSWERS,
        }
    }

    fn leave(
        &mut self,
        address: &str,
        source: SocketAddr,
        sequence: Option<Sequence>,
        now: Duration,
    ) {
        let Some(known) = self.devices.get(address) else {
            return;
        };
        let is_stale = (known.sequence.zip(sequence)).is_some_and(|(last, bye)| bye < last);
        if is_stale {
            return;
        }
        let spelling = known.next_spelling();
        let is_own = known.is_at(source.ip());
        let sources = known.device.sources.clone();
        let after = if is_own { BYE_CHECK } else { SECOND };
        for source in sources {
            self.probe(now + after, To::Address(source), spelling);
        }
        if is_own {
            self.devices.remove(address);
            self.has_changed = true;
            if self.left.len() < BYES {
                let left = Left { at: now, sequence };
                self.left.insert(address.to_owned(), left);
            }
        }
    }

    fn probe(&mut self, at: Duration, to: To, spelling: Spelling) {
        let mut due = self.due.iter();
        // Whatever others send, a device is not asked the same more than once a second.
        let is_there = due.any(|((due, _), probe)| *probe == (to, spelling) && *due + SECOND > at);
        if self.due.len() < DUE_MAX && !is_there {
            self.numbers += 1;
            self.due.insert((at, self.numbers), (to, spelling));
        }
    }

    /// Begins a round if it is time, and returns what is to be done.
    pub fn turn(&mut self, now: Duration) -> Turn {
        if now >= self.next_round {
            self.begin_round(now);
        }
        let mut send = vec![];
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= now) {
            let (to, spelling) = entry.remove();
            send.push((to, spelling));
        }
        let swept = self.sweep.as_mut().map(|sweep| sweep.due(now));
        for (ip, spelling) in swept.unwrap_or_default() {
            send.push((To::Address(SocketAddr::new(IpAddr::V4(ip), PORT)), spelling));
        }
        let send = send.into_iter().map(|(to, spelling)| {
            let id = spelling.id(&uuid(&mut self.random));
            let bytes = spelling.probe(&id);
            self.ids.truncate(IDS - 1);
            self.ids.push_front((id, spelling));
            Outgoing { to, bytes }
        });
        let send = send.collect();
        self.left.retain(|_, left| now < left.at + BYE_FOR);
        self.bytes = self.devices.values().map(Known::bytes).sum();
        let times = [
            self.due.first_key_value().map(|((at, _), _)| *at),
            self.sweep.as_ref().map(|sweep| sweep.at),
            self.complete_at().filter(|at| *at > now),
        ];
        let wake = times
            .into_iter()
            .flatten()
            .fold(self.next_round, Duration::min);
        Turn {
            send,
            has_changed: std::mem::take(&mut self.has_changed),
            wake,
        }
    }

    fn begin_round(&mut self, now: Duration) {
        // In a short round a single lost datagram would count.
        let is_counted = now.saturating_sub(self.round_began) >= ROUND / 2;
        let began = self.round_began;
        let unheard_since = now.saturating_sub(ROUND * UNANSWERED);
        for known in self.devices.values_mut() {
            if is_counted && known.heard_at < began {
                known.unanswered += 1;
            }
            self.has_changed |= known.forget_sources(unheard_since);
        }
        let before = self.devices.len();
        self.devices
            .retain(|_, known| known.unanswered < UNANSWERED);
        self.has_changed |= self.devices.len() != before;
        self.round_began = now;
        let jitter = Duration::from_millis(self.random.u64(0..JITTER));
        self.next_round = now
            + FIRST_ROUNDS
                .get(self.early)
                .copied()
                .unwrap_or(ROUND + jitter);
        self.early += 1;
        for (link, family) in self.paths.clone() {
            for (number, spelling) in (0_u32..).zip(Spelling::ALL) {
                let at = now + BETWEEN_SPELLINGS * number;
                self.probe(at, To::Group { link, family }, spelling);
            }
        }
        let is_missed = |known: &&Known| known.heard_at < began || known.unanswered > 0;
        let asked = self.devices.values().filter(is_missed).flat_map(|known| {
            let sources = known.device.sources.iter();
            sources.map(|source| (*source, known.next_spelling()))
        });
        let asked: Vec<_> = asked.collect();
        for (number, (source, spelling)) in (1_u32..).zip(asked) {
            self.probe(
                now + BETWEEN_DEVICES * number,
                To::Address(source),
                spelling,
            );
        }
    }
}

#[cfg(test)]
mod tests;
