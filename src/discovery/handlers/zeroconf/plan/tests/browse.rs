//! What is asked of the network, and how often.
use super::*;

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
