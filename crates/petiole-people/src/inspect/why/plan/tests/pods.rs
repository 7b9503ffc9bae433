//! Pods whose trouble is their own spec, their image, their program, or nothing.
use super::{world::DOOR, *};

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn the_name_of_a_resource_is_compared_with_those_that_are_offered() {
    run(vec![
        Case {
            title: "a typo",
            world: World::new().pending("web", "akri.sh/cma"),
            object: pod("web"),
            cause: Cause::UnknownResource,
            says: &["asks for akri.sh/cma", "The nearest name is akri.sh/cam"],
            next: "kubectl -n default delete pod web",
        },
        Case {
            title: "a typo in a Deployment",
            world: World::new().pending("web", "akri.sh/cma").pod(|pod| {
                pod["metadata"]["labels"] = json!({"pod-template-hash": "5d9c"});
                pod["metadata"]["ownerReferences"] =
                    json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop-5d9c", "uid": ""}]);
            }),
            object: pod("web"),
            cause: Cause::UnknownResource,
            says: &["akri.sh/cam"],
            next: "kubectl -n default edit deployment shop",
        },
        Case {
            title: "another prefix",
            world: World::new().pending("web", "akri.io/cam"),
            object: pod("web"),
            cause: Cause::UnknownResource,
            says: &["asks for akri.io/cam", "The nearest name is akri.sh/cam"],
            next: "delete pod web",
        },
        Case {
            title: "another prefix, and a nearer name that is not meant",
            world: {
                let mut world = World::new().pending("web", "devices.example.org/cam");
                let mut other = world.configurations[0].clone();
                other["metadata"]["name"] = json!("other");
                other["spec"]["resourceName"] = json!("devices.example.org/thermo");
                world.configurations.push(other);
                world
            },
            object: pod("web"),
            cause: Cause::UnknownResource,
            says: &["The nearest name is akri.sh/cam"],
            next: "",
        },
        Case {
            title: "nothing like it",
            world: World::new().pending("web", "akri.sh/thermometer"),
            object: pod("web"),
            cause: Cause::UnknownResource,
            says: &["These are offered: akri.sh/cam."],
            next: "",
        },
        Case {
            title: "the Configuration has a resource name of its own",
            world: wants_cam().configuration(|c| c["spec"]["resourceName"] = json!("akri.sh/cams")),
            object: pod("web"),
            cause: Cause::UnknownResource,
            says: &["The nearest name is akri.sh/cams"],
            next: "",
        },
        Case {
            title: "the Instance was deleted",
            world: World::new().pending("web", "akri.sh/cam-ffffff"),
            object: pod("web"),
            cause: Cause::InstanceDeleted,
            says: &["Ask for akri.sh/cam to get any"],
            next: "kubectl -n default get instances",
        },
        Case {
            title: "no device has the name that a Configuration could give",
            world: (World::new().configuration(|c| c["spec"]["instanceName"] = json!("zigbee-{SERIAL}")))
                .pending("web", "akri.sh/zigbee-hall"),
            object: pod("web"),
            cause: Cause::InstanceDeleted,
            says: &["Configuration default/cam exists, and it has no Instance of that name"],
            next: "kubectl -n default get instances",
        },
        Case {
            title: "more than there are",
            world: wants_cam().pod(|pod| {
                pod["spec"]["containers"][0]["resources"]["limits"]["akri.sh/cam"] = json!("3");
            }),
            object: pod("web"),
            cause: Cause::TooManyRequested,
            says: &["asks for 3 of akri.sh/cam, and there is 1 device. Ask for fewer"],
            next: "",
        },
        Case {
            title: "no resource of ours",
            world: World::new().pending("web", "example.com/gpu"),
            object: pod("web"),
            cause: Cause::NoResourceRequested,
            says: &["gets no device", "The scheduler says: 0/2 nodes"],
            next: "",
        },
        Case {
            title: "a broker without the placeholder",
            world: World::new().pending("web", "cpu").on("node-1", "Running").pod(|pod| {
                pod["metadata"]["labels"] =
                    json!({"akri.sh/configuration": "cam", "akri.sh/instance": DOOR});
            }),
            object: pod("web"),
            cause: Cause::NoResourceRequested,
            says: &["lack \"{{PLACEHOLDER}}\": \"1\""],
            next: "edit configuration cam",
        },
    ]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn a_pod_that_has_its_device_differs_from_one_that_waits_for_something_else() {
    run(vec![
        Case {
            title: "well",
            world: wants_cam().on("node-1", "Running"),
            object: pod("web"),
            cause: Cause::Fine,
            says: &["It has what it asks for: akri.sh/cam. Nothing is missing."],
            next: "",
        },
        Case {
            title: "well, and the Configuration was deleted",
            world: {
                let mut world = wants_cam().on("node-1", "Running");
                world.configurations.clear();
                world.instances.clear();
                world
            },
            object: pod("web"),
            cause: Cause::UnknownResource,
            says: &[
                "It has what it asks for: akri.sh/cam. No Configuration or Instance offers akri.sh/cam any more",
            ],
            next: "kubectl -n default get configurations,instances",
        },
        Case {
            title: "a device is free",
            world: wants_cam(),
            object: pod("web"),
            cause: Cause::OtherReason,
            says: &[
                "the reason is another one",
                "The scheduler says: 0/2 nodes are available",
            ],
            next: "kubectl -n default describe pod web",
        },
        Case {
            title: "the kubelet has not begun with it",
            world: wants_cam().on("node-1", "Pending"),
            object: pod("web"),
            cause: Cause::OtherReason,
            says: &["The kubelet of its node has not admitted it yet"],
            next: "describe pod web",
        },
        Case {
            title: "no container is ready, and none waits",
            world: wants_cam().on("node-1", "Running").pod(|pod| {
                pod["status"]["conditions"] = json!([]);
                pod["status"]["containerStatuses"] =
                    json!([{"name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0}]);
            }),
            object: pod("web"),
            cause: Cause::OtherReason,
            says: &["were given what they ask for, and are not ready"],
            next: "describe pod web",
        },
        Case {
            title: "a volume that is not there",
            world: wants_cam()
                .on("node-1", "Pending")
                .waiting("ContainerCreating", ""),
            object: pod("web"),
            cause: Cause::OtherReason,
            says: &["is being created", "the device is not the reason"],
            next: "describe pod web",
        },
        Case {
            title: "refused at admission",
            world: wants_cam().on("node-1", "Failed").pod(|pod| {
                pod["status"]["reason"] = json!("UnexpectedAdmissionError");
                pod["status"]["message"] = json!("Allocate failed: slot cam-0 is in use");
            }),
            object: pod("web"),
            cause: Cause::AdmissionRefused,
            says: &[
                "Allocate failed: slot cam-0 is in use.",
                "create it once more",
            ],
            next: "kubectl -n default delete pod web",
        },
        Case {
            title: "no image",
            world: wants_cam()
                .on("node-1", "Pending")
                .waiting("ErrImagePull", "not found"),
            object: pod("web"),
            cause: Cause::Image,
            says: &["has no image (ErrImagePull): not found."],
            next: "describe pod web",
        },
        Case {
            title: "a crash",
            world: wants_cam()
                .on("node-1", "Pending")
                .waiting("CrashLoopBackOff", "back-off"),
            object: pod("web"),
            cause: Cause::Crash,
            says: &["exit code 3, 4 restarts"],
            next: "kubectl -n default logs web -c main --previous",
        },
        Case {
            title: "the device moved",
            world: wants_cam().on("node-1", "Pending").waiting(
                "PreStartHookError",
                "reached differently now: delete the Pod",
            ),
            object: pod("web"),
            cause: Cause::StartRefused,
            says: &["is not started again: reached differently now"],
            next: "kubectl -n default delete pod web",
        },
        Case {
            title: "ending on a lost node",
            world: wants_cam().on("node-9", "Running").pod(|pod| {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T10:00:00Z");
            }),
            object: pod("web"),
            cause: Cause::Ending,
            says: &[
                "node node-9, which does not exist, cannot confirm its end",
                "its slots were released",
            ],
            next: "kubectl -n default delete pod web --force",
        },
        Case {
            title: "on a lost node",
            world: wants_cam().on("node-9", "Running"),
            object: pod("web"),
            cause: Cause::NodeNotReady,
            says: &["Node node-9 does not exist, so its containers may or may not run."],
            next: "kubectl get nodes",
        },
        Case {
            title: "not there",
            world: World::new(),
            object: pod("web"),
            cause: Cause::NoSuchObject,
            says: &["Pod default/web does not exist."],
            next: "-A",
        },
    ]);
}

#[test]
fn a_workload_is_explained_by_its_pod_that_waits() {
    let owned = |world: World| {
        world.pod(|pod| {
            pod["metadata"]["labels"] = json!({"pod-template-hash": "5d9c"});
            pod["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop-5d9c", "uid": "",
                "controller": true,
            }]);
        })
    };
    let two = || {
        let one = owned(
            World::new()
                .pending("a", "akri.sh/cam")
                .on("node-1", "Running"),
        );
        owned(one.pending("b", "akri.sh/cma"))
    };
    run(vec![
        Case {
            next: "kubectl -n default edit deployment shop",
            ..case_of(
                "a Deployment",
                two(),
                object(Kind::Deployment, "shop"),
                Cause::UnknownResource,
                &[
                    "Deployment default/shop has 1 of 2 Pods ready. Pod default/b is Pending",
                    "The nearest name is akri.sh/cam",
                ],
            )
        },
        case_of(
            "all is well",
            two().without("b"),
            object(Kind::ReplicaSet, "shop-5d9c"),
            Cause::Fine,
            &["ReplicaSet default/shop-5d9c has 1 of 1 Pod ready. Pod default/a is Running"],
        ),
        case_of(
            "only Pods that have ended",
            owned(wants_cam().on("node-1", "Failed")),
            object(Kind::Deployment, "shop"),
            Cause::Crash,
            &["Deployment default/shop has only Pods that have ended. Pod default/web is Failed"],
        ),
        Case {
            next: "kubectl -n default describe statefulset shop",
            ..case_of(
                "no Pod",
                two(),
                object(Kind::StatefulSet, "shop"),
                Cause::NoResourceRequested,
                &["No Pod of StatefulSet default/shop asks for a device."],
            )
        },
    ]);
}
