//! Devices that are missing while a container has a slot of them: what is said of them for the eviction of its Pod.
use super::*;
use crate::api::node_devices::SeenDevice;

impl Fixture {
    /// Plans once, merges, and returns the only report: its state, and whether the device is gone.
    fn said(&mut self) -> (Option<String>, bool) {
        self.settle();
        let planned = self.plan();
        let [SeenDevice { state, gone, .. }] = &planned.reports.of[&key("cam")].devices[..] else {
            panic!("{:?}", planned.reports);
        };
        (state.clone(), *gone)
    }
}

fn state(state: &str, gone: bool) -> (Option<String>, bool) {
    (Some(state.to_owned()), gone)
}

/// A device that a container of this node holds.
fn held(spec: &str) -> Fixture {
    let mut fixture = Fixture::new(spec);
    fixture.see(&["a"], true);
    fixture.settle();
    fixture.hold(Some(NODE));
    fixture
}

#[test]
fn a_held_device_is_gone_after_the_grace_period_and_not_before_nor_when_it_is_back() {
    let mut fixture = held(", gracePeriodSeconds: 60");
    assert_eq!(fixture.said(), (None, false));
    fixture.see(&[], true);
    assert_eq!(fixture.said(), state("Unhealthy", false));
    fixture.uptime = 59;
    assert_eq!(fixture.said(), state("Unhealthy", false));
    fixture.see(&["a"], true);
    assert_eq!(fixture.said(), (None, false));
    fixture.see(&[], true);
    assert_eq!(fixture.said(), state("Unhealthy", false));
    fixture.uptime = 118;
    assert_eq!(fixture.said(), state("Unhealthy", false), "it was back");
    fixture.uptime = 119;
    assert_eq!(fixture.said(), state("Left", true));
    fixture.uptime = 6_000;
    assert_eq!(fixture.said(), state("Left", true));
    fixture.see(&["a"], true);
    assert_eq!(fixture.said(), (None, false));
}

#[test]
fn an_agent_that_restarts_counts_anew_also_of_an_instance_that_its_node_has_left() {
    let mut fixture = held(", gracePeriodSeconds: 60");
    fixture.see(&[], true);
    fixture.said();
    fixture.uptime = 60;
    assert_eq!(fixture.said(), state("Left", true));
    fixture.absences.clear();
    fixture.see(&[], false);
    assert_eq!(fixture.said(), state("Left", false), "it may only be late");
    fixture.uptime = 61;
    fixture.see(&[], true);
    assert_eq!(fixture.said(), state("Left", false));
    let rest = fixture.settle().wake_in;
    fixture.uptime += rest.unwrap().as_secs();
    assert_eq!(fixture.said(), state("Left", true));
}

#[test]
fn a_node_that_does_not_look_any_more_says_of_no_device_that_it_is_gone() {
    let mut fixture = held(", gracePeriodSeconds: 0");
    fixture.accepted().selection = Selection::LeftOut;
    fixture.see(&[], true);
    assert_eq!(fixture.said(), state("Left", false));
    fixture.uptime = 6_000;
    assert_eq!(fixture.said(), state("Left", false));
}
