//! Combines the lists of all endpoints of a handler. Pure.
//!
//! | an endpoint | its devices | what is reported |
//! |---|---|---|
//! | answers | are those of its last list | nothing |
//! | answers, and says that its first look is not complete | are those of this list, and of the last one | nothing |
//! | has said nothing yet | none | that, after [`GRACE`] |
//! | has said nothing since the agent was started, and registered before | may be late for [`TOLD`] | that, after [`GRACE`] |
//! | is broken: it ended its stream, or cannot be reached | stay as they were for [`GRACE`], then they are gone | why |
//! | refuses the details | stay as they were for [`GRACE`], then they are gone | its message |
//!
//! The devices of all endpoints are one set. Until an endpoint has answered nothing is known of any device, and the set is
//! not complete. An endpoint that is silent while another one answers is no trouble any more after [`TOLD`]: a Pod that was
//! replaced by one with another address is never there again.
use super::{endpoint::Endpoint, listing::one_line};
use crate::{
    model::device::{DeviceSet, HandlerTrouble},
    proto::discovery::DEVICES_MAX,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The time for which devices of a broken stream stay as they were. Within it a handler is restarted or updated.
pub(super) const GRACE: Duration = Duration::from_secs(60);
const TOLD: Duration = Duration::from_secs(600);
/// The longest text of a handler that refuses `discoveryDetails`, in bytes. Beyond it: the end is cut off.
const REFUSAL_MAX: usize = 512;

/// An event at an endpoint.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Event {
    /// It sent a list.
    Says(DeviceSet),
    /// Its stream is over, or there was none.
    Broken(String),
    /// It says that the details are wrong.
    Refuses(String),
}

/// The endpoints of one handler, for one Configuration.
#[derive(Debug)]
pub(super) struct Endpoints {
    name: String,
    by_endpoint: BTreeMap<Endpoint, KnownHandler>,
    /// True if one of them has sent a list.
    has_answered: bool,
}

#[derive(Debug)]
struct KnownHandler {
    list: Option<Arc<DeviceSet>>,
    state: State,
    /// True if it registered in an earlier life of the agent and has not answered in this one: it may have devices that
    /// are in use, and be slow to start, as after a failure of power.
    is_restored: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum State {
    Silent { since: Duration },
    Answers,
    Broken { since: Duration, why: String },
    Refuses { since: Duration, why: String },
}

/// The devices to publish now, and the time of the next look if nothing happens.
#[derive(Debug, PartialEq)]
pub(super) struct Turn {
    pub(super) set: DeviceSet,
    pub(super) wake: Option<Duration>,
}

impl Endpoints {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            by_endpoint: BTreeMap::new(),
            has_answered: false,
        }
    }

    /// Takes the endpoints that are registered now, each with whether it has not answered since the agent was started
    /// although it registered before.
    pub(super) fn set(&mut self, registered: &BTreeMap<Endpoint, bool>, now: Duration) {
        self.by_endpoint
            .retain(|endpoint, _| registered.contains_key(endpoint));
        for (endpoint, &is_restored) in registered {
            let known = self
                .by_endpoint
                .entry(endpoint.clone())
                .or_insert(KnownHandler {
                    list: None,
                    state: State::Silent { since: now },
                    is_restored,
                });
            known.is_restored &= is_restored;
        }
    }

    pub(super) fn happened(&mut self, endpoint: &Endpoint, event: Event, now: Duration) {
        let Some(known) = self.by_endpoint.get_mut(endpoint) else {
            return; // it has gone in between
        };
        known.state = match event {
            Event::Says(list) => {
                let before = known.list.take().filter(|_| !list.complete);
                known.list = Some(Arc::new(match before {
                    Some(before) => with_earlier(list, &before),
                    None => list,
                }));
                known.is_restored = false;
                self.has_answered = true;
                State::Answers
            }
            Event::Broken(why) => {
                let since = known.state.since().unwrap_or(now);
                State::Broken { since, why }
            }
            Event::Refuses(why) => {
                let since = known.state.since().unwrap_or(now);
                State::Refuses { since, why }
            }
        };
    }

    /// Returns whether the endpoint's last event says why it does not answer.
    pub(super) fn is_broken(&self, endpoint: &Endpoint) -> bool {
        let known = self.by_endpoint.get(endpoint);
        known.is_some_and(|known| matches!(known.state, State::Broken { .. }))
    }

    pub(super) fn turn(&mut self, now: Duration) -> Turn {
        let mut set = DeviceSet {
            complete: self.has_answered,
            ..DeviceSet::default()
        };
        let one_answers = (self.by_endpoint.values()).any(|known| known.state == State::Answers);
        let mut wake: Option<Duration> = None;
        for (endpoint, known) in &mut self.by_endpoint {
            let since = known.state.since();
            if let Some(since) = since {
                let grace = if known.is_restored { TOLD } else { GRACE };
                if since + grace <= now {
                    known.list = None;
                } else {
                    set.complete &= known.list.is_some();
                }
                let next = [since + GRACE, since + TOLD]
                    .into_iter()
                    .find(|at| *at > now);
                wake = wake.into_iter().chain(next).min();
            }
            let is_reported = known.state.is_refusal()
                || since.is_none_or(|since| !one_answers || now < since + TOLD);
            if is_reported && let Some(trouble) = known.state.trouble(&self.name, endpoint, now) {
                set.troubles.push(trouble);
            }
        }
        // What is known now comes before what was known once.
        for answers in [true, false] {
            let of = |known: &&KnownHandler| (known.state == State::Answers) == answers;
            for known in self.by_endpoint.values().filter(of) {
                known.list.iter().for_each(|list| add(&mut set, list));
            }
        }
        set.troubles.sort();
        Turn { set, wake }
    }
}

impl State {
    /// Returns when it ceased to answer.
    fn since(&self) -> Option<Duration> {
        match self {
            Self::Silent { since } | Self::Broken { since, .. } | Self::Refuses { since, .. } => {
                Some(*since)
            }
            Self::Answers => None,
        }
    }

    fn is_refusal(&self) -> bool {
        matches!(self, Self::Refuses { .. })
    }

    fn trouble(&self, name: &str, endpoint: &Endpoint, now: Duration) -> Option<HandlerTrouble> {
        let place = format!("the handler {name} at {endpoint}");
        match self {
            Self::Answers => None,
            Self::Silent { since } if now < *since + GRACE => None,
            Self::Silent { .. } => Some(HandlerTrouble::Failed(format!(
                "{place} has been asked for devices and has sent no list for more than {} s: read its log",
                GRACE.as_secs()
            ))),
            Self::Broken { since, why } => {
                let until = if now < *since + GRACE {
                    "its devices stay as they were for"
                } else {
                    "its devices count as gone, because it has not answered for"
                };
                let seconds = GRACE.as_secs();
                Some(HandlerTrouble::Failed(format!(
                    "{place}: {why}; it is tried again, and {until} {seconds} s"
                )))
            }
            Self::Refuses { why, .. } => Some(HandlerTrouble::RefusedDetails(format!(
                "discoveryDetails: {place} refuses them: {}",
                one_line(why, REFUSAL_MAX)
            ))),
        }
    }
}

/// Adds the devices that an endpoint had before it began anew: until its first look is complete, they may only be late.
fn with_earlier(mut list: DeviceSet, before: &DeviceSet) -> DeviceSet {
    let complete = before.complete;
    let problems = std::mem::take(&mut list.problems);
    add(&mut list, before);
    DeviceSet {
        complete,
        problems,
        ..list
    }
}

/// Adds the devices of another endpoint. Of two devices with one id the first one counts.
fn add(set: &mut DeviceSet, list: &DeviceSet) {
    for (id, device) in &list.devices {
        if set.devices.len() >= DEVICES_MAX && !set.devices.contains_key(id) {
            set.left_out = true;
            continue;
        }
        set.devices
            .entry(id.clone())
            .or_insert_with(|| device.clone());
    }
    set.complete &= list.complete;
    set.left_out |= list.left_out;
    set.problems.extend(list.problems.iter().cloned());
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
