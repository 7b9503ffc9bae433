//! Whatever happens, a plan of the touched parts is the plan of the whole world.
mod events;
mod history;
mod server;

use super::*;
use crate::controller::fixtures::{configuration, instance, node_devices, pod, ready};
use crate::controller::world::World;
use serde_json::json;

fn names(parts: &Parts) -> Vec<&str> {
    match parts {
        Parts::All => vec!["all"],
        Parts::Named(names) => names.iter().map(String::as_str).collect(),
    }
}

fn view(name: &str, complete: bool) -> serde_json::Value {
    json!({ "namespace": "default", "name": name, "complete": complete })
}

/// Returns a world with two Configurations, each with an Instance and its broker.
fn world() -> World {
    let mut world = World::default()
        .with_nodes([("a", ready()), ("b", ready())])
        .with_configuration(configuration("cam", json!({})))
        .with_configuration(configuration("tv", json!({})))
        .with_node_devices(node_devices(
            "a",
            json!([view("cam", false), view("tv", false)]),
        ));
    for name in ["cam", "tv"] {
        let device = format!("{name}-1");
        let spec = json!({ "spec": { "configurationName": name } });
        world = world.with_instance(instance(&device, spec));
        let mut broker = pod(&device, "Running");
        broker.meta.owner = Some(format!("uid-{device}"));
        let label = names::CONFIGURATION_LABEL.to_owned();
        broker.meta.labels.insert(label, name.to_owned());
        world = world.with_pod(&format!("{device}-pod"), broker);
    }
    world
}

fn after(change: impl FnOnce(World) -> World) -> Vec<String> {
    let before = world();
    let now = change(before.clone());
    let touched = touched(&before, &now);
    names(&touched).into_iter().map(str::to_owned).collect()
}

fn broker(change: impl FnOnce(&mut Meta)) -> Vec<String> {
    after(|mut world| {
        let broker = world.pods.values_mut().next().unwrap();
        change(&mut Arc::make_mut(broker).meta);
        world
    })
}

#[test]
fn what_is_the_same_touches_nothing_and_a_heartbeat_neither() {
    assert_eq!(after(|world| world), [""; 0]);
    let heartbeat = |world: World| world.with_nodes([("a", ready()), ("b", ready())]);
    assert_eq!(after(heartbeat), [""; 0]);
    let gone = |world: World| world.with_nodes([("a", ready())]);
    assert_eq!(after(gone), ["all"]);
}

#[test]
fn a_report_touches_the_configurations_of_which_it_says_something_else() {
    let report =
        |views: serde_json::Value| move |w: World| w.with_node_devices(node_devices("a", views));
    assert_eq!(
        after(report(json!([view("cam", false), view("tv", true)]))),
        ["tv"]
    );
    assert_eq!(after(report(json!([view("tv", false)]))), ["cam"]);
    assert_eq!(
        after(report(json!([view("cam", false), view("tv", false)]))),
        [""; 0]
    );
    let another = |w: World| w.with_node_devices(node_devices("b", json!([])));
    assert_eq!(after(another), ["all"]);
    let anew = |world: World| {
        let mut object = node_devices("a", json!([view("cam", false), view("tv", false)]));
        object.metadata.uid = Some("another".to_owned());
        world.with_node_devices(object)
    };
    assert_eq!(after(anew), ["all"]);
}

#[test]
fn an_instance_touches_its_configuration_and_the_one_that_its_name_is_of() {
    let changed = |w: World| w.with_instance(instance("cam-1", json!({})));
    assert_eq!(after(changed), ["cam"]);
    let spec = json!({ "spec": { "configurationName": "tv" } });
    let (moved, added) = (instance("cam-1", spec.clone()), instance("radio-1", spec));
    assert_eq!(after(|w| w.with_instance(moved)), ["cam", "tv"]);
    assert_eq!(after(|w| w.with_instance(added)), ["radio", "tv"]);
}

#[test]
fn a_broker_belongs_to_its_owner_whatever_its_labels_say() {
    assert_eq!(broker(|meta| meta.is_deleting = true), ["cam"]);
    let relabelled = |meta: &mut Meta| {
        let label = names::CONFIGURATION_LABEL.to_owned();
        drop(meta.labels.insert(label, "tv".to_owned()));
    };
    assert_eq!(broker(relabelled), ["cam", "tv"]);
    let no_instance = |meta: &mut Meta| drop(meta.labels.remove(names::INSTANCE_LABEL));
    assert_eq!(broker(no_instance), ["all"]);
}

#[test]
fn many_changes_are_planned_with_the_whole_world() {
    let many = |mut world: World| {
        for n in 0..=CHANGES_MAX {
            world = world.with_instance(instance(&format!("cam-x{n}"), json!({})));
        }
        world
    };
    assert_eq!(after(many), ["all"]);
}
