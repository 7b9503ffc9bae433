//! A Deployment `shop` whose new Pod `web` waits for the slots of the former ones.
use super::{world::DOOR, *};

/// Makes the Pod that was added last one of a Deployment's ReplicaSet.
fn of(world: World, deployment: &str, hash: &str) -> World {
    world.pod(|pod| {
        pod["metadata"]["labels"] = json!({"pod-template-hash": hash});
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{deployment}-{hash}"), "uid": "",
            "controller": true,
        }]);
    })
}

/// `web` of the ReplicaSet `new` waits, and each slot has a Pod of these ReplicaSets.
fn rollout(holders: &[(&str, &str)]) -> World {
    let mut world = World::new();
    let mut usage = json!({});
    for (n, (deployment, hash)) in holders.iter().enumerate() {
        let id = format!("{DOOR}-{n}");
        let resource = format!("akri.sh/{DOOR}");
        world = world
            .pending(&format!("holder-{n}"), &resource)
            .on("node-1", "Running");
        let ids = json!([{"name": resource, "resources": [{"resourceID": id}]}]);
        world = of(world, deployment, hash).pod(move |pod| {
            pod["status"]["containerStatuses"] = json!([{
                "name": "main", "ready": true, "restartCount": 0, "image": "", "imageID": "",
                "allocatedResourcesStatus": ids,
            }]);
        });
        usage[id] = json!("node-1");
    }
    let world = world.instance(|instance| {
        instance["spec"]["deviceUsage"] = usage;
        instance["spec"]["capacity"] = json!(holders.len());
    });
    of(world.pending("web", "akri.sh/cam"), "shop", "new")
}

/// Changes the last holder.
fn last_holder(mut world: World, change: impl FnOnce(&mut Value)) -> World {
    change(world.pods.iter_mut().rev().nth(1).unwrap());
    world
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn a_rollout_that_waits_for_its_own_former_pods_says_so() {
    const ITSELF: &[&str] = &[
        "in use, by node-1 (Pod default/holder-0)",
        "Its own Deployment shop keeps its former Pods, which have them, until the new one is ready: the rollout waits for itself.",
        "Set strategy.type: Recreate in the Deployment, or maxSurge: 0 and maxUnavailable: 1.",
    ];
    const OTHERS: &[&str] = &["The Pod starts when one is free"];
    let edit = "kubectl -n default edit deployment shop";
    let case = |title, world, says, next| case(title, world, Cause::SlotsTaken, says, next);
    let one = || rollout(&[("shop", "old")]);
    let ends = || {
        let mut world = one();
        for pod in &mut world.pods {
            if pod["metadata"]["name"] == "holder-0" {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T10:00:10Z");
            }
        }
        world
    };
    let shop = object(Kind::Deployment, "shop");
    run(vec![
        case("its former Pod has the slot", one(), ITSELF, edit),
        Case {
            object: shop,
            ..case("the Deployment", one(), ITSELF, edit)
        },
        case(
            "a former one and a new one",
            rollout(&[("shop", "old"), ("shop", "new")]),
            &[
                "by node-1 (Pod default/holder-0), node-1 (Pod default/holder-1). Its own Deployment shop keeps",
            ],
            edit,
        ),
        case("the former one ends", ends(), OTHERS, "edit configuration"),
        case(
            "a new one is not ready yet",
            last_holder(rollout(&[("shop", "old"), ("shop", "new")]), |pod| {
                pod["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]);
            }),
            OTHERS,
            "edit configuration",
        ),
        case(
            "a former one that replaces another waits for a new one",
            last_holder(rollout(&[("shop", "new"), ("shop", "old")]), |pod| {
                pod["metadata"]["creationTimestamp"] = json!("2026-01-01T10:00:00Z");
            }),
            OTHERS,
            "edit configuration",
        ),
        case(
            "it has more replicas than there are slots",
            rollout(&[("shop", "new")]),
            OTHERS,
            "edit configuration",
        ),
        case(
            "another Deployment has a slot",
            rollout(&[("shop", "old"), ("store", "old")]),
            OTHERS,
            "edit configuration",
        ),
        case(
            "it is not known who has it",
            one().without_pods(),
            OTHERS,
            "edit configuration",
        ),
    ]);
}
