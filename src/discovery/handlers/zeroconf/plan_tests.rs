//! Tables and properties of the tracker: time is a number here.
use super::super::{environment::Txt, service::Address};
use super::*;
use proptest::{collection::vec, prelude::*};

const ADDR: &str = "AKRI_ZEROCONF_DEVICE_ADDR";

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn tracker(yaml: &str) -> Tracker {
    let details = Details::parse(&format!("kind: _t._tcp\n{yaml}")).unwrap();
    let mut tracker = Tracker::new(details, 7);
    assert!(tracker.turn(ms(0)).browse);
    tracker
}

fn fullname(name: &str) -> String {
    format!("{name}._t._tcp.local.")
}

fn resolved(name: &str, addresses: &str) -> Event {
    let address = |text: &str| {
        let (ip, interface) = text.split_once('%').unwrap_or((text, ""));
        Address::new(ip.parse().unwrap(), interface)
    };
    Event::Resolved(Box::new(Service {
        fullname: fullname(name),
        host: "h.local.".into(),
        port: 80,
        addresses: addresses.split(' ').filter_map(address).collect(),
        txt: vec![Txt {
            key: "k".into(),
            value: None,
        }],
    }))
}

fn removed(name: &str) -> Event {
    Event::Removed(fullname(name))
}

/// Takes every turn up to and with `until`, as the run loop would. What was published, and when.
fn run(tracker: &mut Tracker, from: Duration, until: Duration) -> Vec<(Duration, DeviceSet)> {
    let mut published = vec![];
    let mut now = from;
    for _ in 0..100_000 {
        let turn = tracker.turn(now);
        published.extend(turn.publish.map(|set| (now, set)));
        match turn.wake {
            Some(wake) if wake <= until => now = wake.max(now),
            _ => return published,
        }
    }
    panic!("the turns do not come to rest: a wake that lies in the past");
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

#[test]
fn several_events_of_one_service_are_one_publication_of_the_last() {
    let mut tracker = tracker("");
    tracker.apply(resolved("a", "fe80::1%eth0"), ms(10));
    tracker.apply(resolved("a", "10.0.0.1"), ms(120));
    let published = run(&mut tracker, ms(120), ms(4000));
    // It settles anew once it can be reached from afar.
    assert_eq!(story(&published), [(370, vec!["a"])]);
    let device = published[0].1.devices.values().next().unwrap();
    assert_eq!(device.properties[ADDR], "10.0.0.1");
}

#[test]
fn an_event_that_changes_nothing_publishes_nothing() {
    let mut tracker = tracker("");
    tracker.apply(resolved("a", "10.0.0.1"), ms(0));
    run(&mut tracker, ms(0), ms(1000));
    for at in [1000, 1100, 1500] {
        tracker.apply(resolved("a", "10.0.0.1"), ms(at));
    }
    tracker.apply(resolved("a", "10.0.0.2"), ms(1600));
    tracker.apply(resolved("a", "10.0.0.1"), ms(1700));
    assert_eq!(run(&mut tracker, ms(1700), ms(4000)), []);
}

#[test]
fn an_address_is_kept_among_others_also_before_it_is_published_and_over_a_short_absence() {
    let mut tracker = tracker("");
    tracker.apply(resolved("a", "10.0.0.9"), ms(0));
    tracker.apply(resolved("a", "10.0.0.1 10.0.0.9"), ms(100));
    let published = run(&mut tracker, ms(100), ms(300));
    let device = published[0].1.devices.values().next().unwrap();
    assert_eq!(device.properties[ADDR], "10.0.0.9");
    // Its goodbye must wait, so soon after the publication, and it is back before.
    tracker.apply(removed("a"), ms(300));
    tracker.apply(resolved("a", "10.0.0.1 10.0.0.9"), ms(400));
    assert_eq!(run(&mut tracker, ms(400), ms(4000)), []);
}

#[test]
fn services_that_come_together_are_one_set() {
    let mut tracker = tracker("");
    let mut published = vec![];
    for n in 0..300 {
        tracker.apply(resolved(&format!("s{n}"), "10.0.0.1"), ms(n / 2));
        published.extend(run(&mut tracker, ms(n / 2), ms(n / 2)));
    }
    published.extend(run(&mut tracker, ms(150), ms(1000)));
    assert_eq!(published.len(), 1);
    assert_eq!(published[0].0, ms(149) + SETTLE);
    assert_eq!(published[0].1.devices.len(), 300);
}

#[test]
fn a_settled_device_does_not_wait_for_ever_for_others() {
    let mut tracker = tracker("");
    let mut published = vec![];
    for n in 0..100 {
        tracker.apply(resolved(&format!("s{n}"), "10.0.0.1"), ms(n * 20));
        published.extend(run(&mut tracker, ms(n * 20), ms(n * 20 + 19)));
    }
    assert_eq!(
        published[0].0,
        SETTLE + ms(140),
        "the last within 150 ms of the first"
    );
    assert!(published.len() > 5);
}

#[test]
fn a_goodbye_is_published_at_once() {
    let mut tracker = tracker("");
    tracker.apply(resolved("a", "10.0.0.1"), ms(0));
    tracker.apply(resolved("b", "10.0.0.1"), ms(0));
    run(&mut tracker, ms(0), ms(1000));
    tracker.apply(removed("a"), ms(1000));
    assert_eq!(
        story(&run(&mut tracker, ms(1000), ms(4000))),
        [(1000, vec!["b"])]
    );
}

#[test]
fn a_goodbye_does_not_hurry_those_that_still_settle() {
    let mut tracker = tracker("");
    tracker.apply(resolved("a", "10.0.0.1"), ms(0));
    run(&mut tracker, ms(0), ms(1000));
    tracker.apply(resolved("b", "10.0.0.1"), ms(900));
    tracker.apply(removed("a"), ms(1000));
    let published = run(&mut tracker, ms(1000), ms(4000));
    assert_eq!(story(&published), [(1000, vec![]), (1150, vec!["b"])]);
}

#[test]
fn a_service_that_goes_before_it_settled_was_never_there() {
    let mut tracker = tracker("");
    tracker.apply(resolved("a", "10.0.0.1"), ms(0));
    tracker.apply(removed("a"), ms(100));
    assert_eq!(run(&mut tracker, ms(100), ms(4999)), []);
    assert_eq!(tracker.services.len(), 0);
}

#[test]
fn a_service_that_no_longer_matches_is_no_device() {
    let mut tracker = tracker("addresses: [10.0.0.0/8]");
    tracker.apply(resolved("a", "10.0.0.1"), ms(0));
    run(&mut tracker, ms(0), ms(1000));
    tracker.apply(resolved("a", "192.168.0.1"), ms(1000));
    assert_eq!(
        story(&run(&mut tracker, ms(1000), ms(4000))),
        [(1250, vec![])]
    );
    assert_eq!(tracker.services.len(), 0, "and is not kept");
}

#[test]
fn the_set_is_complete_after_five_seconds_also_when_nothing_is_there() {
    let mut tracker = tracker("");
    let published = run(&mut tracker, ms(0), ms(60_000));
    assert_eq!(published, [(COMPLETE_AFTER, DeviceSet::complete([]))]);
}

#[test]
fn a_lapsed_browse_starts_anew_and_sweeps_what_it_does_not_see_again() {
    let mut tracker = tracker("verify: off");
    for name in ["stays", "gone"] {
        tracker.apply(resolved(name, "10.0.0.1"), ms(0));
    }
    run(&mut tracker, ms(0), ms(9000));
    tracker.apply(Event::Lapsed, ms(9000));
    let turn = tracker.turn(ms(9000));
    assert_eq!((turn.browse, turn.publish), (false, None));
    assert_eq!(turn.wake, Some(ms(9000) + BROWSE_PAUSE));
    assert!(tracker.turn(ms(9100)).browse);
    tracker.apply(resolved("stays", "10.0.0.1"), ms(9300));
    tracker.apply(resolved("new", "10.0.0.1"), ms(9300));
    let published = run(&mut tracker, ms(9300), ms(60_000));
    let swept = 9100 + 5000 + 2 * 5;
    assert_eq!(
        story(&published),
        [
            (9550, vec!["gone", "new", "stays"]),
            (swept, vec!["new", "stays"])
        ]
    );
}

#[test]
fn browses_that_lapse_again_and_again_are_further_and_further_apart() {
    let mut tracker = tracker("");
    tracker.apply(resolved("a", "10.0.0.1"), ms(0));
    let mut now = ms(1000);
    run(&mut tracker, ms(0), now);
    let mut pauses = vec![];
    for _ in 0..9 {
        tracker.apply(Event::Lapsed, now);
        let wake = tracker.browse_at.unwrap();
        pauses.push((wake - now).as_millis());
        assert_eq!(
            names(&tracker.published),
            ["a"],
            "nothing is swept meanwhile"
        );
        now = wake;
        assert!(tracker.turn(now).browse);
    }
    assert_eq!(
        pauses,
        [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
    );
    now += BROWSE_HELD + ms(1);
    tracker.apply(Event::Lapsed, now);
    assert_eq!(tracker.browse_at, Some(now + BROWSE_PAUSE));
}

#[test]
fn an_interface_that_goes_and_comes_back_takes_its_devices_along() {
    let mut tracker = tracker("");
    for name in ["a", "b"] {
        tracker.apply(resolved(name, "10.0.0.1"), ms(0));
    }
    run(&mut tracker, ms(0), ms(6000));
    // mdns-sd removes all services of the interface, then resolves them by way of its new queries.
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

#[test]
fn after_a_removal_missing_services_are_looked_for_less_and_less_often() {
    let mut tracker = tracker("verify: off");
    tracker.apply(resolved("a", "10.0.0.1"), ms(0));
    run(&mut tracker, ms(0), ms(6000));
    tracker.apply(removed("a"), ms(6000));
    let (mut now, mut looks) = (ms(6000), vec![]);
    loop {
        let turn = tracker.turn(now);
        if turn.look_again {
            looks.push(now.as_secs() - 6);
        }
        match turn.wake {
            Some(wake) => now = wake,
            None => break,
        }
    }
    assert_eq!(looks, [2, 6, 14, 30, 62, 122, 182, 242, 302, 362]);
}

/// When each service was asked, up to `until`.
fn verified(tracker: &mut Tracker, until: Duration) -> BTreeMap<String, Vec<Duration>> {
    let mut asked: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    let mut now = ms(0);
    loop {
        let turn = tracker.turn(now);
        assert!(turn.verify.len() <= VERIFIED_AT_ONCE);
        for name in turn.verify {
            asked.entry(name).or_default().push(now);
        }
        match turn.wake {
            Some(wake) if wake <= until => now = wake,
            _ => return asked,
        }
    }
}

#[test]
fn fifty_services_are_each_asked_at_least_every_twenty_seconds() {
    let mut tracker = tracker("");
    for n in 0..50 {
        tracker.apply(resolved(&format!("s{n}"), "10.0.0.1"), ms(0));
    }
    let asked = verified(&mut tracker, ms(200_000));
    assert_eq!(asked.len(), 50);
    for times in asked.values() {
        assert!(times[0] <= ms(21_000));
        for pair in times.windows(2) {
            let gap = pair[1] - pair[0];
            assert!((ms(15_000)..=ms(21_000)).contains(&gap), "{gap:?}");
        }
    }
    let first: std::collections::BTreeSet<_> = asked.values().map(|t| t[0]).collect();
    assert!(first.len() > 25, "spread, not in one burst");
}

#[test]
fn a_crowd_is_asked_no_more_often_in_all_than_fifty_are() {
    let mut tracker = tracker("");
    for n in 0..500 {
        tracker.apply(resolved(&format!("s{n}"), "10.0.0.1"), ms(0));
    }
    let asked = verified(&mut tracker, ms(800_000));
    let questions: usize = asked.values().map(Vec::len).sum();
    assert_eq!(asked.len(), 500);
    assert!((1900..2500).contains(&questions), "{questions} in 800 s");
}

#[test]
fn verification_can_be_off_and_never_asks_without_a_browse() {
    let mut off = tracker("verify: off");
    off.apply(resolved("a", "10.0.0.1"), ms(0));
    assert!(verified(&mut off, ms(100_000)).is_empty());
    let mut lapsed = tracker("verify: {intervalSeconds: 5}");
    lapsed.apply(resolved("a", "10.0.0.1"), ms(0));
    lapsed.browse_pause = BROWSE_PAUSE_MAX;
    lapsed.apply(Event::Lapsed, ms(0));
    assert!(verified(&mut lapsed, ms(9000)).is_empty());
}

#[test]
fn services_past_the_limit_are_left_out_and_that_is_said_once() {
    let mut tracker = tracker("verify: off");
    for n in 0..SERVICES_MAX + 10 {
        tracker.apply(resolved(&format!("s{n}"), "10.0.0.1"), ms(0));
    }
    assert!(tracker.turn(ms(0)).overfull);
    tracker.apply(resolved("one-more", "10.0.0.1"), ms(10));
    assert!(!tracker.turn(ms(10)).overfull);
    let published = run(&mut tracker, ms(10), ms(1000));
    assert_eq!(published[0].1.devices.len(), SERVICES_MAX);
    tracker.apply(removed("s0"), ms(1000));
    run(&mut tracker, ms(1000), ms(1001));
    tracker.apply(resolved("one-more", "10.0.0.1"), ms(1100));
    let published = run(&mut tracker, ms(1100), ms(2000));
    assert!(
        names(&published[0].1).contains(&"one-more"),
        "there is room again"
    );
}

#[test]
fn a_service_of_this_machine_alone_waits_for_its_second_announcement_unless_that_is_all_there_is() {
    let mut everywhere = tracker("verify: off");
    everywhere.apply(resolved("a", "127.0.0.1"), ms(0));
    assert_eq!(
        story(&run(&mut everywhere, ms(0), ms(4000))),
        [(1500, vec!["a"])]
    );
    let mut on_lo = tracker("verify: off\ninterfaces: {allow: [lo]}");
    on_lo.apply(resolved("a", "127.0.0.1"), ms(0));
    assert_eq!(story(&run(&mut on_lo, ms(0), ms(4000))), [(250, vec!["a"])]);
}

#[test]
fn an_address_that_comes_back_within_seconds_was_never_gone_and_a_real_move_is_published() {
    let mut tracker = tracker("verify: off");
    tracker.apply(resolved("a", "10.0.0.1 127.0.0.1"), ms(0));
    run(&mut tracker, ms(0), ms(6000));
    tracker.apply(resolved("a", "127.0.0.1"), ms(6000));
    assert_eq!(story(&run(&mut tracker, ms(6000), ms(7500))), []);
    tracker.apply(resolved("a", "10.0.0.1 127.0.0.1"), ms(7500));
    assert_eq!(story(&run(&mut tracker, ms(7500), ms(20_000))), []);
    tracker.apply(resolved("a", "10.0.0.2"), ms(20_000));
    assert_eq!(
        story(&run(&mut tracker, ms(20_000), ms(30_000))),
        [(23_000, vec!["a"])]
    );
}

#[derive(Debug, Clone)]
enum Step {
    Resolved(u8, u8),
    Removed(u8),
    Lapsed,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4u8, 0..3u8).prop_map(|(s, a)| Step::Resolved(s, a)),
        3 => (0..4u8).prop_map(Step::Removed),
        1 => Just(Step::Lapsed),
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
            Step::Lapsed => tracker.apply(Event::Lapsed, now),
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
        // Without a lapse: then nothing is ever swept, and the last event of each service decides.
        let steps: Vec<Step> = steps.into_iter().filter(|s| !matches!(s, Step::Lapsed)).collect();
        let mut expected = BTreeMap::new();
        for step in &steps {
            match step {
                Step::Resolved(s, a) => { expected.insert(fullname(&s.to_string()), format!("10.0.0.{}", a + 1)); }
                Step::Removed(s) => { expected.remove(&fullname(&s.to_string())); }
                Step::Lapsed | Step::Pass(_) => {}
            }
        }
        let (mut tracker, now, _) = play(steps);
        run(&mut tracker, now, now + MOVE_SETTLE + SETTLE);
        let published: BTreeMap<String, String> = tracker.published.devices.values()
            .map(|d| (d.id.to_string(), d.properties[ADDR].clone())).collect();
        prop_assert_eq!(&published, &expected);
        prop_assert_eq!(tracker.services.len(), expected.len(), "nothing is kept of what is gone");
    }
}
