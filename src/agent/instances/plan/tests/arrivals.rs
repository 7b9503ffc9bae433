//! Tests of how fast new devices get their Instances.
use super::*;

fn names_of(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{n:04}")).collect()
}

impl Fixture {
    fn see_all(&mut self, names: &[String]) {
        self.see(&names.iter().map(String::as_str).collect::<Vec<_>>(), true);
    }

    fn pass(&mut self, millis: u64) {
        self.millis += millis;
    }

    fn has(&self, device: &str) -> bool {
        self.instances
            .values()
            .any(|i| device_id(i) == Some(DeviceId::new(device)))
    }
}

#[test]
fn a_thousand_devices_that_are_there_at_once_are_created_at_once() {
    let mut fixture = Fixture::new("");
    fixture.max_instances = 5000;
    fixture.see_all(&names_of("s", 1000));
    fixture.settle();
    assert_eq!(fixture.instances.len(), 1000);
    assert_eq!(fixture.problems(), [""; 0]);
}

#[test]
fn ever_new_names_get_two_instances_a_second_once_the_first_many_are_used_up() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 0, maxInstances: 50");
    let mut created = 0;
    for round in 0..60 {
        fixture.see_all(&names_of(&format!("r{round}-"), 40));
        created += fixture.settle().created;
        fixture.pass(1000);
    }
    assert!((50..=50 + 2 * 60).contains(&created), "{created}");
    assert_eq!(fixture.problems(), ["TooManyNewDevices"]);
}

#[test]
fn while_devices_wait_the_next_token_is_waited_for_and_the_longest_seen_come_first() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 0, maxInstances: 3");
    fixture.see(&["x", "y", "z"], true);
    fixture.settle();
    fixture.see(&["zebra"], true);
    assert_eq!(fixture.settle().wake_in, Some(Duration::from_millis(500)));
    assert!(!fixture.has("zebra"));
    fixture.pass(200);
    // Another that would come first by its name.
    fixture.see(&["aardvark", "zebra"], true);
    assert_eq!(fixture.settle().wake_in, Some(Duration::from_millis(300)));
    fixture.pass(300);
    fixture.settle();
    assert!(fixture.has("zebra") && !fixture.has("aardvark"));
    fixture.pass(500);
    assert_eq!(fixture.settle().wake_in, None);
    assert!(fixture.has("aardvark"));
    assert_eq!(fixture.problems(), [""; 0]);
}

#[test]
fn a_larger_limit_lets_those_in_at_once_that_it_is_for() {
    let mut fixture = Fixture::new(", maxInstances: 2");
    fixture.max_instances = 5000;
    fixture.see_all(&names_of("s", 300));
    fixture.settle();
    assert_eq!(fixture.problems(), ["TooManyDevices"]);
    fixture.configure(", maxInstances: 300");
    fixture.settle();
    assert_eq!(fixture.instances.len(), 300);
}

#[test]
fn a_device_that_was_reported_keeps_its_place_until_its_instance_is_seen() {
    let mut fixture = Fixture::new(", maxInstances: 1");
    let reported = |fixture: &mut Fixture| {
        let planned = fixture.plan();
        fixture.arrivals = planned.arrivals;
        planned.reports.of[&key("cam")].announced.clone()
    };
    fixture.see(&["b"], true);
    assert_eq!(reported(&mut fixture), ["b"]);
    // Nobody has made its Instance yet, and another device waits.
    for _ in 0..3 {
        fixture.see(&["a", "b"], true);
        assert_eq!(reported(&mut fixture), ["b"]);
        fixture.pass(1000);
    }
}
