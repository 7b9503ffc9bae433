//! Pods whose device the kubelet calls unhealthy although it may be there: what has become of it is looked up, not guessed.
use super::{world::DOOR, *};

/// Gives the Pod that was added last an id of a resource, which the kubelet calls unhealthy.
pub(super) fn given(world: World, resource: &str, id: &str) -> World {
    let given =
        json!([{"name": resource, "resources": [{"resourceID": id, "health": "Unhealthy"}]}]);
    world.pod(move |pod| {
        pod["status"]["containerStatuses"] = json!([{
            "name": "main", "ready": true, "restartCount": 0, "image": "", "imageID": "",
            "allocatedResourcesStatus": given,
        }]);
    })
}

/// The Pod has the device by a resource, and the slot says so.
fn by(resource: &str, id: &str) -> World {
    let world = World::new()
        .pending("web", resource)
        .on("node-1", "Running");
    let usage = if id.starts_with(DOOR) {
        json!({id: "node-1"})
    } else {
        json!({format!("{DOOR}-0"): format!("C:{id}:node-1")})
    };
    given(world, resource, id).instance(|instance| instance["spec"]["deviceUsage"] = usage)
}

fn without_instances(mut world: World) -> World {
    world.instances.clear();
    world
}

fn without_configurations(world: World) -> World {
    let mut world = without_instances(world);
    world.configurations.clear();
    world
}

fn renamed(world: World, resource: &str) -> World {
    world.configuration(|its| its["spec"]["resourceName"] = json!(resource))
}

fn with_prefix(mut world: World, prefix: &str) -> World {
    let variable = json!([{"name": "PETIOLE_RESOURCE_PREFIXES", "value": prefix}]);
    for agent in &mut world.pods[..2] {
        agent["spec"]["containers"][0]["env"] = variable.clone();
    }
    world
}

/// The Pod has a slot of a device that has no Instance.
fn without_objects(id: &str, capacity: u8) -> World {
    without_instances(by("akri.sh/cam", id)).configuration(|its| {
        its["spec"]["instances"] = json!(false);
        its["spec"]["capacity"] = json!(capacity);
    })
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn a_device_is_gone_only_if_nothing_else_explains_that_it_is_unhealthy() {
    let by_configuration = || by("akri.sh/cam", "cam-1");
    let of_instance = "akri.sh/cam-0a1b2c";
    let by_instance = || by(of_instance, "cam-0a1b2c-0");
    let delete = "kubectl -n default delete pod web";
    run(vec![
        case(
            "no agent runs on the node",
            by_configuration().without("agent-1"),
            Cause::AgentMissing,
            &[
                "The kubelet says that its device cam-1 is unhealthy. No agent runs on node node-1",
                "The Pod goes on with its device until it ends.",
            ],
            "describe daemonsets",
        ),
        case(
            "Petiole was uninstalled",
            without_configurations(by_instance().without("agent-1").without("agent-2")),
            Cause::AgentMissing,
            &["No agent runs on node node-1", "goes on with its device"],
            "",
        ),
        case(
            "the Configuration was deleted",
            without_configurations(by_configuration()),
            Cause::UnknownResource,
            &[
                "its device cam-1 is unhealthy, because no Configuration or Instance offers akri.sh/cam any more",
                "keeps its device until it ends, and the next one would wait.",
            ],
            "get configurations,instances",
        ),
        case(
            "it was deleted, and the Pod asks for the device itself",
            without_configurations(by_instance()),
            Cause::UnknownResource,
            &["no Configuration or Instance offers akri.sh/cam-0a1b2c any more"],
            "",
        ),
        case(
            "the Configurations of another namespace cannot be read",
            without_configurations(by_configuration()).without_other_namespaces(),
            Cause::UnknownResource,
            &["no Configuration or Instance that you may read offers akri.sh/cam:"],
            "",
        ),
        case(
            "the resource has another name",
            renamed(by_configuration(), "akri.sh/camera"),
            Cause::UnknownResource,
            &[
                "offers akri.sh/cam any more: it is called akri.sh/camera now.",
                "write the new name into the limits",
            ],
            delete,
        ),
        case(
            "the resource of devices without Instances has another name",
            renamed(without_objects("cam-0a1b2c-0", 8), "akri.sh/camera"),
            Cause::UnknownResource,
            &["offers akri.sh/cam any more: it is called akri.sh/camera now."],
            delete,
        ),
        case(
            "the name was of another prefix",
            renamed(by("example.com/cam", "cam-1"), "example.com/camera"),
            Cause::UnknownResource,
            &["offers example.com/cam any more: it is called example.com/camera now."],
            "",
        ),
        case(
            "the prefix is another one",
            with_prefix(by_instance(), "squat.ai"),
            Cause::UnknownResource,
            &["it is called squat.ai/cam-0a1b2c now."],
            "",
        ),
        case(
            "the capacity was lowered",
            by(of_instance, "cam-0a1b2c-2").capacity(2),
            Cause::Fine,
            &[
                "its device cam-0a1b2c-2 is unhealthy, because spec.capacity of Configuration default/cam was lowered to 2",
                "keeps the slot until it ends",
            ],
            "edit configuration cam",
        ),
        case(
            "so was that of a Configuration's resource",
            by_configuration().instance(|instance| {
                instance["spec"]["deviceUsage"] = json!({format!("{DOOR}-1"): "C:cam-1:node-1"});
            }),
            Cause::Fine,
            &["because spec.capacity of Configuration default/cam was lowered to 1"],
            "",
        ),
        case(
            "the Instance of the device was deleted",
            without_instances(by_instance()),
            Cause::DeviceGone,
            &[
                "its device cam-0a1b2c-0 is unhealthy, and Configuration default/cam has no Instance of it any more: the device is gone",
            ],
            delete,
        ),
        case(
            "another device is left",
            by_configuration().instance(|instance| instance["spec"]["deviceUsage"] = json!({})),
            Cause::InstanceDeleted,
            &[
                "no Instance of Configuration default/cam shows that the Pod has it",
                "was deleted, or the slot was released while the node could not be reached",
            ],
            delete,
        ),
        case(
            "devices without Instances have fewer slots",
            without_objects("cam-0a1b2c-7", 7),
            Cause::Fine,
            &["was lowered to 7, and the Pod has slot cam-0a1b2c-7"],
            "",
        ),
        case(
            "a device without an Instance is gone",
            without_objects("cam-0a1b2c-7", 8),
            Cause::DeviceGone,
            &[
                "its node finds no such device for Configuration default/cam any more: the device is gone",
            ],
            delete,
        ),
        case(
            "the kubelet lags behind",
            by_instance(),
            Cause::OtherReason,
            &["and Instance default/cam-0a1b2c says that it is there"],
            "-n petiole logs agent-1",
        ),
        case(
            "the Pods of agents cannot be read",
            by_instance().without_pods(),
            Cause::OtherReason,
            &["Whether an agent runs on its node is not yours to read."],
            "",
        ),
    ]);
}
