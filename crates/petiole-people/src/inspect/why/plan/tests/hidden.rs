//! Lists and objects that the caller may not read.
use super::{world::DOOR, *};
use crate::inspect::slots::Holders;

#[test]
fn what_cannot_be_read_is_no_reason() {
    run(vec![
        case(
            "the holder's node is not known",
            wants_cam().held_by("node-2").without_nodes(),
            Cause::SlotsTaken,
            &["in use, by node-2 (Pod default/holder)"],
            "edit configuration cam",
        ),
        case(
            "another Pod of the node may be the holder",
            wants_cam().held_by("node-2").without_pods(),
            Cause::SlotsTaken,
            &["in use, by node-2 (perhaps Pod default/holder)"],
            "",
        ),
        case(
            "the nodes of the device are not known",
            wants_cam().without_nodes(),
            Cause::OtherReason,
            &["the reason is another one"],
            "",
        ),
        case(
            "it ends on a node that is not known",
            wants_cam()
                .on("node-1", "Running")
                .pod(|pod| {
                    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T10:00:00Z");
                })
                .without_nodes(),
            Cause::Ending,
            &["its slots are free 3 to 15 s after its end"],
            "",
        ),
        case(
            "the agents are not known",
            wants_cam().without_pods(),
            Cause::OtherReason,
            &["the reason is another one"],
            "",
        ),
        case(
            "the holder is not known",
            wants_cam()
                .held_by("node-2")
                .without("holder")
                .without_pods(),
            Cause::SlotsTaken,
            &["The only slot of akri.sh/cam is in use, by node-2."],
            "",
        ),
    ]);
}

#[test]
fn a_pod_that_may_have_a_slot_is_in_no_cell() {
    let cells = |world: World| -> Vec<String> {
        let snapshot = world.snapshot();
        let (key, instance) = snapshot.instances.first_key_value().unwrap();
        let used = Holders::new(&snapshot).used(key, instance);
        used.iter().map(|slot| slot.cell()).collect()
    };
    let held = || World::new().held_by("node-2");
    assert_eq!(cells(held()), ["default/holder on node-2"]);
    assert_eq!(cells(held().without_pods()), ["node-2"]);
}

#[test]
fn the_prefix_is_assumed_only_if_no_agent_that_has_it_can_be_read() {
    assert!(!World::new().snapshot().has_assumed_prefixes());
    let hidden = World::new().without_pods();
    assert!(hidden.snapshot().has_assumed_prefixes());
    let mut own = World::new();
    own.hidden.pods = true;
    assert!(!own.snapshot().has_assumed_prefixes());
}

#[test]
fn no_command_is_announced_where_the_agent_that_would_run_it_is_not_known() {
    let mut no_reports = wants_cam().without_device();
    no_reports.node_devices.clear();
    no_reports.hidden.node_devices = true;
    run(vec![
        case(
            "the reports are not known",
            no_reports,
            Cause::NoDevice,
            &["(looked on: the nodes that run an agent)"],
            "",
        ),
        case(
            "the agents that looked are not known",
            wants_cam().without_device().without_pods(),
            Cause::NoDevice,
            &["and the filters in discoveryDetails."],
            "",
        ),
    ]);
}

#[test]
fn a_slot_whose_resource_is_not_known_is_held_and_not_about_to_be_free() {
    let mut world = World::new()
        .pending("web", &format!("akri.sh/{DOOR}"))
        .instance(|i| i["spec"]["deviceUsage"] = json!({"cam-0a1b2c-0": "C:cam-0:node-2"}));
    world.configurations.clear();
    run(vec![case(
        "its Configuration cannot be read",
        world,
        Cause::SlotsTaken,
        &["The only slot of akri.sh/cam-0a1b2c is in use, by node-2."],
        "",
    )]);
}

#[test]
fn agents_and_controllers_that_cannot_be_read_are_not_missing() {
    run(vec![
        case_of(
            "well",
            World::new().without_pods(),
            configuration("cam"),
            Cause::Fine,
            &["Nothing is missing in what you may read."],
        ),
        case_of(
            "not reported",
            World::new()
                .without_pods()
                .ready("Unknown", "NotReported", ""),
            configuration("cam"),
            Cause::NotReported,
            &["No node has reported about Configuration default/cam yet"],
        ),
        case_of(
            "an Instance",
            World::new().without_pods(),
            instance(DOOR),
            Cause::Fine,
            &["Nothing is missing in what you may read."],
        ),
    ]);
}

/// Returns a world with a Pod that asks for a resource, where other namespaces cannot be read.
fn asks(resource: &str) -> World {
    let world = World::new().pending("web", resource);
    world.without_other_namespaces()
}

#[test]
fn a_resource_of_a_namespace_that_cannot_be_read_may_be_offered() {
    let none = |mut world: World| {
        world.configurations.clear();
        world.instances.clear();
        world
    };
    let says = &[
        "no Configuration or Instance that you may read offers",
        "One of another namespace may.",
    ];
    run(vec![
        case(
            "it waits, and nothing is known",
            none(asks("akri.sh/lamp")),
            Cause::UnknownResource,
            says,
            "",
        ),
        case(
            "it waits, and others are known",
            asks("akri.sh/thermometer"),
            Cause::UnknownResource,
            says,
            "",
        ),
        case(
            "another name is similar",
            asks("akri.sh/cma"),
            Cause::UnknownResource,
            &["One of another namespace may; or akri.sh/cam was meant"],
            "",
        ),
        case(
            "it runs",
            none(asks("akri.sh/lamp").on("node-1", "Running")),
            Cause::Fine,
            &["that you may read offers akri.sh/lamp: one of another namespace may."],
            "",
        ),
        case(
            "its resource has a prefix of its own",
            asks("devices.example.org/lamp").on("node-1", "Pending"),
            Cause::NoResourceRequested,
            &["name no resource of a Configuration that you may read"],
            "",
        ),
    ]);
}

#[test]
fn no_command_changes_a_pod_that_may_be_right() {
    let explained = |world: World| explain(&world.snapshot(), &pod("web"), World::now());
    for resource in ["akri.sh/lamp", "akri.sh/cma"] {
        assert_eq!(
            explained(asks(resource)).findings[0].next,
            None,
            "{resource}"
        );
    }
}

#[test]
fn nothing_is_missing_in_the_namespaces_that_can_be_read() {
    let fine = explain(
        &World::new().without_other_namespaces().snapshot(),
        &configuration("cam"),
        World::now(),
    );
    assert!(
        fine.text()
            .contains("Nothing is missing in what you may read.")
    );
}
