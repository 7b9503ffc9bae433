//! Tables of what may be written when.
use super::*;
use crate::{
    api::instance::{Instance, InstanceStatus, NodeHealth},
    store::Health,
};
use std::sync::Arc;

const NODE: &str = "node-a";

fn key(name: &str) -> InstanceKey {
    InstanceKey::new("default", name)
}

fn health(name: &str, is_healthy: bool) -> InstanceChange {
    InstanceChange::Health {
        key: key(name),
        health: Health {
            is_healthy,
            connection: None,
            trouble: None,
        },
        now: String::new(),
    }
}

fn create(name: &str) -> InstanceChange {
    let mut instance = Instance::new(name, Default::default());
    instance.metadata.namespace = Some("default".to_owned());
    InstanceChange::Create(Box::new(instance))
}

/// Instances that this node has said something of.
fn known(names: &[&str]) -> Instances {
    let instance = |name: &&str| {
        let mut instance = Instance::new(name, Default::default());
        instance.status = Some(InstanceStatus {
            nodes: vec![NodeHealth {
                name: NODE.into(),
                ..NodeHealth::default()
            }],
            ..InstanceStatus::default()
        });
        (key(name), Arc::new(instance))
    };
    names.iter().map(instance).collect()
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn writes() -> (Writes, Instant) {
    let now = Instant::now();
    (Writes::new(NODE, now), now)
}

/// Plans these and writes what may be; how many that were, and when there may be more.
fn write(
    writes: &mut Writes,
    changes: &[InstanceChange],
    instances: &Instances,
    now: Instant,
) -> (usize, Option<Duration>) {
    let due = writes.due(changes.to_vec(), instances, now);
    for change in &due.changes {
        assert_eq!(writes.done(change, Ok(()), now), Outcome::Done);
    }
    (due.changes.len(), due.wake_in)
}

#[test]
fn of_one_instance_a_change_of_health_is_written_at_once_and_then_one_a_second() {
    let (mut writes, t) = writes();
    let known = known(&["a", "b"]);
    assert_eq!(
        write(&mut writes, &[health("a", false)], &known, t),
        (1, None)
    );
    let soon = t + ms(300);
    let wait = (0, Some(ms(700)));
    assert_eq!(write(&mut writes, &[health("a", true)], &known, soon), wait);
    assert_eq!(
        write(&mut writes, &[health("b", false)], &known, soon),
        (1, None)
    );
    let later = t + ms(1000);
    assert_eq!(
        write(&mut writes, &[health("a", true)], &known, later),
        (1, None)
    );
}

#[test]
fn all_together_are_limited_and_bad_news_goes_first_but_the_first_word_on_a_device_is_free() {
    let (mut writes, t) = writes();
    let names: Vec<String> = (0..BURST + 100).map(|n| n.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let changes: Vec<_> = names.iter().map(|name| health(name, true)).collect();
    let none = Instances::new();
    assert_eq!(write(&mut writes, &changes, &none, t), (BURST + 100, None));

    let mut changes: Vec<_> = names.iter().map(|name| health(name, true)).collect();
    changes.push(health("last", false));
    let (known, t) = (known(&[&names[..], &["last"]].concat()), t + ms(5000));
    let due = writes.due(changes.clone(), &known, t);
    assert_eq!((due.changes.len(), due.wake_in), (BURST, Some(ms(50))));
    assert_eq!(due.changes.last(), changes.last());
    let due = writes.due(changes.split_off(BURST), &known, t + ms(1000));
    assert_eq!(due.changes.len(), 20);
}

#[test]
fn a_refused_write_waits_longer_each_time_and_is_said_once() {
    let (mut writes, mut t) = writes();
    let none = Instances::new();
    let refused = || Err(StoreError::Refused("no".to_owned()));
    let mut waits = vec![];
    for n in 0..12 {
        let due = writes.due(vec![create("a")], &none, t);
        assert_eq!((due.changes.len(), due.wake_in), (1, None), "try {n}");
        let outcome = writes.done(&create("a"), refused(), t);
        match n {
            0 => assert_eq!(outcome, Outcome::Fails(refused().unwrap_err())),
            _ => assert_eq!(outcome, Outcome::FailsStill),
        }
        assert_eq!(writes.failing()[&key("a")].as_deref(), Some("no"));
        let due = writes.due(vec![create("a"), create(&n.to_string())], &none, t);
        assert_eq!(due.changes.len(), 1, "another does not wait");
        waits.push(due.wake_in.unwrap());
        t += due.wake_in.unwrap();
    }
    assert!(waits[0] <= FIRST_RETRY);
    assert!(
        waits[11] > LAST_RETRY / 2 && waits[11] <= LAST_RETRY,
        "{waits:?}"
    );
    assert_eq!(write(&mut writes, &[create("a")], &none, t), (1, None));
    assert!(writes.failing().is_empty());
}

#[test]
fn what_is_not_wanted_any_more_is_forgotten() {
    let (mut writes, t) = writes();
    let none = Instances::new();
    let no = || Err(StoreError::Refused("no".to_owned()));
    writes.done(&create("a"), no(), t);
    assert_eq!(writes.failing().len(), 1);
    writes.due(vec![], &none, t);
    assert_eq!(writes.failing().len(), 0);
    writes.due(vec![], &none, t + LAST_RETRY * 3);
    assert!(!writes.refused.knows(&step(&create("a"))));
    assert!(writes.written.is_empty());
}

#[test]
fn what_was_gone_when_it_was_to_be_joined_is_created_at_the_next_try() {
    let (mut writes, t) = writes();
    let gone = || Err(StoreError::Gone(key("a")));
    assert!(matches!(
        writes.done(&create("a"), gone(), t),
        Outcome::Fails(_)
    ));
    let join = InstanceChange::Join(key("b"));
    assert_eq!(writes.done(&join, gone(), t), Outcome::Overtaken);
    let exists = Err(StoreError::Exists(key("c")));
    assert_eq!(writes.done(&create("c"), exists, t), Outcome::Overtaken);
    let due = writes.due(vec![create("a")], &Instances::new(), t);
    assert!(due.wake_in.is_some_and(|wait| wait <= FIRST_RETRY));
}
