//! Slots that Pods of two nodes use: `holder` of node-1 was cut off, and `web` of node-2 got its slot meanwhile.
use super::{unhealthy::given, world::DOOR, *};

const OF_CONFIGURATION: &str = "slot cam-0a1b2c-0 is held by C:cam-2:node-2, and a container on node node-1 uses it too, as cam-1: delete one of the two Pods. Until then the slot is Unhealthy on node node-1";
const OF_INSTANCE: &str = "slot cam-0a1b2c-0 is held by node-2, and a container on node node-1 uses it too, as cam-0a1b2c-0: delete one of the two Pods. Until then the slot is Unhealthy on node node-1";

/// Both Pods ask for a resource; their kubelets do not say what they have.
fn both(resource: &str, usage: &str) -> World {
    let world = World::new()
        .pending("web", resource)
        .on("node-2", "Running");
    world
        .pending("holder", resource)
        .on("node-1", "Running")
        .instance(|instance| {
            instance["spec"]["deviceUsage"] = json!({format!("{DOOR}-0"): usage});
        })
}

fn by_instance() -> World {
    both("akri.sh/cam-0a1b2c", "node-2")
}

fn by_configuration() -> World {
    both("akri.sh/cam", "C:cam-2:node-2")
}

fn told(world: World, message: &str) -> World {
    world.event("Instance", DOOR, ("SlotHeldTwice", message))
}

fn lost(world: World) -> World {
    world.nodes(|node| {
        if node["metadata"]["name"] == "node-1" {
            node["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
        }
    })
}

#[test]
fn a_slot_that_two_pods_use_is_told_of_both_and_of_the_device() {
    const SAID: &[&str] = &[
        "Slot cam-0a1b2c-0 of Instance default/cam-0a1b2c is used by two Pods, and only one may: on node-2 (Pod default/web), as the Instance shows, and on node-1 (Pod default/holder)",
        "Delete one of the two.",
    ];
    let worlds = [
        (
            "the kubelet names the slot",
            given(by_instance(), "akri.sh/cam-0a1b2c", "cam-0a1b2c-0"),
        ),
        ("the agent does", told(by_instance(), OF_INSTANCE)),
        (
            "an id of the Configuration",
            told(
                given(by_configuration(), "akri.sh/cam", "cam-1"),
                OF_CONFIGURATION,
            ),
        ),
        (
            "an older kubelet says no ids",
            told(by_configuration(), OF_CONFIGURATION),
        ),
    ];
    for (title, world) in worlds {
        let snapshot = world.snapshot();
        for object in [
            pod("web"),
            pod("holder"),
            instance(DOOR),
            configuration("cam"),
        ] {
            let explanation = explain(&snapshot, &object, World::now());
            let (first, text) = (&explanation.findings[0], explanation.text());
            assert_eq!(first.cause, Cause::SlotsTaken, "{title}, {object}: {text}");
            assert!(
                SAID.iter().all(|part| text.contains(part)),
                "{title}, {object}: {text}"
            );
            let next = "kubectl -n default delete pod holder";
            assert_eq!(first.next.as_deref(), Some(next), "{title}, {object}");
        }
    }
}

#[test]
fn a_slot_is_used_once_when_one_of_the_two_is_gone() {
    let case = |title, world, cause| case_of(title, world, instance(DOOR), cause, &[]);
    let other_slot = || {
        told(by_instance(), OF_INSTANCE)
            .capacity(2)
            .instance(|instance| {
                instance["spec"]["deviceUsage"][format!("{DOOR}-1")] = json!("node-1");
            })
    };
    run(vec![
        case(
            "the first ended",
            told(by_instance(), OF_INSTANCE).without("holder"),
            Cause::Fine,
        ),
        case(
            "the second ended, and the first has its slot again",
            told(both("akri.sh/cam-0a1b2c", "node-1"), OF_INSTANCE).without("web"),
            Cause::Fine,
        ),
        case("the first has another slot now", other_slot(), Cause::Fine),
        case(
            "the first has another slot now, as the kubelet says",
            given(other_slot(), "akri.sh/cam-0a1b2c", "cam-0a1b2c-1"),
            Cause::Fine,
        ),
        case(
            "the agent said something else",
            told(by_instance(), "slot cam-0a1b2c-0 is held by somebody"),
            Cause::Fine,
        ),
        case(
            "its node is still away, as is said of it",
            lost(given(by_instance(), "akri.sh/cam-0a1b2c", "cam-0a1b2c-0")),
            Cause::NodeNotReady,
        ),
    ]);
}
