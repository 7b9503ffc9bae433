//! Tests of the published sets, and of the times of publication.
use super::*;

#[test]
fn several_events_of_one_service_are_one_publication_of_the_last() {
    let mut tracker = tracker("");
    tracker.apply(resolved("a", "fe80::1%eth0"), ms(10));
    tracker.apply(resolved("a", "10.0.0.1"), ms(120));
    let published = run(&mut tracker, ms(120), ms(4000));
    // The settle time starts anew once the service has a routable address.
    assert_eq!(story(&published), [(370, vec!["a"])]);
    let device = published[0].1.devices.values().next().unwrap();
    assert_eq!(device.properties[ADDR], "10.0.0.1");
}

#[test]
fn the_first_look_is_not_complete_while_services_wait_for_their_turn() {
    let mut tracker = tracker("");
    tracker.is_behind = true;
    tracker.apply(resolved("a", "10.0.0.1"), ms(10));
    let published = run(&mut tracker, ms(10), ms(9000));
    assert_eq!(story(&published), [(260, vec!["a"])]);
    assert!(!published[0].1.complete);
    tracker.is_behind = false;
    assert!(tracker.turn(ms(9000)).publish.unwrap().complete);
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
    // The goodbye must wait, because the publication was recent, and the service returns before.
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
fn two_machines_of_one_host_name_are_reported_while_they_are_there() {
    let mut tracker = tracker("");
    let twin = |twin: Option<&str>| {
        let Event::Resolved(mut service) = resolved("a", "10.0.0.1") else {
            panic!("it is not resolved");
        };
        service.twin = twin.map(str::to_owned);
        Event::Resolved(service)
    };
    tracker.apply(twin(Some("b._t._tcp.local.")), ms(0));
    let set = run(&mut tracker, ms(0), ms(2000)).pop().unwrap().1;
    assert_eq!(names(&set), ["a"], "it stays a device");
    let problem = "1 services have a host name that two machines use, such as \"a._t._tcp.local.\" and \"b._t._tcp.local.\"";
    assert!(set.problems[0].starts_with(problem), "{:?}", set.problems);
    // A machine on another interface has its name.
    tracker.apply(twin(Some("a._t._tcp.local.")), ms(3000));
    let set = run(&mut tracker, ms(3000), ms(4500)).pop().unwrap().1;
    let problem = "1 names are those of two machines, such as \"a._t._tcp.local.\": one of them";
    assert!(set.problems[0].starts_with(problem), "{:?}", set.problems);
    tracker.apply(twin(None), ms(5000));
    let set = run(&mut tracker, ms(5000), ms(6500)).pop().unwrap().1;
    assert_eq!((names(&set), set.problems.len()), (vec!["a"], 0));
}

#[test]
fn a_service_that_is_elsewhere_is_left_out_and_that_is_said() {
    let mut tracker = tracker("");
    let away = |name: &str| {
        let Event::Resolved(mut service) = resolved(name, "10.0.0.1") else {
            panic!("it is not resolved");
        };
        service.addresses[0].is_on_link = false;
        Event::Resolved(service)
    };
    tracker.apply(away("a"), ms(0));
    tracker.apply(away("b"), ms(0));
    let published = run(&mut tracker, ms(0), ms(2000));
    assert_eq!(story(&published), [(1000, vec![])]);
    let set = &published[0].1;
    assert!(!set.left_out, "a device that is elsewhere is missing");
    let problem = "2 services are left out, such as \"a._t._tcp.local.\": none of their addresses";
    assert!(set.problems[0].starts_with(problem), "{:?}", set.problems);
    tracker.apply(removed("a"), ms(3000));
    tracker.apply(resolved("b", "10.0.0.1"), ms(3000));
    let set = run(&mut tracker, ms(3000), ms(4500)).pop().unwrap().1;
    assert_eq!((names(&set), set.problems.len()), (vec!["b"], 0));
}

#[test]
fn while_the_querier_has_no_room_the_set_is_not_whole() {
    let mut tracker = tracker("");
    run(&mut tracker, ms(0), ms(6000));
    tracker.apply(Event::LeavesOut(Some(LeftOut::Total)), ms(6000));
    assert!(run(&mut tracker, ms(6000), ms(7000))[0].1.left_out);
    tracker.apply(Event::LeavesOut(None), ms(8000));
    assert!(!run(&mut tracker, ms(8000), ms(9000))[0].1.left_out);
}

#[test]
fn services_past_the_limit_are_left_out_and_that_is_said() {
    let mut tracker = tracker("");
    for n in 0..SERVICES_MAX + 10 {
        tracker.apply(resolved(&format!("s{n}"), "10.0.0.1"), ms(0));
    }
    let published = run(&mut tracker, ms(10), ms(1000));
    let set = &published[0].1;
    assert_eq!((set.devices.len(), set.left_out), (SERVICES_MAX, true));
    assert!(set.problems[0].starts_with("services are left out: 4096 "));
    for n in SERVICES_MAX + 1..SERVICES_MAX + 10 {
        tracker.apply(removed(&format!("s{n}")), ms(1000));
    }
    tracker.apply(removed("s0"), ms(1000));
    assert!(run(&mut tracker, ms(1000), ms(1001))[0].1.left_out);
    let looked = ["s4096", "s1", "s0"].map(|name| tracker.look_again()(&fullname(name)));
    assert_eq!(looked, [true, false, false]);
    tracker.apply(resolved("s4096", "10.0.0.1"), ms(1100));
    let set = &run(&mut tracker, ms(1100), ms(2000))[0].1;
    assert!(names(set).contains(&"s4096"), "there is room again");
    assert_eq!((set.left_out, set.problems.len()), (false, 0));
}

/// Returns a service whose TXT record becomes about `bytes` of variables.
fn large(name: &str, bytes: usize, port: u16) -> Event {
    let Event::Resolved(mut service) = resolved(name, "10.0.0.1") else {
        panic!("it is not resolved");
    };
    service.port = port;
    let key = |n: usize| Txt {
        key: format!("k{n}"),
        value: Some(vec![b'x'; 200]),
    };
    service.txt = (0..bytes / 230).map(key).collect();
    Event::Resolved(service)
}

fn bytes(set: &DeviceSet) -> usize {
    let properties = set.devices.values().flat_map(|device| &device.properties);
    properties.map(|(k, v)| k.len() + v.len()).sum()
}

#[test]
fn large_services_take_a_bounded_amount_of_memory_and_none_that_was_there_goes() {
    let mut tracker = tracker("");
    for n in 0..2000 {
        tracker.apply(large(&format!("s{n}"), 0, 80), ms(0));
    }
    let set = run(&mut tracker, ms(0), ms(6000)).pop().unwrap().1;
    assert_eq!((set.devices.len(), set.is_whole()), (2000, true));
    // All services grow, and more appear. One moves, too.
    for n in 0..4000 {
        tracker.apply(large(&format!("s{n}"), 4096, 80), ms(6000));
    }
    tracker.apply(large("s1999", 4096, 81), ms(6000));
    let set = run(&mut tracker, ms(6000), ms(12_000)).pop().unwrap().1;
    assert!(bytes(&set) <= 4 << 20, "{}", bytes(&set));
    assert!((2000..2100).contains(&set.devices.len()) && set.left_out);
    for n in 0..2000 {
        let id = DeviceId::new(fullname(&format!("s{n}")));
        assert!(set.devices.contains_key(&id), "{id} has gone");
    }
    let moved = &set.devices[&DeviceId::new(fullname("s1999"))].properties;
    assert_eq!(moved["AKRI_ZEROCONF_DEVICE_PORT"], "81");
    assert!(!moved.contains_key("AKRI_ZEROCONF_DEVICE_K0"));
    // After the large services have gone, those that were left out fit.
    for n in 0..4000 {
        tracker.apply(removed(&format!("s{n}")), ms(12_000));
    }
    tracker.apply(large("s3999", 4096, 80), ms(12_500));
    let set = run(&mut tracker, ms(12_000), ms(20_000)).pop().unwrap().1;
    assert_eq!((names(&set), set.is_whole()), (vec!["s3999"], true));
}

#[test]
fn a_service_of_this_machine_alone_waits_for_its_second_announcement_unless_that_is_all_there_is() {
    let mut everywhere = tracker("");
    everywhere.apply(resolved("a", "127.0.0.1"), ms(0));
    assert_eq!(
        story(&run(&mut everywhere, ms(0), ms(4000))),
        [(1500, vec!["a"])]
    );
    let mut on_lo = tracker("interfaces: {allow: [lo]}");
    on_lo.apply(resolved("a", "127.0.0.1"), ms(0));
    assert_eq!(story(&run(&mut on_lo, ms(0), ms(4000))), [(250, vec!["a"])]);
}

#[test]
fn a_settled_device_with_a_link_local_address_that_returns_does_not_settle_again() {
    let mut tracker = tracker("");
    tracker.apply(resolved("a", "169.254.7.1"), ms(0));
    run(&mut tracker, ms(0), ms(6000));
    tracker.apply(removed("a"), ms(6000));
    run(&mut tracker, ms(6000), ms(7000));
    tracker.apply(resolved("a", "169.254.7.2"), ms(7000));
    assert_eq!(
        story(&run(&mut tracker, ms(7000), ms(20_000))),
        [(7250, vec!["a"])]
    );
}

#[test]
fn one_host_has_half_of_the_bytes_and_the_message_names_it() {
    let mut tracker = tracker("");
    for n in 0..1000 {
        tracker.apply(large(&format!("s{n}"), 4096, 80), ms(0));
    }
    let Event::Resolved(mut other) = large("other", 4096, 80) else {
        panic!("it is not resolved");
    };
    other.source = [10, 0, 0, 2].into();
    tracker.apply(Event::Resolved(other), ms(0));
    let set = run(&mut tracker, ms(0), ms(6000)).pop().unwrap().1;
    assert!(bytes(&set) <= (2 << 20) + 8192, "{}", bytes(&set));
    assert!(names(&set).contains(&"other") && set.left_out);
    let problem = "services of 10.0.0.1 are left out: this host has used up its share";
    assert!(set.problems[0].starts_with(problem), "{:?}", set.problems);
}

#[test]
fn a_link_local_address_waits_for_a_better_one_unless_that_is_all_there_is() {
    let mut alone = tracker("");
    alone.apply(resolved("a", "fe80::1%eth0"), ms(0));
    assert_eq!(
        story(&run(&mut alone, ms(0), ms(4000))),
        [(3500, vec!["a"])]
    );
    let mut late = tracker("");
    late.apply(resolved("a", "fe80::1%eth0"), ms(0));
    assert_eq!(story(&run(&mut late, ms(0), ms(2000))), []);
    late.apply(resolved("a", "fe80::1%eth0 10.0.0.1"), ms(2000));
    let published = run(&mut late, ms(2000), ms(4500));
    assert_eq!(story(&published), [(2250, vec!["a"])]);
    let device = published[0].1.devices.values().next().unwrap();
    assert_eq!(device.properties[ADDR], "10.0.0.1");
}
