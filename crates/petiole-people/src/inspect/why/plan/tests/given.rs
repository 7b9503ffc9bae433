//! Pods that run, compared with what they were given, and Pods that the kubelet refused.
use super::{world::DOOR, *};

/// A Pod that has the device by the Configuration's resource, beside another Pod of the node that asks for it.
fn has(health: &str) -> World {
    let given = |world: World, id: &str, health: &str| {
        let given =
            json!([{"name": "akri.sh/cam", "resources": [{"resourceID": id, "health": health}]}]);
        world.on("node-1", "Running").pod(move |pod| {
            pod["status"]["containerStatuses"] = json!([{
                "name": "main", "ready": true, "restartCount": 0, "image": "", "imageID": "",
                "allocatedResourcesStatus": given,
            }]);
        })
    };
    let other = given(
        World::new().pending("other", "akri.sh/cam"),
        "cam-7",
        "Healthy",
    );
    given(other.pending("web", "akri.sh/cam"), "cam-1", health).instance(|instance| {
        instance["spec"]["deviceUsage"] = json!({format!("{DOOR}-0"): "C:cam-1:node-1"});
    })
}

/// The device is reached by another digest than that which the slot's container was told.
fn moved(world: World) -> World {
    let mut world = world.instance(|instance| {
        instance["metadata"]["annotations"]["told.akri.sh/0"] = json!("former");
    });
    world.node_devices[0].1["configurations"][0]["devices"][0]["connection"] = json!("present");
    world
}

fn gone(world: World) -> World {
    world.instance(|instance| instance["spec"]["nodes"] = json!([]))
}

fn unseen_on_node_1(world: World) -> World {
    world.instance(|instance| instance["spec"]["nodes"] = json!(["node-2"]))
}

/// Makes the Pod that was added last one of a Deployment.
fn owned(world: World) -> World {
    world.pod(|pod| {
        pod["metadata"]["labels"] = json!({"pod-template-hash": "5d9c"});
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop-5d9c", "uid": "",
            "controller": true,
        }]);
    })
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn a_pod_is_compared_with_the_device_that_it_was_given() {
    let delete = "kubectl -n default delete pod web";
    run(vec![
        case(
            "well",
            has("Healthy"),
            Cause::Fine,
            &["Nothing is missing."],
            "",
        ),
        case(
            "the device is gone",
            gone(has("Unhealthy")),
            Cause::DeviceGone,
            &[
                "Device door (Instance default/cam-0a1b2c) is not available",
                "delete the Pod",
            ],
            "describe instance cam-0a1b2c",
        ),
        case(
            "the node does not see it any more",
            unseen_on_node_1(has("Unhealthy")),
            Cause::DeviceGone,
            &[
                "Node node-1 does not see device door (Instance default/cam-0a1b2c) any more, and node-2 does.",
            ],
            delete,
        ),
        case(
            "it moved",
            moved(has("Healthy")),
            Cause::DeviceMoved,
            &[
                "device door (Instance default/cam-0a1b2c) is reached differently now than when Pod default/web got it",
            ],
            delete,
        ),
        case(
            "its Instance was deleted",
            {
                let mut world = has("Unhealthy");
                world.instances.clear();
                world
            },
            Cause::DeviceGone,
            &["its device cam-1 is unhealthy, and Configuration default/cam has no Instance of it"],
            delete,
        ),
        Case {
            object: pod("other"),
            ..case(
                "the other Pod",
                moved(has("Healthy")),
                Cause::Fine,
                &["Nothing is missing."],
                "",
            )
        },
        case(
            "it crashes without its device",
            gone(has("Unhealthy").pod(|pod| {
                pod["status"]["containerStatuses"][0]["state"] =
                    json!({"terminated": {"exitCode": 1}});
            })),
            Cause::DeviceGone,
            &["is not available"],
            "",
        ),
    ]);
}

#[test]
fn the_configuration_the_instance_and_the_workload_say_it_too() {
    let workload = object(Kind::Deployment, "shop");
    const SAID: &[&str] = &["is reached differently now than when Pod default/web got it"];
    for object in [configuration("cam"), instance(DOOR), workload] {
        let world = owned(moved(has("Healthy")));
        run(vec![case_of(
            "it moved",
            world,
            object,
            Cause::DeviceMoved,
            SAID,
        )]);
    }
}

#[test]
fn five_pods_with_one_trouble_are_told_of_once() {
    let mut world = World::new();
    for name in ["a", "b", "c", "d", "e"] {
        world = owned(world.pending(name, "akri.sh/cma"));
    }
    let workload = object(Kind::Deployment, "shop");
    run(vec![case_of(
        "a typo in each",
        world,
        workload,
        Cause::UnknownResource,
        &[
            "has 0 of 5 Pods ready. Pod default/a is Pending",
            "The nearest name is akri.sh/cam",
            "The same for 4 more Pods.",
        ],
    )]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn a_pod_that_was_refused_while_the_agent_was_replaced_says_so() {
    let refused = |message: &'static str| {
        wants_cam().on("node-1", "Failed").pod(move |pod| {
            pod["metadata"]["creationTimestamp"] = json!("2026-01-01T10:00:00Z");
            pod["status"]["reason"] = json!("UnexpectedAdmissionError");
            pod["status"]["message"] = json!(message);
        })
    };
    let unhealthy = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices akri.sh/cam, which is unexpected";
    let agent_since = |mut world: World, at: &str| {
        world.pods[0]["status"]["containerStatuses"] = json!([{
            "name": "agent", "ready": true, "restartCount": 0, "image": "", "imageID": "",
            "state": {"running": {"startedAt": at}},
        }]);
        world
    };
    let stopped = "device plugin PreStartContainer rpc failed with err: endpoint has been stopped";
    let moved = "device plugin PreStartContainer rpc failed with err: reached differently now: delete the Pod";
    run(vec![
        case(
            "the agent began just then",
            agent_since(refused(unhealthy), "2026-01-01T10:00:01Z"),
            Cause::AgentReplaced,
            &["because the agent of node node-1 was being replaced just then"],
            "delete pod web",
        ),
        case(
            "the agent has run for long",
            agent_since(refused(unhealthy), "2026-01-01T08:00:00Z"),
            Cause::AdmissionRefused,
            &["no device was healthy on its node then"],
            "delete pod web",
        ),
        case(
            "another Pod was faster",
            agent_since(
                refused("Requested: 1, Available: 0"),
                "2026-01-01T10:00:01Z",
            ),
            Cause::AdmissionRefused,
            &["the device was taken or lost after the Pod was scheduled"],
            "",
        ),
        case(
            "the agent refuses each that follows, too",
            agent_since(
                refused(
                    "Allocate failed due to rpc error: code = FailedPrecondition desc = the container would get more than 1 bytes, which is unexpected",
                ),
                "2026-01-01T10:00:01Z",
            ),
            Cause::AdmissionRefused,
            &[
                "because the agent of its node did: Allocate failed",
                "would get more than",
            ],
            "delete pod web",
        ),
        case(
            "a start at that moment",
            wants_cam()
                .on("node-1", "Pending")
                .waiting("CreateContainerConfigError", stopped),
            Cause::AgentReplaced,
            &["the kubelet tries again within half a minute"],
            "get pod web -w",
        ),
        case(
            "a start that is refused for good",
            wants_cam()
                .on("node-1", "Pending")
                .waiting("CreateContainerConfigError", moved),
            Cause::StartRefused,
            &["is not started again"],
            "delete pod web",
        ),
    ]);
}

#[test]
fn the_time_until_a_lost_node_s_slots_are_free_is_that_of_now() {
    let lost = |release: i64, since: &'static str| {
        let world = wants_cam().held_by("node-2");
        let world = world.configuration(move |c| c["spec"]["slotReleaseSeconds"] = json!(release));
        world.nodes(move |node| {
            if node["metadata"]["name"] == "node-2" {
                node["status"]["conditions"] =
                    json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": since}]);
            }
        })
    };
    let held = |title, world, says| {
        case(
            title,
            world,
            Cause::SlotHeldByLostNode,
            says,
            "taint node node-2",
        )
    };
    run(vec![
        held(
            "after 30 s",
            lost(300, "2026-01-01T10:00:00Z"),
            &["Others get it in 270 s"],
        ),
        held(
            "after 6 min",
            lost(300, "2026-01-01T09:54:00Z"),
            &["Others get it within seconds"],
        ),
        // A minute to be lost, and one to join again.
        held("two", lost(30, "2026-01-01T09:58:50Z"), &["it in 20 s"]),
        held("never", lost(0, "2026-01-01T10:00:00Z"), &["never by time"]),
    ]);
    let ending = |world: World| {
        world.without("web").pod(|pod| {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T10:00:00Z");
        })
    };
    let holder = || pod("holder");
    let freed =
        lost(300, "2026-01-01T09:54:00Z").instance(|i| i["spec"]["deviceUsage"] = json!({}));
    run(vec![
        case_of(
            "it may run still",
            ending(lost(300, "2026-01-01T10:00:00Z")),
            holder(),
            Cause::Ending,
            &["its slots stay in use until then"],
        ),
        case_of(
            "its slots are free",
            ending(freed),
            holder(),
            Cause::Ending,
            &["its slots were released"],
        ),
    ]);
}

#[test]
fn an_object_of_another_namespace_is_named() {
    let elsewhere = |object: Object| {
        let mut world = World::new();
        let mut other = world.configurations[0].clone();
        other["metadata"] = json!({"namespace": "other", "name": "lamp"});
        world.configurations.push(other);
        case_of(
            "elsewhere",
            world,
            object,
            Cause::NoSuchObject,
            &["There is Configuration other/lamp."],
        )
    };
    run(vec![Case {
        next: "kubectl petiole why -n other configuration/lamp",
        ..elsewhere(configuration("lamp"))
    }]);
}

#[test]
fn a_pod_that_may_not_run_where_the_device_is_does_not_wait_for_a_slot() {
    let world = World::new()
        .held_by("node-1")
        .pending("web", "akri.sh/cam")
        .pod(|pod| pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "node-2"}))
        .instance(|instance| instance["spec"]["nodes"] = json!(["node-1"]));
    run(vec![case(
        "maxNodes, in use",
        {
            let mut world = world;
            world.configurations[0]["spec"]["maxNodes"] = json!(1);
            world
        },
        Cause::MaxNodes,
        &["offered by node-1"],
        "",
    )]);
}
