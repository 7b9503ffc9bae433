//! Configurations and Instances that are asked about themselves.
use super::{world::DOOR, *};

/// A broker of the device, on node-1.
fn broker() -> World {
    World::new()
        .configuration(|c| c["spec"]["brokerSpec"] = json!({"brokerPodSpec": {}}))
        .pending("broker", &format!("akri.sh/{DOOR}"))
        .on("node-1", "Pending")
        .pod(|pod| {
            pod["metadata"]["labels"] =
                json!({"akri.sh/configuration": "cam", "akri.sh/instance": DOOR});
        })
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
            "an unknown handler",
            World::new()
                .without_device()
                .ready("False", "UnknownHandler", "those are zeroconf"),
            cam(),
            Cause::ConfigurationProblem,
            &[
                "(UnknownHandler): those are zeroconf.",
                "delete configuration cam",
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
            "the agent of a node that has the device",
            World::new().without("agent-2"),
            cam(),
            Cause::AgentMissing,
            &["No agent runs on node node-2"],
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
fn an_instance_is_explained_by_its_device_its_agents_and_its_broker() {
    let door = || instance(DOOR);
    run(vec![
        case_of(
            "well",
            World::new().held_by("node-1"),
            door(),
            Cause::Fine,
            &[
                "is the device door",
                "1 of 1 slots are in use, by node-1 (Pod default/holder)",
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
