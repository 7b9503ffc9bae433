//! Configurations and Instances that are asked about themselves.
use super::{world::DOOR, *};

/// A broker of the device, on node-1.
pub(super) fn broker() -> World {
    World::new()
        .configuration(|c| c["spec"]["brokerSpec"] = json!({"brokerPodSpec": {}}))
        .pending("broker", &format!("akri.sh/{DOOR}"))
        .on("node-1", "Pending")
        .pod(|pod| {
            pod["metadata"]["labels"] =
                json!({"akri.sh/configuration": "cam", "akri.sh/instance": DOOR});
        })
}

/// The Configuration was changed, and only node-1 has looked at it since.
fn changed(world: World) -> World {
    let mut world = world
        .ready("Unknown", "NotReported", "")
        .configuration(|c| c["metadata"]["generation"] = json!(2));
    for (node, generation) in [(0, 2), (1, 1)] {
        world.node_devices[node].1["configurations"][0]["generation"] = json!(generation);
    }
    world
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn a_configuration_is_explained_by_its_condition_its_devices_and_its_brokers() {
    let cam = || configuration("cam");
    run(vec![
        case_of(
            "well",
            World::new(),
            cam(),
            Cause::Fine,
            &["has 1 device.", "offered as akri.sh/cam"],
        ),
        case_of(
            "no device",
            World::new().without_device(),
            cam(),
            Cause::NoDevice,
            &["finds no device"],
        ),
        case_of(
            "no device of a handler of one's own",
            World::new().without_device().configuration(|configuration| {
                configuration["spec"]["discoveryHandler"]["name"] = json!("reachable-python");
            }),
            cam(),
            Cause::NoDevice,
            &["the filters in discoveryDetails, and read the log of the handler, which is a program of its own."],
        ),
        case_of(
            "an unknown handler",
            World::new()
                .without_device()
                .ready("False", "UnknownHandler", "those are zeroconf"),
            cam(),
            Cause::ConfigurationProblem,
            &[
                "(UnknownHandler): those are zeroconf. A handler that is a program of its own registers where the chart's handlers.enabled is true.",
                "\n  helm upgrade leaf charts/petiole --namespace petiole --reset-then-reuse-values --set handlers.enabled=true\n",
            ],
        ),
        case_of(
            "the name is taken",
            World::new().ready("False", "ConfigurationNameTaken", "rename this one"),
            cam(),
            Cause::ConfigurationProblem,
            &["rename this one", "delete configuration cam"],
        ),
        case_of(
            "a prefix",
            World::new().ready("False", "ResourcePrefix", "use akri.sh"),
            cam(),
            Cause::ConfigurationProblem,
            &["use akri.sh", "edit configuration cam"],
        ),
        case_of(
            "udev is not allowed by the chart",
            World::new().without_device().ready(
                "False",
                "BadDiscoveryDetails",
                "no device of udev is allowed on this node. The administrator of the agents allows subsystems with --udev-subsystems (the chart's udev.enabled and udev.subsystems)",
            ),
            cam(),
            Cause::ConfigurationProblem,
            &[
                "\n  helm upgrade leaf charts/petiole --namespace petiole --reset-then-reuse-values --set udev.enabled=true --set 'udev.subsystems={SUBSYSTEM}'\n",
            ],
        ),
        case_of(
            "probe is not allowed by the chart",
            World::new().without_device().ready(
                "False",
                "BadDiscoveryDetails",
                "no host may be probed from this node. The administrator of the agents allows networks with --probe-networks (the chart's probe.enabled and probe.networks)",
            ),
            cam(),
            Cause::ConfigurationProblem,
            &[
                "\n  helm upgrade leaf charts/petiole --namespace petiole --reset-then-reuse-values --set probe.enabled=true --set 'probe.networks={NETWORK},probe.clusterNetworks={PODS,SERVICES}'\n",
            ],
        ),
        case_of(
            "the chart allows no such kind",
            World::new().without_device().ready(
                "False",
                "BadDiscoveryDetails",
                "this kind is not allowed on this node (the chart's cdi.kinds)",
            ),
            cam(),
            Cause::ConfigurationProblem,
            &["\n  helm get values leaf --namespace petiole --all\n"],
        ),
        case_of(
            "no controller",
            World::new()
                .without("controller-1")
                .configuration(|c| c["status"] = json!({})),
            cam(),
            Cause::ControllerMissing,
            &["No controller is ready"],
        ),
        case_of(
            "no agent",
            World::new()
                .without("agent-1")
                .without("agent-2")
                .ready("Unknown", "NotReported", ""),
            cam(),
            Cause::NotReported,
            &["No agent runs"],
        ),
        case_of(
            "a change that a node has not looked at",
            changed(World::new()),
            cam(),
            Cause::NotReported,
            &["has changed", "have not looked at it again yet: node-2:"],
        ),
        Case {
            next: "kubectl delete nodedevices node-2",
            ..case_of(
                "a change that a node without an agent has not looked at",
                changed(World::new().without("agent-2")),
                cam(),
                Cause::AgentMissing,
                &["No agent runs on node node-2", "waits for that node"],
            )
        },
        case_of(
            "the agent of a node that has the device",
            World::new().without("agent-2"),
            cam(),
            Cause::AgentMissing,
            &["No agent runs on node node-2"],
        ),
        case_of(
            "a namespace that no agent reads",
            {
                let mut world = World::new().ready("Unknown", "NotReported", "");
                let env = json!([{"name": "PETIOLE_WATCH_NAMESPACES", "value": "cams,doors"}]);
                for pod in &mut world.pods {
                    pod["spec"]["containers"][0]["env"] = env.clone();
                }
                world
            },
            cam(),
            Cause::NotReported,
            &[
                "no agent reads: those are cams,doors. Apply it in one of them, or add default to watchNamespaces",
                "helm get values leaf --namespace petiole --all",
            ],
        ),
        case_of(
            "a node that is not ready",
            {
                let mut world = World::new().held_by("node-2");
                world.nodes[1]["status"]["conditions"][0]["status"] = json!("Unknown");
                world
            },
            cam(),
            Cause::NodeNotReady,
            &[
                "Node node-2 is not ready, so nothing is known of its devices.",
                "Node node-2 is not ready and holds a slot of Instance default/cam-0a1b2c",
                "\n  kubectl describe node node-2",
            ],
        ),
        case_of(
            "still looking",
            {
                let mut world = World::new().without_device();
                world.node_devices[0].1["configurations"][0]["complete"] = json!(false);
                world
            },
            cam(),
            Cause::StillLooking,
            &["The agents of node-1 have not looked"],
        ),
        case_of(
            "a broker that is refused",
            broker().without("broker").event(
                "Configuration",
                "cam",
                ("BrokerSpecInvalid", "containers[0].name"),
            ),
            cam(),
            Cause::BrokerRefused,
            &["(BrokerSpecInvalid): containers[0].name."],
        ),
        case_of(
            "a broker without an image",
            broker().waiting("ErrImageNeverPull", "not present"),
            cam(),
            Cause::Image,
            &[
                "Its broker: Pod default/broker is Pending on node node-1. Container main has no image",
            ],
        ),
        case_of(
            "a condition of brokers",
            World::new().configuration(|c| {
                c["status"]["conditions"]
                    .as_array_mut()
                    .unwrap()
                    .push(json!({
                        "type": "BrokersReady", "status": "False", "reason": "CrashLoop",
                        "message": "0 of 1", "lastTransitionTime": "",
                    }));
            }),
            cam(),
            Cause::BrokerRefused,
            &["(CrashLoop): 0 of 1."],
        ),
    ]);
}

#[test]
fn devices_and_agents_that_are_not_told_of_are_counted() {
    let mut gone = World::new().instance(|i| i["spec"]["nodes"] = json!([]));
    let mut many = World::new();
    for n in 0..4 {
        let mut instance = gone.instances[0].clone();
        instance["metadata"]["name"] = json!(format!("cam-{n}"));
        gone.instances.push(instance);
        let nodes = many.instances[0]["spec"]["nodes"].as_array_mut().unwrap();
        nodes.push(json!(format!("node-{}", n + 3)));
    }
    let said =
        |world: World, object: Object| explain(&world.snapshot(), &object, World::now()).text();
    let of_devices = said(gone, configuration("cam"));
    let more = " More devices that are not available: 4.";
    assert!(of_devices.contains(more), "{of_devices}");
    let of_agents = said(many, instance(DOOR));
    let more = " More nodes of its devices without a ready agent: 2.";
    assert!(of_agents.contains(more), "{of_agents}");
}

#[test]
fn what_the_condition_of_a_configuration_says_is_not_said_of_its_brokers_again() {
    let refused = "Pod in version \"v1\" cannot be handled: unknown field \"spec.x\"";
    let world = broker()
        .without("broker")
        .event("Configuration", "cam", ("BrokerSpecInvalid", refused))
        .configuration(|c| {
            let condition = |kind: &str, message: &str| {
                json!({
                    "type": kind, "status": "False", "reason": "BrokerSpecInvalid",
                    "message": message, "lastTransitionTime": "",
                })
            };
            c["status"]["conditions"] = json!([
                condition("Ready", refused),
                condition("BrokersReady", &format!("0 of 1 brokers run: {refused}")),
            ]);
        });
    let explanation = explain(&world.snapshot(), &configuration("cam"), World::now());
    let said = explanation.text();
    assert_eq!(said.matches("unknown field").count(), 1, "{said}");
    assert_eq!(explanation.findings[0].cause, Cause::ConfigurationProblem);
}

#[test]
fn an_instance_is_explained_by_its_device_its_agents_and_its_broker() {
    let door = || instance(DOOR);
    run(vec![
        case_of(
            "nobody looks for it any more",
            World::new().ready(
                "False",
                "BadDiscoveryDetails",
                "`kindd` is no key of zeroconf",
            ),
            door(),
            Cause::ConfigurationProblem,
            &[
                "`kindd` is no key of zeroconf.",
                "Agents that have started since then do not look for its devices: whether this one is there is not known.",
            ],
        ),
        case_of(
            "well",
            World::new().held_by("node-1"),
            door(),
            Cause::Fine,
            &[
                "is the device door",
                "1 of 1 slot is in use, by node-1 (Pod default/holder)",
            ],
        ),
        case_of(
            "gone",
            World::new().instance(|i| i["spec"]["nodes"] = json!([])),
            door(),
            Cause::DeviceGone,
            &["no node sees the device."],
        ),
        case_of(
            "an agent",
            World::new().without("agent-2"),
            door(),
            Cause::AgentMissing,
            &["node-2"],
        ),
        case_of(
            "a slot on a node without an agent",
            World::new()
                .held_by("node-2")
                .without("holder")
                .without("agent-2"),
            door(),
            Cause::AgentMissing,
            &["no agent runs on the node that could release it"],
        ),
        case_of(
            "its broker",
            broker().waiting("CrashLoopBackOff", ""),
            door(),
            Cause::Crash,
            &["Its broker: Pod default/broker"],
        ),
    ]);
}

#[test]
fn no_sentence_is_said_twice() {
    let world = World::new().pending("web", "akri.sh/cam").pod(|pod| {
        let limits = &mut pod["spec"]["containers"][0]["resources"]["limits"];
        limits[format!("akri.sh/{DOOR}")] = json!("1");
    });
    let world = world.instance(|i| i["spec"]["nodes"] = json!([]));
    let explanation = explain(&world.snapshot(), &pod("web"), World::now());
    assert_eq!(explanation.findings.len(), 2);
    assert_eq!(explanation.text().matches("is not available").count(), 1);
    assert_eq!(explanation.text().matches("describe instance").count(), 1);
}
