//! Tests of endpoints that answer, break and refuse.
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

/// Endpoints, and whether they registered in an earlier life of the agent only.
fn registered(endpoints: &[&str], are_restored: bool) -> BTreeMap<Endpoint, bool> {
    endpoints.iter().map(|e| (at(e), are_restored)).collect()
}

struct World(Endpoints);

impl World {
    fn of(endpoints: &[&str]) -> Self {
        let mut all = Endpoints::new("cam");
        all.set(&registered(endpoints, false), seconds(0));
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
fn devices_of_a_handler_that_began_anew_stay_until_its_first_look_is_complete() {
    let begun = |ids: &[&str]| {
        Event::Says(DeviceSet {
            complete: false,
            ..DeviceSet::complete(ids.iter().map(Device::new))
        })
    };
    let mut world = World::of(&[A]);
    let first = world.happens(0, A, begun(&["x"]));
    assert!(!first.set.complete && ids(&first) == ["x"]);
    let turn = world.happens(5, A, says(&["x", "y"]));
    assert!(turn.set.is_whole() && ids(&turn) == ["x", "y"]);
    world.happens(10, A, broken());
    let turn = world.happens(11, A, begun(&["z"]));
    assert!(turn.set.is_whole() && turn.set.troubles.is_empty());
    assert_eq!(ids(&turn), ["x", "y", "z"]);
    let turn = world.happens(16, A, says(&["y"]));
    assert!(turn.set.is_whole() && ids(&turn) == ["y"]);
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
fn an_address_that_is_never_there_again_delays_nothing_and_is_reported_for_a_while() {
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
fn wrong_details_are_reported_with_the_handlers_words_and_take_nothing_away() {
    let mut world = World::of(&[A]);
    let long = "no `url`\n".repeat(10_000);
    let turn = world.happens(1, A, Event::Refuses(long));
    assert!(!turn.set.complete && turn.wake == Some(seconds(60)));
    let [HandlerTrouble::RefusedDetails(why)] = turn.set.troubles.as_slice() else {
        panic!("{:?}", turn.set.troubles)
    };
    assert!(why.contains("no `url`\\n") && why.len() < 700, "{why}");
}

#[test]
fn details_that_are_refused_after_an_answer_take_nothing_away_through_the_grace_period() {
    let mut world = World::of(&[A, B]);
    world.happens(0, A, says(&["x"]));
    world.happens(0, B, says(&["y"]));
    let turn = world.happens(10, A, Event::Refuses("another version".to_owned()));
    assert!(turn.set.is_whole() && ids(&turn) == ["x", "y"]);
    assert_eq!((turn.set.troubles.len(), turn.wake), (1, Some(seconds(70))));
    let turn = world.turn(70);
    assert!(turn.set.is_whole() && ids(&turn) == ["y"]);
    assert_eq!(world.turn(100_000).set.troubles.len(), 1, "it is still so");
}

#[test]
fn an_endpoint_of_an_earlier_life_may_be_late_for_ten_minutes() {
    let mut world = World(Endpoints::new("cam"));
    world.0.set(&registered(&[A, B], true), seconds(0));
    world.happens(1, A, says(&["x"]));
    world.happens(1, B, broken());
    // Another one of its Configurations has its answer: it is there.
    let mut answered = World(Endpoints::new("cam"));
    answered.0.set(&registered(&[A, B], true), seconds(0));
    answered.happens(1, A, says(&["x"]));
    answered.0.set(&registered(&[A, B], false), seconds(2));
    for (now, late) in [(61, false), (599, false), (600, true)] {
        assert_eq!(world.turn(now).set.complete, late, "after {now} s");
        assert!(answered.turn(now).set.complete, "after {now} s");
    }
    // One that has answered in this life gets the short time.
    world.happens(700, A, broken());
    let turn = world.turn(760);
    assert!(turn.set.is_whole() && ids(&turn).is_empty());
}

#[test]
fn of_two_devices_with_one_id_that_of_an_endpoint_that_answers_counts() {
    let says = |url: &str| {
        let mut device = Device::new("x");
        device.properties.insert("URL".to_owned(), url.to_owned());
        Event::Says(DeviceSet::complete([device]))
    };
    let mut world = World::of(&[A, B]);
    world.happens(0, A, says("old"));
    world.happens(0, B, says("new"));
    let url = |turn: Turn| turn.set.devices.values().next().unwrap().properties["URL"].clone();
    assert_eq!(url(world.turn(1)), "old", "the first one");
    assert_eq!(url(world.happens(2, A, broken())), "new");
}

#[test]
fn a_silent_handler_is_reported_after_the_grace_period() {
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
    world.0.set(&registered(&[A], false), seconds(2));
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
