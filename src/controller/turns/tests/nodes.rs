//! Tests what is done about nodes and about what belongs to no Configuration.
use super::*;

impl Controller {
    /// Has Instances of two Configurations with slots of a deleted node, for whose Pods it looks.
    fn with_a_deleted_node() -> Self {
        let mut controller = Self::new(&[("default", "cam"), ("default", "tv")]);
        for (name, of) in [("cam-1", "cam"), ("tv-1", "tv")] {
            let slot = format!("{name}-0");
            let spec = json!({
                "configurationName": of, "nodes": ["a"], "shared": true, "deviceUsage": { slot: "gone" },
            });
            let held = json!({ "metadata": { "labels": { "node.akri.sh/a": "" } }, "spec": spec });
            controller.shows(shown(instance(name, held)));
        }
        controller.sends();
        controller.passes(20);
        controller.writes_statuses();
        assert_eq!(controller.waiting(), ["look gone"]);
        controller
    }

    /// Lets the parts have their turns until nothing is to be done now.
    fn settles(&mut self) {
        for _ in 0..10 {
            self.passes(20);
            self.writes_statuses();
        }
    }

    /// Returns when the next of the parts is planned that are these, or not these.
    fn planned_in(&self, is_wanted: impl Fn(&str) -> bool) -> Option<Duration> {
        let next = self.turns.queue.next(self.now.instant, is_wanted)?;
        Some(next - self.now.instant)
    }
}

#[test]
fn the_pods_of_a_deleted_node_are_looked_for_once_and_then_every_part_is_planned() {
    let mut controller = Controller::with_a_deleted_node();
    controller.answers(0, Answer::Pods(Pods::Deleted));
    controller.passes(20);
    let mut sent = controller.sends();
    sent.retain(|sent| sent.starts_with("change"));
    assert_eq!(sent, ["change default/cam-1", "change default/tv-1"]);
}

#[test]
fn a_look_that_finds_what_the_last_one_found_plans_no_part_again() {
    let mut controller = Controller::with_a_deleted_node();
    controller.answers(0, Answer::Pods(Pods::Remain));
    for _ in 0..3 {
        controller.settles();
        let others = controller.planned_in(|part| part != NODES).unwrap();
        assert!(others > Duration::from_secs(10), "{others:?}");
        let nodes = controller.planned_in(|part| part == NODES).unwrap();
        assert!(nodes < Duration::from_secs(2), "{nodes:?}");
        controller.passes(2_000);
        assert_eq!(controller.sends(), ["look gone"]);
        controller.answers(0, Answer::Pods(Pods::Remain));
    }
}

#[test]
fn a_replica_that_leads_again_looks_again_for_the_pods_of_a_deleted_node() {
    let mut controller = Controller::with_a_deleted_node();
    controller.turns.lead(false, controller.now);
    controller.answers(0, Answer::Pods(Pods::Deleted));
    // Meanwhile the node can have come back, with Pods, and gone again.
    controller.passes(600_000);
    controller.turns.lead(true, controller.now);
    controller.writes_statuses();
    assert_eq!(controller.waiting(), ["look gone"]);
}

#[test]
fn an_instance_of_no_configuration_is_deleted() {
    let mut controller = Controller::new(&[]);
    let spec = json!({ "spec": { "configurationName": "", "nodes": ["a"] } });
    controller.shows(shown(instance("odd-1", spec)));
    assert_eq!(controller.sends(), ["delete default/odd-1"]);
}
