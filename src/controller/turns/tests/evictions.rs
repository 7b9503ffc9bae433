//! The device of a Pod that is no broker goes: the sequences of its eviction.
use super::*;

/// What node `a` says of its device, of whose Instance a container has the slot.
#[derive(Clone, Copy)]
enum Said {
    Missing,
    Gone,
    Seen,
}

impl Controller {
    /// A controller that knows an Instance of `cam` with a slot that node `a` holds.
    fn evicting() -> Self {
        let mut controller = Self::new(&[]);
        let fields = json!({"spec": {"whenGone": "Evict", "gracePeriodSeconds": 60}});
        controller.configures(configuration("cam", fields));
        controller.holds("a");
        controller
    }

    fn holds(&mut self, node: &str) {
        self.version += 1;
        let held = instance(
            "cam-1",
            json!({
                "metadata": {
                    "resourceVersion": self.version.to_string(),
                    "annotations": {"akri.sh/device-id": "door"},
                    "labels": {"node.akri.sh/a": ""},
                },
                "spec": {"shared": true, "nodes": [], "deviceUsage": {"cam-1-0": node}},
            }),
        );
        self.shows(shown(held));
    }

    fn says(&mut self, said: Said) {
        let device = match said {
            Said::Missing => json!({"id": "door", "state": "Unhealthy"}),
            Said::Gone => json!({"instance": "cam-1", "state": "Left", "gone": true}),
            Said::Seen => json!({"id": "door"}),
        };
        let view = json!({
            "namespace": "default", "name": "cam", "complete": true, "generation": 1, "devices": [device],
        });
        self.reports("a", json!([view]));
    }

    /// Has everything sent within this time, and answers evictions so. Returns their times in seconds.
    fn evicts(&mut self, seconds: u64, outcome: Outcome) -> Vec<u64> {
        let begin = self.now.instant;
        let mut times = vec![];
        while self.now.instant < begin + Duration::from_secs(seconds) {
            for (part, request) in self.turns.step(self.now) {
                let is_eviction = matches!(request, Request::Eviction(_));
                if is_eviction {
                    times.push((self.now.instant - begin).as_secs());
                }
                let outcome = if is_eviction {
                    &outcome
                } else {
                    &Outcome::Done
                };
                let answer = Answer::Written(Written::new(outcome.clone()));
                self.turns.answered(part, &request, answer, self.now);
            }
            self.passes(100);
        }
        times
    }
}

#[test]
fn a_pod_is_evicted_when_its_node_says_that_the_device_is_gone_and_not_before() {
    let mut controller = Controller::evicting();
    assert_eq!(controller.evicts(100, Outcome::Done), [0; 0]);
    controller.says(Said::Missing);
    assert_eq!(
        controller.evicts(100, Outcome::Done),
        [0; 0],
        "the node waits"
    );
    controller.says(Said::Seen);
    assert_eq!(controller.evicts(100, Outcome::Done), [0; 0], "it is back");
    controller.says(Said::Gone);
    assert_eq!(controller.evicts(50, Outcome::Done), [0]);
}

#[test]
fn a_refused_eviction_is_tried_again_at_growing_intervals_until_the_device_is_back() {
    let mut controller = Controller::evicting();
    controller.says(Said::Gone);
    let times = controller.evicts(300, Outcome::Failed("away".to_owned()));
    assert_eq!(times[0], 0);
    assert!((8..30).contains(&times.len()), "{times:?}");
    controller.says(Said::Seen);
    assert_eq!(controller.evicts(100, Outcome::Done), [0; 0]);
}

#[test]
fn a_pod_that_is_not_found_yet_is_looked_for_again_and_none_once_the_slot_is_free() {
    let mut controller = Controller::evicting();
    controller.says(Said::Gone);
    let times = controller.evicts(10, Outcome::Gone);
    assert!(times.len() > 2 && times[0] == 0, "{times:?}");
    controller.holds("");
    assert_eq!(controller.evicts(200, Outcome::Done), [0; 0]);
}

#[test]
fn a_pod_that_ends_slowly_is_not_evicted_every_second() {
    let mut controller = Controller::evicting();
    controller.says(Said::Gone);
    let times = controller.evicts(150, Outcome::Done);
    assert!(matches!(times[..], [0, 60..62, 120..124]), "{times:?}");
}

#[test]
fn a_controller_that_restarts_or_leads_again_goes_on_where_the_other_stopped() {
    let mut controller = Controller::evicting();
    controller.says(Said::Gone);
    assert_eq!(
        controller.evicts(1, Outcome::Failed("away".to_owned())),
        [0]
    );
    // Another process knows what the watches show.
    let mut next = Controller::evicting();
    next.says(Said::Gone);
    assert_eq!(next.evicts(30, Outcome::Done), [0]);
    next.turns.lead(false, next.now);
    assert_eq!(next.evicts(100, Outcome::Done), [0; 0]);
    next.turns.lead(true, next.now);
    assert_eq!(next.evicts(30, Outcome::Done), [0]);
}

#[test]
fn a_configuration_that_is_deleted_meanwhile_evicts_no_pod() {
    let mut controller = Controller::evicting();
    controller.says(Said::Gone);
    let gone = Change {
        key: key("cam"),
        version: 900,
        object: None,
    };
    controller.turns.see(News::Configurations(vec![gone]));
    assert_eq!(controller.evicts(100, Outcome::Done), [0; 0]);
}

impl Controller {
    /// Has the eviction planned again, as if there were no place to send it.
    fn with_an_eviction_that_waits() -> Self {
        let mut controller = Self::evicting();
        controller.says(Said::Gone);
        let mut planned = None;
        while planned.is_none() {
            for (part, request) in controller.turns.step(controller.now) {
                let answer = Answer::Written(Written::new(Outcome::Gone));
                (controller.turns).answered(part.clone(), &request, answer, controller.now);
                if matches!(request, Request::Eviction(_)) {
                    planned = Some((part, request));
                }
            }
            controller.passes(100);
        }
        let (part, request) = planned.unwrap();
        let mut turn = Turn::new();
        turn.stage = Stage::Evictions;
        turn.queue.push_back(request);
        controller.turns.open.turns.insert(part, turn);
        controller
    }
}

#[test]
fn an_eviction_that_waits_for_its_place_is_not_sent_once_the_device_is_back() {
    let mut waits = Controller::with_an_eviction_that_waits();
    assert_eq!(waits.evicts(1, Outcome::Gone), [0]);
    let mut back = Controller::with_an_eviction_that_waits();
    back.says(Said::Seen);
    assert_eq!(back.evicts(100, Outcome::Done), [0; 0]);
    assert!(back.turns.open.turns.is_empty(), "no turn stands still");
    let mut keep = Controller::with_an_eviction_that_waits();
    let changed = Change {
        key: key("cam"),
        version: 900,
        object: Some(Arc::new(configuration(
            "cam",
            json!({"spec": {"whenGone": "Keep"}}),
        ))),
    };
    keep.turns.see(News::Configurations(vec![changed]));
    assert_eq!(keep.evicts(100, Outcome::Done), [0; 0]);
}
