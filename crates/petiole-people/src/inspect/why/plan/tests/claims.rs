//! A Configuration whose devices the scheduler gives out by ResourceClaims.
use super::{world::DOOR, *};
use crate::inspect::devices::devices;

/// Returns a world in which the scheduler gives out `cam`, and the Pod `web` has a claim that waits.
fn given_out() -> World {
    let mut world = World::new().configuration(|c| c["spec"]["allocation"] = json!("DRA"));
    for node in &mut world.nodes {
        for part in ["capacity", "allocatable"] {
            node["status"][part] = json!({"akri.sh/cam": "0"});
        }
    }
    world.pods.push(json!({
        "metadata": {"namespace": "default", "name": "web", "uid": "u-web"},
        "spec": {
            "containers": [{"name": "main", "resources": {"claims": [{"name": "camera"}]}}],
            "resourceClaims": [{"name": "camera", "resourceClaimTemplateName": "camera"}],
        },
        "status": {"phase": "Pending", "conditions": [{
            "type": "PodScheduled", "status": "False",
            "message": "0/2 nodes are available: 2 cannot allocate all claims. still not schedulable, preemption: 0/2",
        }]},
    }));
    world.claims.push(claim("web", json!({})));
    world
}

/// Returns the claim that was made for a Pod.
fn claim(of_pod: &str, status: Value) -> Value {
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": of_pod, "uid": format!("u-{of_pod}"), "controller": true});
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {
            "namespace": "default", "name": format!("{of_pod}-camera-x"), "uid": format!("c-{of_pod}"),
            "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": "akri.default.cam"}}]}},
        "status": status,
    })
}

/// Lets the Pod `holder` have the only slot by a claim.
fn held(mut world: World) -> World {
    let slot = format!("{DOOR}-0");
    let reserved =
        json!({"reservedFor": [{"resource": "pods", "name": "holder", "uid": "u-holder"}]});
    world.claims.push(claim("holder", reserved));
    world.instance(|instance| {
        instance["spec"]["deviceUsage"] = json!({slot: "claim:c-holder:node-1"});
    })
}

/// No node sees the other device any more.
fn with_a_gone_one(mut world: World) -> World {
    let mut other = world.instances[0].clone();
    other["metadata"]["name"] = json!("cam-3d4e5f");
    other["metadata"]["annotations"] = json!({"akri.sh/device-id": "lamp"});
    other["spec"]["nodes"] = json!([]);
    other["status"] = json!({"conditions": [{
        "type": "Available", "status": "False", "reason": "", "message": "", "lastTransitionTime": "",
    }]});
    world.instances.push(other);
    world
}

fn without_claim(mut world: World) -> World {
    world.claims.clear();
    world
}

/// The agents refuse the Configuration, because the chart has no DRA.
fn refused(world: World) -> World {
    world.configuration(|its| {
        its["status"] = json!({"conditions": [{
            "type": "Ready", "status": "False", "reason": "BadSpec", "lastTransitionTime": "",
            "message": "allocation is DRA, and the agents prepare no ResourceClaims: set dra.enabled of the chart",
        }]});
    })
}

#[test]
fn a_pod_that_waits_for_its_claim_is_told_who_has_the_device_or_what_the_scheduler_says() {
    let elsewhere = given_out().pod(|pod| {
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "node-3"});
    });
    run(vec![
        case(
            "a Pod has it",
            held(given_out()),
            Cause::SlotsTaken,
            &[
                "The only slot of akri.sh/cam is in use, by node-1 (Pod default/holder).",
                "as soon as a holder has ended",
            ],
            "kubectl -n default edit configuration cam",
        ),
        case(
            "the selector fits no device",
            given_out(),
            Cause::NotAllocated,
            &[
                "The scheduler has given it no device by web-camera-x yet. Of class akri.default.cam is free: cam-0a1b2c.",
                "the selectors of the claim leave it out",
                "2 cannot allocate all claims.",
            ],
            "kubectl -n default get resourceclaim web-camera-x -o yaml",
        ),
        case(
            "there is none",
            given_out().without_device(),
            Cause::NoDevice,
            &["finds no device"],
            "",
        ),
        case(
            "the Pod may run on no node",
            elsewhere,
            Cause::NoNodeMatches,
            &["matches no Node"],
            "",
        ),
        case_of(
            "a Pod asks for one device by a resource",
            given_out().pending("by-name", &format!("akri.sh/{DOOR}")),
            pod("by-name"),
            Cause::UnknownResource,
            &["Ask for akri.sh/cam", "class akri.default.cam"],
        ),
        case_of(
            "a Pod asks for any by the resource",
            held(given_out().pending("by-resource", "akri.sh/cam")),
            pod("by-resource"),
            Cause::SlotsTaken,
            &["Pod default/holder"],
        ),
    ]);
}

#[test]
fn a_device_that_is_gone_is_not_said_to_be_free() {
    run(vec![case(
        "another device is gone",
        with_a_gone_one(given_out()),
        Cause::NotAllocated,
        &["Of class akri.default.cam is free: cam-0a1b2c. If one"],
        "",
    )]);
}

#[test]
fn a_pod_without_a_claim_and_one_whose_claim_nobody_takes_back_say_so() {
    run(vec![
        case(
            "its template is missing",
            without_claim(given_out()),
            Cause::NoResourceRequested,
            &[
                "It asks for devices by ResourceClaims (template camera): none is known to be for devices of Petiole.",
                "If a claim or its template is missing, the Events of the Pod say so.",
            ],
            "kubectl -n default describe pod web",
        ),
        case(
            "the agents prepare no claims any more",
            refused(given_out()).on("node-1", "Running").pod(|pod| {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T10:00:10Z");
            }),
            Cause::ConfigurationProblem,
            &[
                "It is being deleted, and cannot end before its node's agent unprepares its claim.",
                "set dra.enabled of the chart",
            ],
            "",
        ),
    ]);
}

#[test]
fn a_pod_whose_claim_is_not_prepared_is_told_why_and_one_that_runs_what_it_has() {
    let starting = given_out().on("node-1", "Pending");
    let starting = starting.waiting("ContainerCreating", "").event(
        "Pod",
        "web",
        (
            "FailedPrepareDynamicResources",
            "device cam-0a1b2c has no Instance any more",
        ),
    );
    let mut running = given_out().on("node-1", "Running");
    let reserved = json!({"reservedFor": [{"resource": "pods", "name": "web", "uid": "u-web"}]});
    running.claims = vec![claim("web", reserved)];
    let slot = format!("{DOOR}-0");
    let running = running.instance(|instance| {
        instance["spec"]["deviceUsage"] = json!({slot: "claim:c-web:node-1"});
    });
    let listed = devices(&running.snapshot(), World::now()).remove(0);
    assert_eq!(listed.cells()[3], "default/web on node-1");
    assert_eq!(listed.resource, "akri.sh/cam");
    run(vec![
        case(
            "not prepared",
            starting,
            Cause::StartRefused,
            &[
                "cannot prepare its claims, and tries again: device cam-0a1b2c has no Instance any more.",
            ],
            "describe pod web",
        ),
        case(
            "it runs",
            running,
            Cause::Fine,
            &["It has what it asks for: akri.sh/cam (door)."],
            "",
        ),
        case_of(
            "the device",
            held(given_out()),
            instance(DOOR),
            Cause::Fine,
            &[
                "as a device of class akri.default.cam, and 1 of 1 slot is in use, by node-1 (Pod default/holder)",
            ],
        ),
        case_of(
            "the Configuration",
            given_out(),
            configuration("cam"),
            Cause::Fine,
            &[
                "offered as akri.sh/cam, and by claims of class akri.default.cam; the scheduler gives them out",
            ],
        ),
    ]);
}
