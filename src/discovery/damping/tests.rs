//! Tables and properties of damping, in simulated time.
use super::*;
use proptest::{collection::vec, prelude::*};
use std::collections::BTreeSet;

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn device(id: &str, port: u8, text: u8) -> Device {
    let mut device = Device::new(id);
    let properties = [("PORT", port), ("TXT", text)];
    let properties = properties.map(|(key, value)| (key.to_owned(), value.to_string()));
    device.properties.extend(properties);
    device.connection.insert("PORT".to_owned());
    device
}

/// A damper, the set that its handler reports, and the set that it publishes.
struct Fixture {
    damper: Damper,
    said: Arc<DeviceSet>,
    now: Duration,
    belief: Belief,
}

impl Fixture {
    fn new() -> Self {
        Self {
            damper: Damper::default(),
            said: Arc::default(),
            now: Duration::ZERO,
            belief: Damper::default().turn(&Arc::default(), |_| true, Duration::ZERO),
        }
    }

    fn says(&mut self, devices: impl IntoIterator<Item = Device>) {
        self.said = Arc::new(DeviceSet::complete(devices));
        self.turn();
    }

    fn turn(&mut self) {
        self.belief = self.damper.turn(&self.said, |_| true, self.now);
        assert!(
            self.belief.wake.is_none_or(|wake| wake > self.now),
            "a wake that lies in the past: {:?}",
            self.damper
        );
    }

    /// Takes every turn that is due until `time` has passed.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(wake) = self.belief.wake.filter(|wake| *wake <= until) {
            self.now = wake;
            self.turn();
        }
        self.now = until;
    }

    fn ports(&self) -> Vec<&str> {
        let devices = self.belief.set.devices.values();
        devices.map(|d| d.properties["PORT"].as_str()).collect()
    }

    fn is_believed(&self) -> bool {
        !self.belief.set.devices.is_empty()
    }

    /// Lets the device be away for `away` seconds and return. Returns the time until its return is published.
    fn flap(&mut self, away: f64) -> Duration {
        self.says([]);
        assert!(!self.is_believed(), "a loss is believed at once");
        self.pass(secs(away));
        self.says([device("a", 1, 1)]);
        let back = self.now;
        while !self.is_believed() {
            self.now = self.belief.wake.unwrap();
            self.turn();
        }
        self.now - back
    }
}

#[test]
fn the_first_two_returns_are_believed_at_once_and_the_next_later_and_later() {
    let mut fixture = Fixture::new();
    fixture.says([device("a", 1, 1)]);
    assert_eq!(fixture.flap(1.0), Duration::ZERO);
    assert_eq!(fixture.flap(1.0), Duration::ZERO);
    assert_eq!(fixture.belief.flapping.len(), 0);
    let mut waits = vec![];
    for _ in 0..12 {
        fixture.pass(secs(1.0));
        waits.push(fixture.flap(0.5).as_secs());
        let id = DeviceId::new("a");
        assert!(!fixture.belief.flapping[&id].is_held_back);
    }
    assert_eq!(waits, [1, 3, 6, 13, 24, 44, 81, 147, 263, 292, 292, 292]);
    // The device stays: a minute later a loss costs seconds, and some minutes later nothing.
    fixture.pass(secs(60.0));
    assert!(fixture.flap(1.0) < secs(20.0));
    fixture.pass(secs(300.0));
    assert_eq!(fixture.belief.flapping.len(), 0);
    assert_eq!(fixture.flap(1.0), Duration::ZERO);
}

#[test]
fn three_losses_that_are_minutes_apart_are_three_first_ones() {
    let mut fixture = Fixture::new();
    fixture.says([device("a", 1, 1)]);
    for _ in 0..10 {
        fixture.pass(secs(65.0));
        assert_eq!(fixture.flap(1.0), Duration::ZERO);
        assert_eq!(fixture.belief.flapping.len(), 0);
    }
}

#[test]
fn what_a_device_does_while_it_is_held_back_costs_it_nothing_but_the_time() {
    let mut fixture = Fixture::new();
    fixture.says([device("a", 1, 1)]);
    for _ in 0..2 {
        fixture.flap(0.1);
    }
    let mut changes = 0;
    for _ in 0..600 {
        for devices in [vec![], vec![device("a", 1, 1)]] {
            let before = fixture.belief.clone();
            fixture.says(devices);
            fixture.pass(secs(0.125));
            let flaps = &fixture.belief.flapping;
            assert!(flaps.values().all(|flapping| flapping.losses == 3));
            changes += usize::from(before.set.devices != fixture.belief.set.devices);
        }
    }
    assert_eq!(changes, 1, "the third loss");
    let held = &fixture.belief.flapping[&DeviceId::new("a")];
    assert!(held.is_held_back);
    fixture.pass(secs(2.0));
    assert!(fixture.is_believed());
}

#[test]
fn a_device_that_stays_away_does_not_flap_any_more_and_is_forgotten() {
    let mut fixture = Fixture::new();
    fixture.says([device("a", 1, 1)]);
    for _ in 0..5 {
        fixture.flap(0.1);
    }
    fixture.says([]);
    assert_eq!(fixture.belief.flapping.len(), 1);
    fixture.pass(secs(120.0));
    assert_eq!(fixture.belief.flapping.len(), 0);
    assert_eq!(fixture.belief.wake, None);
    fixture.pass(secs(400.0));
    fixture.turn();
    assert_eq!(fixture.damper.records.len(), 0);
}

#[test]
fn a_move_must_last_and_anything_else_is_believed_at_once() {
    let mut fixture = Fixture::new();
    fixture.says([device("a", 1, 1)]);
    fixture.says([device("a", 1, 2)]);
    let text = |fixture: &Fixture| {
        let device = fixture.belief.set.devices.values().next().unwrap();
        device.properties["TXT"].clone()
    };
    assert_eq!(text(&fixture), "2");
    fixture.says([device("a", 2, 2)]);
    fixture.pass(secs(2.9));
    assert_eq!(fixture.ports(), ["1"]);
    // The connection is the first one again, so this was not a move.
    fixture.says([device("a", 1, 3)]);
    assert_eq!(
        (fixture.ports(), text(&fixture)),
        (vec!["1"], "3".to_owned())
    );
    fixture.says([device("a", 2, 4)]);
    fixture.pass(secs(2.9));
    assert_eq!(fixture.ports(), ["1"]);
    fixture.pass(secs(0.2));
    assert_eq!(fixture.ports(), ["2"]);
}

#[test]
fn a_device_that_moves_every_four_seconds_is_followed_once_and_its_last_place_within_ten() {
    let mut fixture = Fixture::new();
    fixture.says([device("a", 0, 1)]);
    let mut followed = vec![];
    for port in 1..=22 {
        fixture.pass(secs(4.0));
        followed.extend(fixture.ports().into_iter().map(str::to_owned));
        fixture.says([device("a", port, 1)]);
    }
    followed.dedup();
    assert_eq!(followed, ["0", "1"]);
    fixture.pass(secs(8.1));
    assert_eq!(fixture.ports(), ["22"]);
}

#[test]
fn a_return_at_another_place_is_a_return_and_a_move() {
    let mut fixture = Fixture::new();
    fixture.says([device("a", 1, 1)]);
    fixture.says([]);
    fixture.pass(secs(30.0));
    fixture.says([device("a", 2, 1)]);
    assert_eq!(fixture.ports(), ["2"], "a camera that starts anew");
    fixture.says([device("a", 3, 1)]);
    fixture.pass(secs(3.5));
    assert_eq!(fixture.ports(), ["2"]);
    fixture.pass(secs(3.0));
    assert_eq!(fixture.ports(), ["3"]);
}

#[test]
fn a_device_that_is_held_back_and_moves_waits_anew() {
    let mut fixture = Fixture::new();
    fixture.says([device("a", 1, 1)]);
    for _ in 0..4 {
        fixture.flap(0.1);
    }
    fixture.says([]);
    fixture.says([device("a", 1, 1)]);
    fixture.pass(secs(5.0));
    fixture.says([device("a", 2, 1)]);
    fixture.pass(secs(5.0));
    assert!(!fixture.is_believed());
    fixture.pass(secs(3.0));
    assert_eq!(fixture.ports(), ["2"]);
}

#[test]
fn what_is_late_in_another_run_of_its_handler_is_not_lost() {
    let mut fixture = Fixture::new();
    for _ in 0..9 {
        fixture.says([device("a", 1, 1)]);
        assert!(fixture.is_believed());
        let nothing_yet = Arc::new(DeviceSet::default());
        fixture.belief = fixture.damper.turn(&nothing_yet, |_| false, fixture.now);
        assert!(!fixture.is_believed());
    }
    assert_eq!(fixture.damper.records.len(), 0);
}

#[test]
fn what_is_remembered_is_bounded_and_the_worst_is_kept() {
    let mut fixture = Fixture::new();
    fixture.says([device("worst", 1, 1)]);
    for _ in 0..3 {
        fixture.says([]);
        fixture.says([device("worst", 1, 1)]);
    }
    for n in 0..3 {
        let ids = (0..REMEMBERED_MAX).map(|i| format!("{n}-{i}"));
        fixture.says(ids.map(|id| device(&id, 1, 1)));
        fixture.says([]);
        assert!(fixture.damper.records.len() <= REMEMBERED_MAX);
    }
    let worst = DeviceId::new("worst");
    assert!(fixture.damper.records.contains_key(&worst));
}

#[test]
fn what_flaps_is_reported_in_plain_words() {
    let flapping = Flapping {
        is_held_back: true,
        losses: 5,
        hold: secs(8.4),
    };
    assert_eq!(
        flapping.to_string(),
        "the device went away 5 times within minutes; until it is steady, each return counts only after 8 s without \
         a break; check its power, its network, and whether another device has its name"
    );
}

#[derive(Debug, Clone)]
enum Step {
    Says(u8, u8, u8),
    Loses(u8),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3u8, 0..3u8, 0..2u8).prop_map(|(id, port, text)| Step::Says(id, port, text)),
        4 => (0..3u8).prop_map(Step::Loses),
        6 => prop_oneof![0..300u64, 0..5000u64, 0..90_000u64].prop_map(Step::Pass),
    ]
}

proptest! {
    #[test]
    fn nothing_is_believed_that_is_not_there_and_the_last_word_is_always_reached(steps in vec(step(), 0..120)) {
        let mut fixture = Fixture::new();
        let mut there = BTreeMap::new();
        for step in steps {
            let before = fixture.belief.set.clone();
            match step {
                Step::Says(id, port, text) => drop(there.insert(id, device(&id.to_string(), port, text))),
                Step::Loses(id) => drop(there.remove(&id)),
                Step::Pass(millis) => fixture.pass(Duration::from_millis(millis)),
            }
            fixture.says(there.values().cloned());
            for (id, device) in &fixture.belief.set.devices {
                let said = fixture.said.devices.get(id);
                prop_assert!(said.is_some(), "it is not there");
                prop_assert!(said == Some(device) || before.devices.get(id) == Some(device));
            }
            let held = fixture.belief.flapping.iter().filter(|(_, f)| f.is_held_back);
            let held: BTreeSet<_> = held.map(|(id, _)| id).collect();
            let left_out = fixture.said.devices.keys().filter(|id| !fixture.belief.set.devices.contains_key(*id));
            prop_assert_eq!(held, left_out.collect::<BTreeSet<_>>());
        }
        fixture.pass(LONGEST_HOLD + LONGEST_CONNECTION_HOLD);
        prop_assert_eq!(&*fixture.belief.set, &*fixture.said);
        fixture.pass(HALF_LIFE * 8);
        fixture.turn();
        prop_assert_eq!(fixture.belief.flapping.len(), 0);
        prop_assert_eq!(fixture.belief.wake, None);
        prop_assert_eq!(fixture.damper.records.len(), 0);
    }
}
