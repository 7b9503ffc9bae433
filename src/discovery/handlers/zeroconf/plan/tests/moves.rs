//! Tests of services that move, and of interfaces that disappear.
use super::*;
use crate::discovery::damping::Damper;

/// Returns the addresses and ports that the damper publishes up to `until`, with their times.
fn believed(tracker: &mut Tracker, events: Vec<(u64, Event)>, until: u64) -> Vec<(u128, String)> {
    let (mut damper, mut wake) = (Damper::default(), None);
    let (mut story, mut said) = (vec![], Arc::new(DeviceSet::default()));
    let mut events = events.into_iter().peekable();
    for millis in (0..=until).step_by(10) {
        let now = ms(millis);
        while let Some((_, event)) = events.next_if(|(at, _)| *at <= millis) {
            tracker.apply(event, now);
        }
        match (tracker.turn(now).publish, wake) {
            (Some(set), _) => said = Arc::new(set),
            (None, Some(wake)) if wake <= now => {}
            (None, _) => continue,
        }
        let belief = damper.turn(&said, |_| true, now);
        wake = belief.wake;
        let reached = |device: &Arc<Device>| {
            let [addr, port] = [ADDR, PORT].map(|key| device.properties[key].as_str());
            format!("{addr}:{port}")
        };
        let reached = belief
            .set
            .devices
            .values()
            .next()
            .map_or("-".to_owned(), reached);
        if story.last().is_none_or(|(_, before)| *before != reached) {
            story.push((now.as_millis(), reached));
        }
    }
    story
}

#[test]
fn an_address_that_comes_back_within_seconds_was_never_gone_and_a_real_move_is_believed() {
    let mut tracker = tracker("");
    let events = vec![
        (0, resolved("a", "10.0.0.2 127.0.0.1")),
        // An announcement on another interface flushes the address. It returns, once beside a better one.
        (6000, resolved("a", "127.0.0.1")),
        (7500, resolved("a", "10.0.0.2 127.0.0.1")),
        (12_000, resolved("a", "10.0.0.1")),
        (13_500, resolved("a", "10.0.0.1 10.0.0.2")),
        (20_000, resolved("a", "10.0.0.3")),
    ];
    assert_eq!(
        believed(&mut tracker, events, 40_000),
        [
            (250, "10.0.0.2:80".to_owned()),
            (23_250, "10.0.0.3:80".to_owned())
        ]
    );
}

#[test]
fn a_service_whose_port_changes_every_four_seconds_is_not_followed_and_its_last_port_is_believed_soon()
 {
    let moved = |port: u16, at: u64| (at, at_port("a", port));
    // The address changes by an announcement that flushes the old record, or by a goodbye and a new announcement.
    for pause in [None, Some(50), Some(1000), Some(3000)] {
        let mut tracker = tracker("");
        let mut events = vec![moved(1000, 0)];
        for n in 1..=22 {
            let at = u64::from(n) * 4000;
            events.extend(pause.map(|_| (at, removed("a"))));
            events.push(moved(1000 + n, at + pause.unwrap_or_default()));
        }
        let last_change = events.last().unwrap().0;
        let story = believed(&mut tracker, events, last_change + 10_000);
        let ports: Vec<_> = story.iter().filter(|(_, reached)| reached != "-").collect();
        assert!(ports.len() <= 6, "{pause:?}: {story:?}");
        assert_eq!(
            story.last().unwrap().1,
            "10.0.0.1:1022",
            "{pause:?}: {story:?}"
        );
    }
}

#[test]
fn an_interface_that_goes_and_comes_back_takes_its_devices_along() {
    let mut tracker = tracker("");
    for name in ["a", "b"] {
        tracker.apply(resolved(name, "10.0.0.1"), ms(0));
    }
    run(&mut tracker, ms(0), ms(6000));
    for name in ["a", "b"] {
        tracker.apply(removed(name), ms(6000));
    }
    assert_eq!(
        story(&run(&mut tracker, ms(6000), ms(8000))),
        [(6000, vec![])]
    );
    for name in ["a", "b"] {
        tracker.apply(resolved(name, "10.0.0.1"), ms(8000));
    }
    assert_eq!(
        story(&run(&mut tracker, ms(8000), ms(9000))),
        [(8250, vec!["a", "b"])]
    );
}

/// Counts the published changes of `count` services that send a goodbye and an announcement at 4 Hz.
#[test]
fn three_hundred_services_that_flap_four_times_a_second_are_published_a_few_times_each() {
    let mut tracker = tracker("");
    let (mut damper, mut said) = (Damper::default(), Arc::new(DeviceSet::default()));
    let mut before = BTreeMap::new();
    let mut changes = 0;
    for step in 0..240_u64 {
        let now = ms(step * 125);
        for n in 0..300 {
            let name = format!("s{n}");
            let event = match step % 2 {
                0 => resolved(&name, "10.0.0.1"),
                _ => removed(&name),
            };
            tracker.apply(event, now);
        }
        // Turns are taken when they are due, also between two events.
        for part in [0, 60, 124] {
            if let Some(set) = tracker.turn(now + ms(part)).publish {
                said = Arc::new(set);
            }
            let belief = damper.turn(&said, |_| true, now + ms(part));
            let ids: std::collections::BTreeSet<_> = before
                .keys()
                .chain(belief.set.devices.keys())
                .cloned()
                .collect();
            changes += ids
                .iter()
                .filter(|id| before.get(*id) != belief.set.devices.get(*id))
                .count();
            before = belief.set.devices.clone();
        }
    }
    assert!(changes <= 300 * 6, "{changes} in 30 s");
}
