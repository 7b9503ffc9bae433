use super::*;
use serde_json::{Value, json};

mod brokers;
mod claims;
mod devices;
mod evictions;
mod given;
mod hidden;
mod objects;
mod pods;
mod rollouts;
mod twice;
mod unhealthy;
mod without_instances;
mod world;

use world::World;

/// The expected answer of `why`: the first cause, and parts of its text and of its command.
struct Case {
    title: &'static str,
    world: World,
    object: Object,
    cause: Cause,
    says: &'static [&'static str],
    next: &'static str,
}

/// Returns a case whose command is not looked at.
fn case_of(
    title: &'static str,
    world: World,
    object: Object,
    cause: Cause,
    says: &'static [&'static str],
) -> Case {
    Case {
        title,
        world,
        object,
        cause,
        says,
        next: "",
    }
}

/// Returns a case of the Pod `web`.
fn case(
    title: &'static str,
    world: World,
    cause: Cause,
    says: &'static [&'static str],
    next: &'static str,
) -> Case {
    Case {
        next,
        ..case_of(title, world, pod("web"), cause, says)
    }
}

/// Returns a world with a Pod that waits for a device of the Configuration `cam`.
fn wants_cam() -> World {
    World::new().pending("web", "akri.sh/cam")
}

fn object(kind: Kind, name: &str) -> Object {
    Object::new(kind, ObjectKey::new("default", name))
}

fn pod(name: &str) -> Object {
    object(Kind::Pod, name)
}

fn configuration(name: &str) -> Object {
    object(Kind::Configuration, name)
}

fn instance(name: &str) -> Object {
    object(Kind::Instance, name)
}

/// Runs all cases, and reports each that fails.
fn run(cases: Vec<Case>) {
    let mut failed = vec![];
    for case in cases {
        let explanation = explain(&case.world.snapshot(), &case.object, World::now());
        let first = &explanation.findings[0];
        let text = explanation.text();
        let next = first.next.clone().unwrap_or_default();
        let is_said = case.says.iter().all(|part| text.contains(part));
        let words = explanation.paragraph().split_whitespace().count();
        let is_short = words <= 80 && !text.contains('…') && text.matches("\n  ").count() <= 1;
        if first.cause != case.cause || !is_said || !next.contains(case.next) || !is_short {
            let cause = first.cause;
            failed.push(format!("{}: {cause:?}, {words} words\n{text}", case.title));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
