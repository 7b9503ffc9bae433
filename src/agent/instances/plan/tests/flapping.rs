//! Devices that come and go, and what their Instances say of it.
use super::*;
use crate::discovery::damping::Damper;

/// A device as its handler says, seen through a damper.
struct Flaps {
    fixture: Fixture,
    damper: Damper,
}

impl Flaps {
    fn new() -> Self {
        Self {
            fixture: Fixture::new(", gracePeriodSeconds: 60"),
            damper: Damper::default(),
        }
    }

    fn is(&mut self, is_there: bool) -> Option<Duration> {
        let devices = is_there.then(|| Device::new("a"));
        let said = Arc::new(DeviceSet::complete(devices));
        let belief = self.damper.turn(&said, |_| true, self.fixture.now());
        let discovery = DiscoveryState {
            set: belief.set,
            flapping: Arc::new(belief.flapping),
            ..DiscoveryState::default()
        };
        self.fixture.discoveries.insert(key("cam"), discovery);
        self.fixture.settle();
        belief.wake
    }

    fn conditions(&self) -> Vec<(&str, &str)> {
        let status = self.fixture.only().status.as_ref().unwrap();
        let conditions = status.conditions.iter();
        conditions
            .map(|c| (c.type_.as_str(), c.status.as_str()))
            .collect()
    }
}

#[test]
fn a_device_that_flaps_says_so_until_it_is_steady_and_keeps_its_instance_while_it_is_held_back() {
    let mut flaps = Flaps::new();
    for _ in 0..10 {
        flaps.is(true);
        flaps.is(false);
    }
    flaps.is(true);
    assert_eq!(
        flaps.conditions(),
        [("Available", "False"), ("Flapping", "True")]
    );
    let status = flaps.fixture.only().status.clone().unwrap();
    let entry = &status.nodes[0];
    assert_eq!(
        (entry.health.as_str(), entry.reason.as_deref()),
        ("Unhealthy", Some("Flapping"))
    );
    assert!(
        status.conditions[1]
            .message
            .starts_with("node node-a: the device went away 3 times within minutes"),
        "{status:?}"
    );
    // Held back for longer than its grace period lasts, it is there all the time.
    for _ in 0..9 {
        for _ in 0..3 {
            flaps.is(false);
            flaps.is(true);
        }
        let wake = flaps.is(true).unwrap();
        let wait = wake - flaps.fixture.now();
        flaps.fixture.uptime += wait.as_secs() + 1;
        flaps.is(true);
        assert_eq!(
            flaps.conditions(),
            [("Available", "True"), ("Flapping", "True")]
        );
    }
    assert!(flaps.fixture.uptime > 300, "{}", flaps.fixture.uptime);
    flaps.fixture.uptime += 300;
    flaps.is(true);
    assert_eq!(flaps.conditions(), [("Available", "True")]);
    assert_eq!(flaps.fixture.only().status.as_ref().unwrap().nodes, []);
}

#[test]
fn a_device_that_flapped_and_stays_away_goes_like_any_other() {
    let mut flaps = Flaps::new();
    for _ in 0..4 {
        flaps.is(true);
        flaps.is(false);
    }
    assert_eq!(flaps.conditions()[1], ("Flapping", "True"));
    flaps.fixture.uptime += 59;
    flaps.is(false);
    assert_eq!(
        flaps.conditions(),
        [("Available", "False")],
        "it does not come any more"
    );
    flaps.fixture.uptime += 1;
    flaps.is(false);
    assert!(flaps.fixture.instances.is_empty());
}
