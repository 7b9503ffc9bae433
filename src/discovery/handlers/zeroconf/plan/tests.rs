//! Tables and properties of the tracker, in simulated time.
mod moves;
mod publication;

use super::super::{
    budget::{self, SERVICES_MAX, ServiceBudget},
    environment::Txt,
};
use super::*;
use crate::model::{device::Device, typed_names::ConfigurationKey};
use petiole_mdns::Address;
use proptest::{collection::vec, prelude::*};

const ADDR: &str = "AKRI_ZEROCONF_DEVICE_ADDR";
const PORT: &str = "AKRI_ZEROCONF_DEVICE_PORT";

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn tracker(yaml: &str) -> Tracker {
    let details = Details::parse(&format!("kind: _t._tcp\n{yaml}")).unwrap();
    Tracker::new(
        details,
        ServiceBudget::within(&budget::all_bytes(), &ConfigurationKey::new("", "")),
    )
}

fn fullname(name: &str) -> String {
    format!("{name}._t._tcp.local.")
}

fn resolved(name: &str, addresses: &str) -> Event {
    Event::Resolved(Box::new(service(name, addresses)))
}

fn at_port(name: &str, port: u16) -> Event {
    Event::Resolved(Box::new(Service {
        port,
        ..service(name, "10.0.0.1")
    }))
}

fn service(name: &str, addresses: &str) -> Service {
    let address = |text: &str| {
        let (ip, interface) = text.split_once('%').unwrap_or((text, ""));
        Address {
            ip: ip.parse().unwrap(),
            interface: interface.into(),
            network: None,
            is_on_link: true,
        }
    };
    Service {
        fullname: fullname(name),
        host: "h.local.".into(),
        port: 80,
        addresses: addresses.split_whitespace().map(address).collect(),
        txt: vec![Txt {
            key: "k".into(),
            value: None,
        }],
        source: [10, 0, 0, 1].into(),
        twin: None,
    }
}

fn removed(name: &str) -> Event {
    Event::Removed(fullname(name))
}

/// Takes every turn up to and including `until`, as the run loop would. Returns the published sets with their times.
fn run(tracker: &mut Tracker, from: Duration, until: Duration) -> Vec<(Duration, DeviceSet)> {
    let mut published = vec![];
    let mut now = from;
    for _ in 0..100_000 {
        let turn = tracker.turn(now);
        published.extend(turn.publish.map(|set| (now, set)));
        assert!(turn.wake.is_none_or(|wake| wake > now), "a busy loop");
        match turn.wake {
            Some(wake) if wake <= until => now = wake,
            _ => return published,
        }
    }
    panic!("the turns do not come to rest");
}

fn names(set: &DeviceSet) -> Vec<&str> {
    let names = set.devices.keys().map(|id| id.as_str());
    names.map(|n| n.split('.').next().unwrap()).collect()
}

fn story(published: &[(Duration, DeviceSet)]) -> Vec<(u128, Vec<&str>)> {
    published
        .iter()
        .map(|(at, set)| (at.as_millis(), names(set)))
        .collect()
}

#[derive(Debug, Clone)]
enum Step {
    Resolved(u8, u8),
    Removed(u8),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4u8, 0..3u8).prop_map(|(s, a)| Step::Resolved(s, a)),
        3 => (0..4u8).prop_map(Step::Removed),
        6 => prop_oneof![0..30u64, 0..400u64, 0..9000u64].prop_map(Step::Pass),
    ]
}

fn play(steps: Vec<Step>) -> (Tracker, Duration, Vec<(Duration, DeviceSet)>) {
    let mut tracker = tracker("");
    let (mut now, mut published) = (ms(0), vec![]);
    for step in steps {
        match step {
            Step::Resolved(s, a) => {
                tracker.apply(resolved(&s.to_string(), &format!("10.0.0.{}", a + 1)), now);
            }
            Step::Removed(s) => tracker.apply(removed(&s.to_string()), now),
            Step::Pass(millis) => {
                published.extend(run(&mut tracker, now, now + ms(millis)));
                now += ms(millis);
            }
        }
    }
    (tracker, now, published)
}

proptest! {
    #[test]
    fn no_device_changes_twice_within_its_settle_time(steps in vec(step(), 0..80)) {
        let (_, _, published) = play(steps);
        let mut last: BTreeMap<DeviceId, Duration> = BTreeMap::new();
        let mut before = DeviceSet::default();
        for (at, set) in published {
            let ids = before.devices.keys().chain(set.devices.keys());
            let ids: std::collections::BTreeSet<_> = ids.cloned().collect();
            let changed: Vec<_> = ids.into_iter().filter(|id| before.devices.get(id) != set.devices.get(id)).collect();
            prop_assert!(!changed.is_empty() || before.complete != set.complete, "a set that says nothing new");
            for id in changed {
                if let Some(earlier) = last.insert(id, at) {
                    prop_assert!(at - earlier >= SETTLE);
                }
            }
            before = set;
        }
    }

    #[test]
    fn at_rest_what_is_published_is_what_was_said_last(steps in vec(step(), 0..80)) {
        let mut expected = BTreeMap::new();
        for step in &steps {
            match step {
                Step::Resolved(s, a) => { expected.insert(fullname(&s.to_string()), format!("10.0.0.{}", a + 1)); }
                Step::Removed(s) => { expected.remove(&fullname(&s.to_string())); }
                Step::Pass(_) => {}
            }
        }
        let (mut tracker, now, _) = play(steps);
        run(&mut tracker, now, now + 2 * SETTLE);
        let published: BTreeMap<String, String> = tracker.published.devices.values()
            .map(|d| (d.id.to_string(), d.properties[ADDR].clone())).collect();
        prop_assert_eq!(&published, &expected);
        prop_assert_eq!(tracker.services.len(), expected.len(), "nothing is kept of what is gone");
    }
}
