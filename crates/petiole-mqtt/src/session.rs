//! Holds a session with a broker: connect, subscribe, listen, and stay alive. Pure.
use crate::{
    failure::{Code, Failure, Reason, Step},
    packet::{self, Incoming, Login, Message, Next, PACKET_MAX, Properties, Protocol, Reader},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// The longest payload of a message, in bytes. Beyond it: the message is skipped and counted.
pub const PAYLOAD_MAX: usize = 64 << 10;
/// The most subscriptions of one session. Beyond it: the topic is not subscribed to, and that is said.
pub const SUBSCRIPTIONS_MAX: usize = 40_000;
/// The most bytes of topics that wait for their SUBSCRIBE. Beyond it: the topic is not subscribed to, and that is said.
pub const WAITING_BYTES_MAX: usize = 1 << 20;
/// The most bytes of the topics of all subscriptions of a session, also of those whose end the broker has not confirmed. Beyond it: the
/// topic is not subscribed to, and that is said.
pub const SUBSCRIBED_BYTES_MAX: usize = 4 << 20;
/// The filters of one SUBSCRIBE or UNSUBSCRIBE, and their bytes. The next one follows when the broker has answered: with mosquitto that
/// takes the 40 ms of a delayed acknowledgement of TCP.
const FILTERS_AT_ONCE: usize = 256;
const FILTER_BYTES_AT_ONCE: usize = 16 << 10;
/// The time without a packet of ours after which we ask for a sign of life.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// The time that a broker has for an answer.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A session with a broker, without I/O.
pub struct Session {
    protocol: Protocol,
    incoming: Incoming,
    outgoing: Vec<u8>,
    is_connected: bool,
    keep_alive: Duration,
    /// The largest packet that the broker takes.
    packet_max: usize,
    /// When we sent the last packet.
    sent_at: Duration,
    /// The question that is not answered yet, and when it was sent.
    asked: Option<Asked>,
    /// The filters from their first `subscribe` to the answer to their UNSUBSCRIBE.
    filters: BTreeMap<Arc<str>, Filter>,
    filter_bytes: usize,
    /// The filters that the broker is to be told of.
    waiting: VecDeque<Arc<str>>,
    /// The bytes of those among them that are wanted. The others are as many as were wanted before.
    waiting_bytes: usize,
    last_id: u16,
    password: Option<String>,
}

#[derive(Default)]
struct Filter {
    /// Whether messages are wanted now.
    is_wanted: bool,
    is_waiting: bool,
}

impl Filter {
    /// Returns whether it waits for its SUBSCRIBE.
    fn counts(&self) -> bool {
        self.is_wanted && self.is_waiting
    }
}

struct Asked {
    step: Step,
    at: Duration,
    id: u16,
    filters: Vec<Arc<str>>,
}

/// What a broker has sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A message.
    Message {
        /// Its topic.
        topic: &'a str,
        /// Its payload.
        payload: &'a [u8],
    },
    /// A message was too large, and was skipped.
    Skipped,
    /// A subscription was accepted.
    Subscribed {
        /// Its filter.
        filter: &'a str,
    },
    /// A subscription was refused.
    Refused {
        /// Its filter.
        filter: &'a str,
        /// The reason.
        code: Code,
    },
}

impl Session {
    /// Begins a session. Its first turn has the bytes to send first.
    pub fn start(login: &Login, now: Duration) -> Self {
        Self {
            protocol: login.protocol,
            incoming: Incoming::default(),
            outgoing: packet::connect(login, KEEP_ALIVE.as_secs() as u16),
            is_connected: false,
            keep_alive: KEEP_ALIVE,
            packet_max: PACKET_MAX,
            sent_at: now,
            asked: Some(Asked::new(Step::Connect, now)),
            filters: BTreeMap::new(),
            filter_bytes: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            last_id: 0,
            password: login.password.clone(),
        }
    }

    /// Subscribes to the messages that a filter selects; again, if it is subscribed to. Returns whether there was space for it.
    pub fn subscribe(&mut self, filter: impl Into<Arc<str>>) -> bool {
        let filter = filter.into();
        let known = self.filters.get(&filter);
        let counts = known.is_some_and(Filter::counts);
        let is_full = self.filters.len() >= SUBSCRIPTIONS_MAX
            || self.filter_bytes + filter.len() > SUBSCRIBED_BYTES_MAX;
        let is_too_much = known.is_none() && is_full;
        let bytes = self.waiting_bytes + filter.len();
        let is_taken = counts || !is_too_much && bytes <= WAITING_BYTES_MAX;
        if is_taken {
            self.wait(filter, true);
        }
        is_taken
    }

    /// Ends the subscription to a filter. Its place is free when the broker has confirmed it.
    pub fn unsubscribe(&mut self, filter: &Arc<str>) {
        if self.filters.contains_key(filter) {
            self.wait(filter.clone(), false);
        }
    }

    fn wait(&mut self, filter: Arc<str>, is_wanted: bool) {
        let known = self.filters.entry(filter.clone()).or_insert_with(|| {
            self.filter_bytes += filter.len();
            Filter::default()
        });
        match (known.counts(), is_wanted) {
            (false, true) => self.waiting_bytes += filter.len(),
            (true, false) => self.waiting_bytes -= filter.len(),
            (false, false) | (true, true) => {}
        }
        known.is_wanted = is_wanted;
        if !std::mem::replace(&mut known.is_waiting, true) {
            self.waiting.push_back(filter);
        }
    }

    /// Returns the bytes of the topics of all subscriptions.
    pub fn bytes(&self) -> usize {
        self.filter_bytes
    }

    fn is_wanted(&self, filter: &str) -> bool {
        self.filters
            .get(filter)
            .is_some_and(|known| known.is_wanted)
    }

    /// Returns whether the broker has answered all that it was asked.
    pub fn is_settled(&self) -> bool {
        let subscribes = self
            .asked
            .as_ref()
            .is_some_and(|asked| asked.step != Step::Ping);
        self.is_connected && self.waiting.is_empty() && !subscribes
    }

    /// Takes over what the broker has sent, and passes each event on. After a failure the session is over.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        mut hear: impl FnMut(Event<'_>),
    ) -> Result<(), Failure> {
        self.incoming.add(bytes);
        loop {
            let first = self.incoming.first();
            if !self.is_connected && first.is_some_and(|first| first != packet::CONNACK) {
                return Err(self.failed(Reason::NotMqtt));
            }
            let taken = match self.incoming.next() {
                Ok(None) => return Ok(()),
                Ok(Some(Next::Skipped)) => {
                    hear(Event::Skipped);
                    Ok(())
                }
                Ok(Some(Next::Packet { first, body })) => self.take(first, &body, &mut hear),
                Err(reason) => Err(reason),
            };
            taken.map_err(|reason| self.failed(reason))?;
        }
    }

    /// Returns the bytes to send now, and when the next turn is if the broker sends nothing.
    pub fn turn(&mut self, now: Duration) -> Result<Turn, Failure> {
        if let Some(asked) = &self.asked
            && now >= asked.at + ANSWER_WITHIN
        {
            return Err(self.failed(Reason::Late(ANSWER_WITHIN.as_secs())));
        }
        if self.asked.is_none() && !self.waiting.is_empty() {
            self.ask_for_messages(now)?;
        }
        if self.asked.is_none() && now >= self.sent_at + self.keep_alive {
            self.outgoing.extend(packet::packet(packet::PINGREQ, &[]));
            self.asked = Some(Asked::new(Step::Ping, now));
        }
        let send = std::mem::take(&mut self.outgoing);
        if !send.is_empty() {
            self.sent_at = now;
        }
        let wake = match &self.asked {
            Some(asked) => asked.at + ANSWER_WITHIN,
            None => self.sent_at + self.keep_alive,
        };
        Ok(Turn { send, wake })
    }

    /// Returns why the session has failed, if the broker closes the connection now.
    pub fn hung_up(&self) -> Failure {
        self.failed(Reason::HungUp)
    }

    /// Returns what the session is doing.
    pub fn step(&self) -> Step {
        self.asked.as_ref().map_or(Step::Listen, |asked| asked.step)
    }

    fn failed(&self, reason: Reason) -> Failure {
        Failure {
            step: self.step(),
            reason,
        }
    }

    /// Sends a SUBSCRIBE or an UNSUBSCRIBE, as the first filter needs it that waits, with the other filters that need the same.
    fn ask_for_messages(&mut self, now: Duration) -> Result<(), Failure> {
        let is_wanted = (self.waiting.front()).is_some_and(|filter| self.is_wanted(filter));
        let (step, first) = if is_wanted {
            (Step::Subscribe, packet::SUBSCRIBE)
        } else {
            (Step::Unsubscribe, packet::UNSUBSCRIBE)
        };
        let mut asked = Asked::new(step, now);
        let mut bytes = 0;
        let most = FILTER_BYTES_AT_ONCE.min(self.packet_max.saturating_sub(16));
        // Once one does not fit, the rest is not looked at.
        let (mut others, mut is_full) = (vec![], false);
        while !is_full && let Some(filter) = self.waiting.pop_front() {
            let size = filter.len() + 3;
            let fits = bytes + size <= most && asked.filters.len() < FILTERS_AT_ONCE;
            match self.filters.get_mut(&filter) {
                Some(known) if known.is_wanted != is_wanted => others.push(filter),
                Some(known) if fits || asked.filters.is_empty() => {
                    known.is_waiting = false;
                    bytes += size;
                    self.waiting_bytes -= if is_wanted { filter.len() } else { 0 };
                    asked.filters.push(filter);
                }
                Some(_) | None => {
                    others.push(filter);
                    is_full = true;
                }
            }
        }
        let others = others.into_iter().rev();
        others.for_each(|filter| self.waiting.push_front(filter));
        self.last_id = self.last_id.checked_add(1).unwrap_or(1);
        asked.id = self.last_id;
        let packet = packet::of_filters(first, self.protocol, asked.id, &asked.filters);
        self.asked = Some(asked);
        if packet.len() > self.packet_max {
            return Err(self.failed(Reason::Refused(Code(0x95), String::new())));
        }
        self.outgoing.extend(packet);
        Ok(())
    }

    fn take(
        &mut self,
        first: u8,
        body: &[u8],
        hear: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Reason> {
        let kind = first & 0xF0;
        match (kind, self.is_connected) {
            (packet::CONNACK, false) => self.connected(body),
            (_, false) => Err(Reason::NotMqtt),
            (packet::PUBLISH, true) => {
                let Message { topic, payload } = packet::publish(self.protocol, first, body)?;
                match topic {
                    _ if payload.len() > PAYLOAD_MAX => hear(Event::Skipped),
                    Some(topic) => hear(Event::Message { topic, payload }),
                    None => {}
                }
                Ok(())
            }
            (packet::SUBACK, true) => self.subscribed(body, hear),
            (packet::UNSUBACK, true) => self.unsubscribed(body),
            (packet::PINGRESP, true) => {
                self.asked.take_if(|asked| asked.step == Step::Ping);
                Ok(())
            }
            (packet::DISCONNECT, true) => {
                let mut reader = Reader(body);
                let code = Code(reader.byte().unwrap_or_default());
                let properties = reader.properties()?;
                Err(self.refused(code, properties.reason))
            }
            _ => Err(Reason::Unexpected("a packet that has no place there")),
        }
    }

    /// Returns the reason of the broker. A text that has our password is left out: it would be seen by others.
    fn refused(&self, code: Code, text: String) -> Reason {
        let password = self.password.as_deref().unwrap_or_default();
        let has_it = !password.is_empty() && text.contains(password);
        Reason::Refused(code, if has_it { String::new() } else { text })
    }

    fn connected(&mut self, body: &[u8]) -> Result<(), Reason> {
        let (code, properties) = packet::connack(body)?;
        let Properties {
            keep_alive,
            packet_max,
            reason,
        } = properties;
        if code != Code(0) {
            return Err(self.refused(code, reason));
        }
        // Zero is no limit.
        let keep_alive = keep_alive.filter(|seconds| *seconds > 0);
        let keep_alive = keep_alive.map(|seconds| Duration::from_secs(seconds.into()));
        self.keep_alive = keep_alive.unwrap_or(KEEP_ALIVE).min(KEEP_ALIVE);
        self.packet_max = packet_max.unwrap_or(PACKET_MAX);
        self.is_connected = true;
        self.asked = None;
        Ok(())
    }

    fn subscribed(&mut self, body: &[u8], hear: &mut impl FnMut(Event<'_>)) -> Result<(), Reason> {
        let (filters, codes) = self.answered(Step::Subscribe, body)?;
        if codes.len() != filters.len() {
            return Err(Reason::Malformed("SUBACK has not one code for each filter"));
        }
        let answered = filters.iter().zip(codes);
        // The end of a subscription may have come before the answer.
        for (filter, code) in answered.filter(|(filter, _)| self.is_wanted(filter)) {
            let code = Code(*code);
            hear(if code.is_failure() {
                Event::Refused { filter, code }
            } else {
                Event::Subscribed { filter }
            });
        }
        Ok(())
    }

    /// Forgets the filters whose end the broker has confirmed. The codes, which 3.1.1 lacks, do not matter: no message is lost.
    fn unsubscribed(&mut self, body: &[u8]) -> Result<(), Reason> {
        for filter in self.answered(Step::Unsubscribe, body)?.0 {
            let is_gone = |known: &Filter| !known.is_wanted && !known.is_waiting;
            if self.filters.get(&filter).is_some_and(is_gone) {
                self.filters.remove(&filter);
                self.filter_bytes -= filter.len();
            }
        }
        Ok(())
    }

    /// Returns the filters that an answer is about, and its codes.
    fn answered<'a>(
        &mut self,
        step: Step,
        body: &'a [u8],
    ) -> Result<(Vec<Arc<str>>, &'a [u8]), Reason> {
        let mut reader = Reader(body);
        let id = reader.u16()?;
        if self.protocol == Protocol::V5 {
            reader.properties()?;
        }
        let is_answer = |asked: &mut Asked| asked.step == step && asked.id == id;
        let asked = self.asked.take_if(is_answer);
        let asked = asked.ok_or(Reason::Unexpected("an acknowledgement of nothing"))?;
        Ok((asked.filters, reader.0))
    }
}

impl Asked {
    fn new(step: Step, at: Duration) -> Self {
        Self {
            step,
            at,
            id: 0,
            filters: vec![],
        }
    }
}

/// What to do now.
#[derive(Debug, PartialEq, Eq)]
pub struct Turn {
    /// The bytes to send.
    pub send: Vec<u8>,
    /// When the next turn is, if the broker sends nothing before.
    pub wake: Duration,
}

#[cfg(test)]
mod tests;
