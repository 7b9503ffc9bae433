//! What all endpoints of a handler say together. Pure.
//!
//! | an endpoint | its devices | what is reported |
//! |---|---|---|
//! | answers | are those of its last list | nothing |
//! | has said nothing yet | none | that, after [`GRACE`] |
//! | is broken: it ended its stream, or cannot be reached | stay as they were for [`GRACE`], then they are gone | why |
//! | refuses the details | none | its message |
//!
//! The devices of all endpoints are one set. Until an endpoint has answered nothing is known of any device, and the set is
//! not complete. An endpoint that is silent while another one answers is no trouble any more after [`TOLD`]: a Pod that was
//! replaced by one with another address is never there again.
use super::{endpoint::Endpoint, listing::one_line};
use crate::{
    model::device::{DeviceSet, HandlerTrouble},
    proto::discovery::DEVICES_MAX,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// How long devices of a broken stream stay as they were. Within it a handler is restarted or updated.
pub(super) const GRACE: Duration = Duration::from_secs(60);
const TOLD: Duration = Duration::from_secs(600);
/// The bytes of a handler's own words in a problem.
const REFUSAL_MAX: usize = 512;

/// What happened at an endpoint.
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
    by_endpoint: BTreeMap<Endpoint, Known>,
    /// Whether one of them has sent a list.
    has_answered: bool,
}

#[derive(Debug)]
struct Known {
    list: Option<Arc<DeviceSet>>,
    state: State,
}

#[derive(Debug, Clone, PartialEq)]
enum State {
    Silent { since: Duration },
    Answers,
    Broken { since: Duration, why: String },
    Refuses(String),
}

/// What is to be shown now, and when to look again if nothing happens.
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

    /// Takes the endpoints that are registered now.
    pub(super) fn set(&mut self, registered: &BTreeSet<Endpoint>, now: Duration) {
        self.by_endpoint
            .retain(|endpoint, _| registered.contains(endpoint));
        for endpoint in registered {
            let known = self.by_endpoint.entry(endpoint.clone());
            known.or_insert(Known {
                list: None,
                state: State::Silent { since: now },
            });
        }
    }

    pub(super) fn happened(&mut self, endpoint: &Endpoint, event: Event, now: Duration) {
        let Some(known) = self.by_endpoint.get_mut(endpoint) else {
            return; // it has gone in between
        };
        known.state = match event {
            Event::Says(list) => {
                known.list = Some(Arc::new(list));
                self.has_answered = true;
                State::Answers
            }
            Event::Broken(why) => {
                let since = match known.state {
                    State::Broken { since, .. } | State::Silent { since } => since,
                    State::Answers | State::Refuses(_) => now,
                };
                State::Broken { since, why }
            }
            Event::Refuses(why) => {
                known.list = None;
                State::Refuses(why)
            }
        };
    }

    /// Whether the endpoint's last event says why it does not answer.
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
                let is_late = since + GRACE <= now;
                if is_late {
                    known.list = None;
                } else {
                    set.complete &= known.list.is_some();
                }
                let next = [since + GRACE, since + TOLD]
                    .into_iter()
                    .find(|at| *at > now);
                wake = wake.into_iter().chain(next).min();
            }
            if let Some(list) = &known.list {
                add(&mut set, list);
            }
            let is_told = since.is_none_or(|since| !one_answers || now < since + TOLD);
            if is_told && let Some(trouble) = known.state.trouble(&self.name, endpoint, now) {
                set.troubles.push(trouble);
            }
        }
        set.troubles.sort();
        Turn { set, wake }
    }
}

impl State {
    /// When it ceased to answer.
    fn since(&self) -> Option<Duration> {
        match self {
            Self::Silent { since } | Self::Broken { since, .. } => Some(*since),
            Self::Answers | Self::Refuses(_) => None,
        }
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
                let until = match now < *since + GRACE {
                    true => "its devices stay as they were for",
                    false => "its devices count as gone, because it has not answered for",
                };
                let seconds = GRACE.as_secs();
                Some(HandlerTrouble::Failed(format!(
                    "{place}: {why}; it is tried again, and {until} {seconds} s"
                )))
            }
            Self::Refuses(why) => Some(HandlerTrouble::RefusedDetails(format!(
                "discoveryDetails: {place} refuses them: {}",
                one_line(why, REFUSAL_MAX)
            ))),
        }
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
    set.left_out |= list.left_out;
    set.problems.extend(list.problems.iter().cloned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::device::Device;

    const A: &str = "/var/lib/akri/a.sock";
    const B: &str = "http://10.0.0.1:10000";

    fn at(endpoint: &str) -> Endpoint {
        endpoint.parse().unwrap()
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn says(ids: &[&str]) -> Event {
        Event::Says(DeviceSet::complete(ids.iter().map(Device::new)))
    }

    fn broken() -> Event {
        Event::Broken("connection refused".to_owned())
    }

    struct World(Endpoints);

    impl World {
        fn of(endpoints: &[&str]) -> Self {
            let mut all = Endpoints::new("cam");
            all.set(&endpoints.iter().map(|e| at(e)).collect(), seconds(0));
            Self(all)
        }

        fn happens(&mut self, now: u64, endpoint: &str, event: Event) -> Turn {
            self.0.happened(&at(endpoint), event, seconds(now));
            self.0.turn(seconds(now))
        }

        fn turn(&mut self, now: u64) -> Turn {
            self.0.turn(seconds(now))
        }
    }

    fn ids(turn: &Turn) -> Vec<&str> {
        turn.set.devices.keys().map(|id| id.as_str()).collect()
    }

    #[test]
    fn the_devices_of_all_endpoints_are_one_set_that_is_complete_when_each_has_answered() {
        let mut world = World::of(&[A, B]);
        assert!(!world.turn(0).set.complete);
        let one = world.happens(1, A, says(&["x", "y"]));
        assert!(!one.set.complete && ids(&one) == ["x", "y"]);
        let both = world.happens(2, B, says(&["y", "z"]));
        assert!(both.set.is_whole() && ids(&both) == ["x", "y", "z"]);
        assert_eq!(both.wake, None);
        let fewer = world.happens(3, A, says(&[]));
        assert!(fewer.set.is_whole() && ids(&fewer) == ["y", "z"]);
    }

    #[test]
    fn devices_of_a_broken_stream_stay_through_the_grace_period_and_then_they_are_gone() {
        let mut world = World::of(&[A]);
        world.happens(0, A, says(&["x"]));
        let turn = world.happens(10, A, broken());
        assert!(turn.set.is_whole() && ids(&turn) == ["x"]);
        let [HandlerTrouble::Failed(why)] = turn.set.troubles.as_slice() else {
            panic!("{:?}", turn.set.troubles)
        };
        assert!(
            why.contains("connection refused") && why.contains(A),
            "{why}"
        );
        assert_eq!(turn.wake, Some(seconds(70)));
        // Another failure is not the beginning of another grace period.
        let turn = world.happens(69, A, broken());
        assert_eq!((ids(&turn), turn.wake), (vec!["x"], Some(seconds(70))));
        let turn = world.turn(70);
        assert!(turn.set.is_whole() && ids(&turn).is_empty());
        assert_eq!(turn.set.troubles.len(), 1);
        let turn = world.happens(80, A, says(&["x"]));
        assert!(turn.set.is_whole() && ids(&turn) == ["x"] && turn.set.troubles.is_empty());
    }

    #[test]
    fn a_handler_that_never_answered_in_this_life_takes_nothing_away() {
        let mut world = World::of(&[A, B]);
        world.happens(1, A, broken());
        for now in [1, 59, 61, 100_000] {
            let turn = world.turn(now);
            assert!(!turn.set.complete, "after {now} s");
        }
        assert_eq!(world.turn(100_000).set.troubles.len(), 2);
    }

    #[test]
    fn an_address_that_is_never_there_again_delays_nothing_and_is_told_for_a_while() {
        let mut world = World::of(&[A, B]);
        world.happens(1, B, broken());
        let turn = world.happens(2, A, says(&["x"]));
        assert!(!turn.set.complete, "its devices may be late");
        assert_eq!(turn.wake, Some(seconds(60)));
        let turn = world.turn(60);
        assert!(turn.set.is_whole() && turn.set.troubles.len() == 1);
        assert_eq!(turn.wake, Some(seconds(600)));
        let turn = world.turn(600);
        assert!(turn.set.is_whole() && turn.set.troubles.is_empty() && turn.wake.is_none());
        let turn = world.happens(700, A, broken());
        assert_eq!(turn.set.troubles.len(), 2, "now none answers");
    }

    #[test]
    fn wrong_details_are_told_with_the_handlers_words_and_take_nothing_away() {
        let mut world = World::of(&[A]);
        let long = "no `url`\n".repeat(10_000);
        let turn = world.happens(1, A, Event::Refuses(long));
        assert!(!turn.set.complete && turn.wake.is_none());
        let [HandlerTrouble::RefusedDetails(why)] = turn.set.troubles.as_slice() else {
            panic!("{:?}", turn.set.troubles)
        };
        assert!(why.contains("no `url`\\n") && why.len() < 700, "{why}");
    }

    #[test]
    fn a_silent_handler_is_told_after_the_grace_period() {
        let mut world = World::of(&[A]);
        let turn = world.turn(59);
        assert!(turn.set.troubles.is_empty() && turn.wake == Some(seconds(60)));
        assert_eq!(world.turn(60).set.troubles.len(), 1);
    }

    #[test]
    fn an_endpoint_that_is_no_longer_registered_says_nothing_more() {
        let mut world = World::of(&[A, B]);
        world.happens(1, A, says(&["x"]));
        world.happens(1, B, says(&["y"]));
        world.0.set(&BTreeSet::from([at(A)]), seconds(2));
        let turn = world.happens(3, B, says(&["z"]));
        assert_eq!(ids(&turn), ["x"]);
    }

    #[test]
    fn the_devices_of_all_endpoints_together_are_bounded() {
        let mut world = World::of(&[A, B]);
        let many = |prefix: &str| {
            let ids = (0..3000).map(|n| Device::new(format!("{prefix}{n}")));
            Event::Says(DeviceSet::complete(ids))
        };
        world.happens(1, A, many("a"));
        let turn = world.happens(1, B, many("b"));
        assert_eq!(turn.set.devices.len(), DEVICES_MAX);
        assert!(turn.set.left_out);
    }
}
