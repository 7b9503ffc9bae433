//! Histories of a Node's labels, which the API server keeps over restarts of the agent.
use super::*;
use crate::model::node_labels::key;
use proptest::{collection::vec, prelude::*};

/// A Node and the agent of it.
struct Node {
    labels: Labels,
    memory: LabelMemory,
    uptime: u64,
}

impl Node {
    fn new(labels: &[(&str, &str)]) -> Self {
        let label = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Self {
            labels: labels.iter().map(label).collect(),
            memory: LabelMemory::default(),
            uptime: 0,
        }
    }

    fn planned(&self, present: &[&str]) -> Plan {
        let known = LabelFacts {
            labels: &self.labels,
            present: &present.iter().map(|&name| name.into()).collect(),
            now: Duration::from_secs(self.uptime),
        };
        plan(known, &self.memory)
    }

    /// Plans after `seconds` with the Configurations that have a device here, and carries the plan out. Returns the Configurations
    /// with a label, and whether the Node was patched.
    fn after(&mut self, seconds: u64, present: &[&str]) -> (Vec<String>, bool) {
        self.uptime += seconds;
        let plan = self.planned(present);
        for name in &plan.changes.added {
            let before = self.labels.insert(key(name), "true".to_owned());
            assert_eq!(before, None, "a label of another was replaced");
        }
        for name in &plan.changes.removed {
            assert_eq!(self.labels.remove(&key(name)).as_deref(), Some("true"));
        }
        self.memory = plan.memory;
        let names = labelled(&self.labels).into_iter().map(String::from);
        (names.collect(), !plan.changes.is_empty())
    }

    fn restarts(&mut self) {
        (self.memory, self.uptime) = (LabelMemory::default(), 0);
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn two_configurations_come_in_one_patch_and_one_goes_alone() {
    let mut node = Node::new(&[("kubernetes.io/hostname", "a")]);
    assert_eq!(
        node.after(0, &["cam", "usb"]),
        (names(&["cam", "usb"]), true)
    );
    assert_eq!(
        node.after(5, &["cam", "usb"]),
        (names(&["cam", "usb"]), false)
    );
    assert_eq!(node.after(5, &["usb"]), (names(&["cam", "usb"]), false));
    assert_eq!(node.planned(&["usb"]).wake_in, Some(STAYS));
    assert_eq!(node.after(29, &["usb"]), (names(&["cam", "usb"]), false));
    assert_eq!(node.after(1, &["usb"]), (names(&["usb"]), true));
    assert_eq!(node.after(0, &["usb"]), (names(&["usb"]), false));
    assert_eq!(node.labels["kubernetes.io/hostname"], "a");
}

#[test]
fn a_configuration_that_flaps_flaps_no_label() {
    let mut node = Node::new(&[]);
    node.after(0, &["cam"]);
    for _ in 0..20 {
        assert_eq!(node.after(20, &[]), (names(&["cam"]), false));
        assert_eq!(node.after(1, &["cam"]), (names(&["cam"]), false));
    }
}

/// An agent that has just started, or whose node was not ready, knows none of its Instances for a moment.
#[test]
fn an_agent_that_starts_removes_nothing_before_it_knows_its_instances() {
    let mut node = Node::new(&[]);
    node.after(0, &["cam"]);
    node.after(25, &[]);
    node.restarts();
    assert_eq!(node.after(0, &[]), (names(&["cam"]), false));
    assert_eq!(node.after(25, &[]), (names(&["cam"]), false));
    assert_eq!(node.after(1, &["cam"]), (names(&["cam"]), false));
}

/// Turned off, nothing is present.
#[test]
fn an_agent_of_a_chart_that_turns_labels_off_removes_those_that_another_has_set() {
    let mut node = Node::new(&[
        ("akri.sh/has-cam", "true"),
        ("akri.sh/has-usb", "true"),
        ("a", "true"),
    ]);
    assert_eq!(node.after(0, &[]), (names(&["cam", "usb"]), false));
    assert_eq!(node.after(30, &[]), (names(&[]), true));
    assert_eq!(node.labels.len(), 1);
}

#[test]
fn a_removal_that_failed_is_due_at_once_and_forgotten_when_the_device_is_back() {
    let mut node = Node::new(&[("akri.sh/has-cam", "true")]);
    node.after(0, &[]);
    node.uptime = 40;
    let failed = node.planned(&[]);
    assert_eq!(failed.changes.removed, ["cam".into()].into());
    node.memory = failed.memory;
    assert!(!node.planned(&[]).changes.is_empty());
    assert_eq!(node.after(1, &["cam"]), (names(&["cam"]), false));
    assert_eq!(node.after(1, &[]), (names(&["cam"]), false));
}

#[test]
fn a_label_of_somebody_else_is_neither_set_nor_removed() {
    let mut node = Node::new(&[("akri.sh/has-cam", "no")]);
    assert_eq!(node.after(0, &["cam", "usb"]), (names(&["usb"]), true));
    assert_eq!(node.after(0, &[]), (names(&["usb"]), false));
    assert_eq!(node.after(60, &[]), (names(&[]), true));
    assert_eq!(node.labels["akri.sh/has-cam"], "no");
    // Who owned it has removed it.
    node.labels.clear();
    assert_eq!(node.after(0, &["cam"]), (names(&["cam"]), true));
}

#[test]
fn of_too_many_configurations_the_last_get_no_label_and_those_with_one_keep_it() {
    let all: Vec<String> = (0..NODE_LABELS_MAX + 3)
        .map(|n| format!("c{n:03}"))
        .collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut node = Node::new(&[]);
    node.after(0, &all[3..]);
    let (labelled, is_patched) = node.after(0, &all);
    assert_eq!((labelled, is_patched), (names(&all[3..]), false));
    assert_eq!(node.planned(&all).left_out, 3);
    // The places of those that go are given in the same patch.
    node.after(0, &all[..NODE_LABELS_MAX]);
    let (labelled, _) = node.after(30, &all[..NODE_LABELS_MAX]);
    assert_eq!(labelled, names(&all[..NODE_LABELS_MAX]));
}

proptest! {
    #[test]
    fn a_plan_that_was_carried_out_leaves_nothing_to_do(
        steps in vec((0..40_u64, vec("[a-e]", 0..4)), 1..30),
        foreign in "[a-e]",
    ) {
        let foreign = format!("akri.sh/has-{foreign}");
        let mut node = Node::new(&[(&foreign, "mine")]);
        for (seconds, present) in &steps {
            let present: Vec<&str> = present.iter().map(String::as_str).collect();
            let (labelled, _) = node.after(*seconds, &present);
            prop_assert!(node.planned(&present).changes.is_empty());
            let wanted = present.iter().filter(|name| key(&(**name).into()) != foreign);
            for name in wanted {
                prop_assert!(labelled.iter().any(|label| label == name));
            }
            prop_assert_eq!(&*node.labels[&foreign], "mine");
        }
    }
}
