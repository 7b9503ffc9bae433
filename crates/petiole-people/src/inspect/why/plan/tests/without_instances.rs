//! A Configuration without Instances: only the nodes say what they have.
use super::*;
use crate::inspect::node_only::sentences;

/// Returns a world in which `cam` has no Instances, and node-1 has some slots of it.
fn without_instances(slots: &str) -> World {
    let mut world = World::new();
    world.instances.clear();
    world.configurations[0]["spec"]["instances"] = json!(false);
    for node in &mut world.nodes {
        for part in ["capacity", "allocatable"] {
            node["status"][part] = json!({});
        }
    }
    for part in ["capacity", "allocatable"] {
        world.nodes[0]["status"][part] = json!({"akri.sh/cam": slots});
    }
    world
}

#[test]
fn the_nodes_that_offer_it_are_named_with_what_they_have() {
    let mut elsewhere = without_instances("10").pending("web", "akri.sh/cam");
    let selector = json!({"kubernetes.io/hostname": "node-2"});
    elsewhere = elsewhere.pod(|pod| pod["spec"]["nodeSelector"] = selector);
    let mut cordoned = without_instances("10").pending("web", "akri.sh/cam");
    cordoned.nodes[0]["spec"]["unschedulable"] = json!(true);
    run(vec![
        case_of(
            "it is offered",
            without_instances("10"),
            configuration("cam"),
            Cause::Fine,
            &[
                "has devices on 1 node.",
                "have no Instances (spec.instances is false): node-1 has 10.",
            ],
        ),
        case_of(
            "no node has one",
            without_instances("0"),
            configuration("cam"),
            Cause::NoDevice,
            &["its handler zeroconf finds no device (looked on: node-1, node-2)"],
        ),
        case(
            "no node has one for the Pod",
            without_instances("0").pending("web", "akri.sh/cam"),
            Cause::NoDevice,
            &["finds no device"],
            "petiole discover",
        ),
        case(
            "more than a node has",
            without_instances("2")
                .pending("web", "akri.sh/cam")
                .pod(|pod| {
                    pod["spec"]["containers"][0]["resources"]["limits"]["akri.sh/cam"] = json!("3");
                }),
            Cause::TooManyRequested,
            &["asks for 3 of akri.sh/cam on one node, and node node-1 has 2"],
            "kubectl describe node node-1",
        ),
        case(
            "the Pod may not run there",
            elsewhere,
            Cause::NodeDoesNotSee,
            &["The Pod may run on no node that has akri.sh/cam; node-1 offers it."],
            "--show-labels",
        ),
        case(
            "the node is cordoned",
            cordoned,
            Cause::NodeCordoned,
            &["Node node-1, which has the device, is cordoned"],
            "uncordon node-1",
        ),
    ]);
}

#[test]
fn a_list_of_devices_says_what_each_node_has() {
    assert_eq!(
        sentences(&without_instances("10").snapshot()),
        [
            "The devices of Configuration default/cam, akri.sh/cam, have no Instances (spec.instances is false): node-1 has 10."
        ]
    );
    let used = without_instances("10").pending("web", "akri.sh/cam");
    assert!(
        sentences(&used.on("node-1", "Running").snapshot())[0]
            .ends_with("node-1 has 10 (1 in use).")
    );
    assert_eq!(
        sentences(&without_instances("10").without_nodes().snapshot()),
        [
            "Configuration default/cam has no Instances, and the nodes that have akri.sh/cam cannot be read."
        ]
    );
    assert_eq!(
        sentences(&without_instances("0").snapshot()),
        ["Configuration default/cam has no Instances, and no node has akri.sh/cam now."]
    );
    assert!(sentences(&World::new().snapshot()).is_empty());
}
