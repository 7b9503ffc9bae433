//! Pods that follow their device (`whenGone: Evict`), and where a container has its device.
use super::{world::DOOR, *};

const WHY: &str = "evicted, because node node-1 does not see the device";

/// The only slot is held by the Pod `holder` of node-1, which does not see the device any more, and whose Pods are evicted.
fn lost() -> World {
    let world = World::new().held_by("node-1");
    let world = world.instance(|instance| instance["spec"]["nodes"] = json!(["node-2"]));
    world.configuration(|its| its["spec"]["whenGone"] = json!("Evict"))
}

/// A Deployment whose Pod runs.
fn deployed() -> World {
    wants_cam().on("node-2", "Running").pod(|pod| {
        pod["metadata"]["labels"] = json!({"pod-template-hash": "5d9c"});
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop-5d9c", "uid": "", "controller": true,
        }]);
    })
}

#[test]
fn who_was_evicted_and_why_is_said_of_pods_workloads_and_devices() {
    let evicted = |world: World, pod: &str| world.event("Pod", pod, ("PodEvicted", WHY));
    run(vec![
        case(
            "a Pod that was evicted",
            evicted(World::new(), "web"),
            Cause::Evicted,
            &[
                "Pod default/web does not exist any more.",
                "Pod default/web was evicted 20s ago, because node node-1 does not see the device.",
            ],
            "kubectl -n default get pods",
        ),
        case(
            "another Pod was evicted",
            evicted(World::new(), "web-2"),
            Cause::NoSuchObject,
            &["Pod default/web does not exist."],
            "",
        ),
        case(
            "it ends",
            evicted(wants_cam().on("node-1", "Running"), "web").pod(|pod| {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T10:00:10Z");
            }),
            Cause::Ending,
            &[
                "It is being deleted",
                "Pod default/web was evicted 20s ago, because",
            ],
            "-w",
        ),
        case_of(
            "the Deployment's next Pod runs",
            evicted(deployed(), "shop-5d9c-abcde"),
            object(Kind::Deployment, "shop"),
            Cause::Fine,
            &[
                "has 1 of 1 Pod ready.",
                "Pod default/shop-5d9c-abcde was evicted 20s ago, because",
            ],
        ),
        case_of(
            "the device has another holder",
            World::new().event(
                "Instance",
                DOOR,
                (
                    "PodEvicted",
                    "Pod default/web is evicted, because node node-1 does not see the device",
                ),
            ),
            instance(DOOR),
            Cause::Fine,
            &["Pod default/web was evicted 20s ago, because node node-1 does not see the device."],
        ),
    ]);
    let other = evicted(deployed(), "shop-window-5d9c-abcde").snapshot();
    let said = explain(&other, &object(Kind::Deployment, "shop"), World::now());
    assert!(!said.text().contains("evicted"), "{}", said.text());
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn what_was_evicted_of_a_former_workload_or_for_a_former_device_is_not_said() {
    const OF_DOOR: &str = "evicted, because node node-1 does not see the device of Instance default/cam-0a1b2c any more";
    const OF_LAMP: &str = "evicted, because node node-1 does not see the device of Instance default/cam-3d4e5f and of 1 more any more";
    const OF_OTHERS: &str = "evicted, because node node-1 does not see the device of Instance other/cam-3d4e5f any more";
    let evicted =
        |why: &'static str| deployed().event("Pod", "shop-5d9c-abcde", ("PodEvicted", why));
    let created = |mut world: World, at| {
        world.created = Some(at);
        world
    };
    let device_since = |world: World, at: &str| {
        world.instance(|its| its["metadata"]["creationTimestamp"] = json!(at))
    };
    let (before, after) = ("2026-01-01T10:00:09Z", "2026-01-01T10:00:11Z");
    for (title, world, is_said) in [
        (
            "it is not known since when it is there",
            evicted(OF_DOOR),
            true,
        ),
        (
            "since before the eviction",
            created(evicted(OF_DOOR), before),
            true,
        ),
        (
            "another one of its name was there then",
            created(evicted(OF_DOOR), after),
            false,
        ),
        ("the device is gone for good", evicted(OF_LAMP), false),
        (
            "it is, and its Pod waits for another one",
            evicted(OF_LAMP).pod(|pod| pod["status"]["conditions"] = json!([])),
            true,
        ),
        ("that of another namespace, too", evicted(OF_OTHERS), false),
        (
            "its Instance may be there, and cannot be read",
            evicted(OF_OTHERS).without_other_namespaces(),
            true,
        ),
        (
            "the device was there then",
            device_since(evicted(OF_DOOR), before),
            true,
        ),
        (
            "another Instance has its name now",
            device_since(evicted(OF_DOOR), after),
            false,
        ),
    ] {
        let said = explain(
            &world.snapshot(),
            &object(Kind::Deployment, "shop"),
            World::now(),
        );
        assert_eq!(
            said.text().contains("evicted"),
            is_said,
            "{title}: {}",
            said.text()
        );
    }
}

#[test]
fn a_pod_that_lost_its_device_is_ended_by_the_controller_or_it_is_said_what_prevents_that() {
    let refused = "Pod default/holder cannot be evicted, though node node-1 does not see the device; it is tried again: a budget";
    let kept = lost().configuration(|its| its["spec"]["whenGone"] = json!("Keep"));
    let case = |title, world, says| case_of(title, world, pod("holder"), Cause::DeviceGone, says);
    run(vec![
        case(
            "it is not evicted",
            kept,
            &["Delete the Pod, so that the next one"],
        ),
        case(
            "it is evicted",
            lost(),
            &["The controller ends the Pod by itself (whenGone: Evict)."],
        ),
        case(
            "a budget refuses",
            lost().event("Instance", DOOR, ("EvictionRefused", refused)),
            &[
                "Pod default/holder cannot be evicted",
                "it is tried again: a budget.",
            ],
        ),
    ]);
}

#[test]
fn a_running_pod_is_told_where_its_container_has_the_device() {
    let with = |wish: Value| {
        let world = World::new().held_by("node-1");
        world.configuration(|its| its["spec"]["containerDevices"] = wish)
    };
    let mut none = wants_cam().on("node-1", "Running").pod(|pod| {
        pod["status"]["containerStatuses"] = json!([{
            "name": "main", "ready": true, "restartCount": 0, "image": "", "imageID": "",
            "allocatedResourcesStatus": [{"name": "akri.sh/cam", "resources": [{"resourceID": "cam-0a1b2c-17"}]}],
        }]);
    });
    none.instances.clear();
    none.configurations[0]["spec"]["instances"] = json!(false);
    none.configurations[0]["spec"]["containerDevices"] = json!({"path": "/dev/cam"});
    let case = |title, world, name, says| case_of(title, world, pod(name), Cause::Fine, says);
    run(vec![
        case(
            "its own path alone",
            with(json!({"mode": "0660"})),
            "holder",
            &["akri.sh/cam-0a1b2c (door). Nothing"],
        ),
        case(
            "another path",
            with(json!({"path": "/dev/cam", "links": true})),
            "holder",
            &["akri.sh/cam-0a1b2c (door, also at /dev/cam and at the links of udev). Nothing"],
        ),
        case(
            "a folder",
            with(json!({"path": "/dev/cams/"})),
            "holder",
            &["(door, also in /dev/cams/)"],
        ),
        case(
            "a device without Instance",
            none,
            "web",
            &["akri.sh/cam (slot cam-0a1b2c-17, also at /dev/cam). Nothing"],
        ),
    ]);
}
