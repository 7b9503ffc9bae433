//! Pods whose trouble is the device, its slots, or the node.
use super::{world::DOOR, *};

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn a_pod_that_waits_for_a_device_is_explained_by_the_device() {
    let gone = |reason: &'static str| {
        wants_cam().instance(move |instance| {
            instance["spec"]["nodes"] = json!([]);
            instance["status"]["conditions"] = json!([{
                "type": "Available", "status": "False", "reason": reason,
                "message": "no node sees the device; the Instance is deleted when the grace period of its Configuration is over",
                "lastTransitionTime": "2026-01-01T10:00:00Z",
            }]);
        })
    };
    run(vec![
        case(
            "no device",
            wants_cam().without_device(),
            Cause::NoDevice,
            &["zeroconf finds no device (looked on: node-1, node-2)"],
            "kubectl petiole discover zeroconf --node node-1 --details -",
        ),
        case(
            "a bad Configuration",
            wants_cam().without_device().ready(
                "False",
                "BadDiscoveryDetails",
                "node node-1: `kind` is missing",
            ),
            Cause::ConfigurationProblem,
            &["(BadDiscoveryDetails): node node-1: `kind` is missing."],
            "edit configuration cam",
        ),
        case(
            "device gone",
            gone("DeviceGone"),
            Cause::DeviceGone,
            &[
                "Device door (Instance default/cam-0a1b2c)",
                "no node sees the device",
                "That is in 30s.",
            ],
            "describe instance cam-0a1b2c",
        ),
        case(
            "device gone in use",
            gone("DeviceGoneInUse"),
            Cause::DeviceGone,
            &["over. Switch it on"],
            "",
        ),
        case(
            "all slots taken",
            wants_cam().held_by("node-2"),
            Cause::SlotsTaken,
            &["The only slot of akri.sh/cam is in use, by node-2 (Pod default/holder)"],
            "edit configuration cam",
        ),
        case(
            "the holder has ended",
            wants_cam().held_by("node-2").on("node-2", "Succeeded"),
            Cause::SlotsBeingReleased,
            &["node node-2 holds one of Instance default/cam-0a1b2c that none of its Pods"],
            "get instance cam-0a1b2c",
        ),
        case(
            "the holder has ended on a node without an agent",
            wants_cam()
                .held_by("node-2")
                .on("node-2", "Succeeded")
                .without("agent-2"),
            Cause::AgentMissing,
            &[
                "The only slot of akri.sh/cam is in use. Node node-2 holds slot cam-0a1b2c-0 of Instance default/cam-0a1b2c",
                "no agent runs on the node that could release it",
            ],
            r#"kubectl -n default patch instance cam-0a1b2c --type merge -p '{"spec":{"deviceUsage":{"cam-0a1b2c-0":""}}}'"#,
        ),
        case(
            "the holder has ended on a node whose agent is not ready",
            {
                let mut world = wants_cam().held_by("node-2").on("node-2", "Succeeded");
                world.pods[1]["status"]["conditions"][0]["status"] = json!("False");
                world
            },
            Cause::AgentNotReady,
            &[
                "The only slot of akri.sh/cam is in use. The agent of node node-2 is not ready (Pod petiole/agent-2",
            ],
            "kubectl -n petiole logs agent-2",
        ),
        case(
            "the holder runs on a node without an agent",
            wants_cam().held_by("node-2").without("agent-2"),
            Cause::SlotsTaken,
            &["in use, by node-2 (Pod default/holder)"],
            "",
        ),
        case(
            "a lost node holds it",
            wants_cam().held_by("node-2").nodes(|node| {
                if node["metadata"]["name"] == "node-2" {
                    node["status"]["conditions"][0]["status"] = json!("Unknown");
                }
            }),
            Cause::SlotHeldByLostNode,
            &[
                "Node node-2 is not ready and holds a slot",
                "spec.slotReleaseSeconds",
            ],
            "kubectl taint node node-2 node.kubernetes.io/out-of-service",
        ),
        case(
            "a deleted node holds it",
            wants_cam().held_by("node-3"),
            Cause::SlotHeldByLostNode,
            &[
                "Node node-3 does not exist and holds a slot",
                "Others get it when its Pods are deleted",
            ],
            "kubectl get pods -A --field-selector spec.nodeName=node-3",
        ),
    ]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn a_pod_whose_device_is_free_is_explained_by_the_nodes() {
    let pinned = |node: &'static str| {
        wants_cam()
            .pod(move |pod| pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node}))
    };
    let only_on_1 = |world: World| world.instance(|i| i["spec"]["nodes"] = json!(["node-1"]));
    let blind = |mut world: World| {
        world.node_devices[1].1["configurations"][0]["devices"] = json!([]);
        world
    };
    let agent_of_node_1_fails = || {
        let mut world = only_on_1(wants_cam());
        world.pods[0]["status"]["conditions"][0]["status"] = json!("False");
        world
    };
    run(vec![
        case(
            "cordoned",
            wants_cam().nodes(|n| n["spec"]["unschedulable"] = json!(true)),
            Cause::NodeCordoned,
            &["Node node-1", "Node node-2"],
            "kubectl uncordon node-1",
        ),
        case(
            "tainted",
            wants_cam().nodes(|n| {
                n["spec"]["taints"] =
                    json!([{"key": "edge", "value": "yes", "effect": "NoSchedule"}])
            }),
            Cause::NodeTainted,
            &["has the taint edge=yes:NoSchedule"],
            "kubectl taint node node-1 edge=yes:NoSchedule-",
        ),
        case(
            "not ready",
            wants_cam().nodes(|n| n["status"]["conditions"] = json!([])),
            Cause::NodeNotReady,
            &["is not ready"],
            "kubectl describe node node-1",
        ),
        case(
            "no agent",
            only_on_1(wants_cam()).without("agent-1"),
            Cause::AgentMissing,
            &["No agent runs on node node-1"],
            "describe daemonsets -A",
        ),
        case(
            "agent not ready",
            agent_of_node_1_fails(),
            Cause::AgentNotReady,
            &["Pod petiole/agent-1: Running"],
            "kubectl -n petiole logs agent-1",
        ),
        case(
            "the image of the agent",
            {
                let mut world = agent_of_node_1_fails();
                world.pods[0]["status"]["phase"] = json!("Pending");
                world.pods[0]["status"]["containerStatuses"] = json!([{
                    "name": "agent", "ready": false, "restartCount": 0, "image": "", "imageID": "",
                    "state": {"waiting": {"reason": "ImagePullBackOff"}},
                }]);
                world
            },
            Cause::AgentNotReady,
            &["(Pod petiole/agent-1: ImagePullBackOff): check the image of the chart"],
            "kubectl -n petiole describe pod agent-1",
        ),
        case(
            "not registered",
            wants_cam().nodes(|n| n["status"]["allocatable"] = json!({})),
            Cause::NotRegistered,
            &["does not list akri.sh/cam"],
            "logs agent-1",
        ),
        case(
            "stale",
            wants_cam().nodes(|n| n["status"]["allocatable"]["akri.sh/cam"] = json!("0")),
            Cause::CapacityStale,
            &["lists akri.sh/cam: 0"],
            "logs agent-1",
        ),
        case(
            "two are asked for, and each node has one",
            {
                let mut world = only_on_1(wants_cam());
                let mut other = world.instances[0].clone();
                other["metadata"]["name"] = json!("cam-ffffff");
                other["spec"]["nodes"] = json!(["node-2"]);
                world.instances.push(other);
                world.pod(|pod| {
                    pod["spec"]["containers"][0]["resources"]["limits"]["akri.sh/cam"] = json!("2");
                })
            },
            Cause::TooManyRequested,
            &[
                "The Pod asks for 2 of akri.sh/cam on one node, and node node-1 has 1 that can be had.",
            ],
            "kubectl describe node node-1",
        ),
        case(
            "asked for by another Pod",
            only_on_1(
                World::new()
                    .pending("other", "akri.sh/cam")
                    .on("node-1", "Pending")
                    .pending("web", "akri.sh/cam"),
            ),
            Cause::NodeFull,
            &["the Pods default/other have asked for 1"],
            "",
        ),
        case(
            "no node matches",
            pinned("node-7"),
            Cause::NoNodeMatches,
            &["matches no Node"],
            "--show-labels",
        ),
        case(
            "node does not see",
            blind(only_on_1(pinned("node-2"))),
            Cause::NodeDoesNotSee,
            &["node-2, which does not see the device; node-1 does"],
            "",
        ),
        case(
            "maxNodes",
            only_on_1(pinned("node-2")).configuration(|c| c["spec"]["maxNodes"] = json!(1)),
            Cause::MaxNodes,
            &["spec.maxNodes of Configuration default/cam is 1, and it is offered by node-1."],
            "edit configuration cam",
        ),
        case(
            "the default of maxNodes",
            only_on_1(pinned("node-2"))
                .configuration(|c| c["spec"]["discoveryHandler"]["name"] = json!("onvif"))
                .instance(|i| i["spec"]["nodes"] = json!(vec!["node-1"; 16])),
            Cause::MaxNodes,
            &[
                "spec.maxNodes of Configuration default/cam is 16 by default, and it is offered by node-1.",
            ],
            "edit configuration cam",
        ),
        case(
            "one node of the default of maxNodes",
            only_on_1(pinned("node-2"))
                .configuration(|c| c["spec"]["discoveryHandler"]["name"] = json!("onvif")),
            Cause::NodeDoesNotSee,
            &[],
            "",
        ),
        case(
            "the Configuration's nodeSelector",
            blind(only_on_1(pinned("node-2")))
                .configuration(|c| c["spec"]["nodeSelector"] = json!({"zone": "a"})),
            Cause::NodeNotSelected,
            &["spec.nodeSelector wants zone=a"],
            "kubectl label node node-2 zone=a",
        ),
        case(
            "the agent of that node",
            blind(only_on_1(pinned("node-2"))).without("agent-2"),
            Cause::AgentMissing,
            &["node-2"],
            "",
        ),
    ]);
}

#[test]
fn a_tolerated_taint_and_one_good_node_are_enough() {
    let tainted = wants_cam()
        .nodes(|node| node["spec"]["taints"] = json!([{"key": "edge", "effect": "NoSchedule"}]))
        .pod(|pod| pod["spec"]["tolerations"] = json!([{"key": "edge", "operator": "Exists"}]));
    let cordoned = wants_cam().nodes(|node| {
        node["spec"]["unschedulable"] = json!(node["metadata"]["name"] == "node-1");
    });
    run(vec![
        case(
            "tolerated",
            tainted,
            Cause::OtherReason,
            &["the reason is another one"],
            "",
        ),
        case(
            "the other node is free",
            cordoned,
            Cause::OtherReason,
            &["the reason is another one"],
            "",
        ),
    ]);
}

#[test]
fn a_pod_that_asks_for_more_than_is_free_waits_for_slots() {
    let wants = |amount: &'static str| {
        let resource = format!("akri.sh/{DOOR}");
        let held = World::new().capacity(2).held_by("node-2");
        held.pending("web", &resource).pod(move |pod| {
            pod["spec"]["containers"][0]["resources"]["limits"] = json!({resource: amount});
        })
    };
    let offers_2 = |world: World| {
        world.nodes(|n| n["status"]["allocatable"]["akri.sh/cam-0a1b2c"] = json!("1"))
    };
    run(vec![
        case(
            "two",
            offers_2(wants("2")),
            Cause::SlotsTaken,
            &[
                "The Pod asks for 2 of akri.sh/cam-0a1b2c, 1 can be had, and 1 slot is in use, by node-2 (Pod default/holder).",
            ],
            "",
        ),
        case("one", offers_2(wants("1")), Cause::OtherReason, &[], ""),
        case(
            "more containers have it than its lowered capacity",
            wants("1")
                .instance(|instance| {
                    let held = |n| format!("{DOOR}-{n}");
                    instance["spec"]["capacity"] = json!(1);
                    instance["spec"]["deviceUsage"] =
                        json!({held(0): "", held(1): "node-2", held(2): "node-1"});
                })
                .without_pods(),
            Cause::SlotsTaken,
            &[
                "2 slots of akri.sh/cam-0a1b2c are in use, more than spec.capacity 1, by",
                "The Pod starts when 2 of them have ended; or raise",
            ],
            "edit configuration cam",
        ),
    ]);
}

#[test]
fn the_scheduler_s_rules_for_cordons_and_empty_terms_hold() {
    let cordoned = || wants_cam().nodes(|node| node["spec"]["unschedulable"] = json!(true));
    let key = "node.kubernetes.io/unschedulable";
    let affinity = |terms: Value| {
        wants_cam().pod(|pod| {
            pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({"nodeSelectorTerms": terms});
        })
    };
    run(vec![
        case(
            "a tolerated cordon",
            cordoned().pod(move |pod| {
                pod["spec"]["tolerations"] = json!([{"key": key, "operator": "Exists"}]);
            }),
            Cause::OtherReason,
            &["the reason is another one"],
            "",
        ),
        case(
            "a cordon with its taint",
            cordoned().nodes(move |node| {
                node["spec"]["taints"] = json!([{"key": key, "effect": "NoSchedule"}]);
            }),
            Cause::NodeCordoned,
            &["is cordoned"],
            "kubectl uncordon node-1",
        ),
        case(
            "an empty term",
            affinity(json!([{}])),
            Cause::NoNodeMatches,
            &["matches no Node"],
            "",
        ),
        case(
            "a term that matches beside an empty one",
            affinity(
                json!([{}, {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}]),
            ),
            Cause::OtherReason,
            &[],
            "",
        ),
    ]);
}
