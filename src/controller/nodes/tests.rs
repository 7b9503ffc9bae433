use super::*;
use crate::controller::fixtures::{
    Fake, at, configuration, instance, key, node_devices, ready, refusal,
};
use serde_json::{Value, json};

const PATH: &str = "PATCH /apis/akri.sh/v0/namespaces/default/instances/cam-1";

/// Returns what is asked of a server that answers so for a Node that is not in the watched set, and to patches.
async fn asked(node: u16, patched: u16) -> (Vec<String>, bool) {
    let lost = json!({ "spec": { "nodes": ["b"] } });
    let world = World::default()
        .with_configuration(configuration("cam", json!({})))
        .with_instance(instance("cam-1", lost.clone()));
    let fake = Fake::new(
        move |request| match (request.starts_with("GET"), node, patched) {
            (true, 200, _) => (
                200,
                json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "b" } }),
            ),
            (true, code, _) | (false, _, code @ 400..) => refusal(code),
            (false, ..) => {
                let instance = instance("cam-1", lost.clone());
                (200, serde_json::to_value(instance).unwrap())
            }
        },
    );
    let is_done = pass(&fake.shared, &mut Devices::default(), &world).await;
    (fake.asked(), is_done)
}

/// Looks at a world once, and returns whether everything is done.
async fn pass(shared: &Shared, devices: &mut Devices, world: &World) -> bool {
    let now = Now {
        clock: at(0),
        instant: tokio::time::Instant::now(),
    };
    let reported = Reported::new(world);
    devices.memory.notice(&reported, now);
    for node in devices.memory.looks(now.instant) {
        let pods = pods_of(shared, &node).await;
        devices.memory.looked(&node, pods, now.instant);
    }
    let mut is_done = true;
    for action in devices.plan(&reported, now, &mut vec![]).0 {
        let written = act(shared, &action).await;
        devices.settle(&action, &written, now);
        is_done &= matches!(written.outcome, Outcome::Done | Outcome::Gone);
    }
    is_done
}

#[tokio::test]
async fn only_a_node_that_the_server_does_not_have_is_taken_for_deleted() {
    for (node, patched, patches, is_done) in [
        (404, 200, 2, true),
        (404, 404, 1, true),
        (404, 422, 1, false),
        (404, 409, 1, false),
        (200, 200, 0, false),
        (503, 200, 0, false),
    ] {
        let (asked, done) = asked(node, patched).await;
        assert_eq!(asked[0], "GET /api/v1/nodes/b", "{node} {patched}");
        let written = asked.iter().filter(|request| request.starts_with(PATH));
        assert_eq!(
            (written.count(), asked.len()),
            (patches, patches + 1),
            "{asked:?}"
        );
        assert_eq!(done, is_done, "{node} {patched}");
    }
}

/// The passes of a controller over a world in which a deleted node holds a slot, with a server that has these Pods. What
/// is asked, and whether the slots were taken.
async fn passes(
    namespaces: &[&str],
    pods: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static,
) -> (Vec<String>, bool) {
    let held = || {
        let spec = json!({ "nodes": ["a"], "capacity": 1, "deviceUsage": { "cam-1-0": "b" } });
        let labels = json!({ "node.akri.sh/a": "" });
        instance(
            "cam-1",
            json!({ "metadata": { "labels": labels }, "spec": spec }),
        )
    };
    let world = World::default()
        .with_nodes([("a", ready())])
        .with_configuration(configuration("cam", json!({})))
        .with_instance(held());
    let mut fake = Fake::new(move |request| match request {
        _ if request.contains("/pods?") => pods(request),
        _ if request.starts_with("GET") => refusal(404),
        _ => (200, serde_json::to_value(held()).unwrap()),
    });
    fake.shared.settings.watch_namespaces = namespaces.iter().map(|n| (*n).to_owned()).collect();
    pass(&fake.shared, &mut Devices::default(), &world).await;
    let asked = fake.asked();
    let is_taken = asked.iter().any(|request| request.starts_with(PATH));
    (asked, is_taken)
}

fn list(names: &[&str]) -> (u16, Value) {
    let items: Vec<Value> = (names.iter())
        .map(|name| json!({ "metadata": { "name": name } }))
        .collect();
    (
        200,
        json!({ "apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items }),
    )
}

#[tokio::test]
async fn slots_of_a_deleted_node_are_taken_when_the_server_has_no_pod_of_it() {
    let (asked, is_taken) = passes(&[], |_| list(&[])).await;
    assert!(is_taken, "{asked:?}");
    let look = &asked[0];
    assert!(look.starts_with("GET /api/v1/pods?"), "{look}");
    assert!(look.contains("limit=1"), "{look}");
    assert!(look.contains("spec.nodeName%3Db"), "{look}");
    assert!(look.contains("status.phase%21%3DSucceeded"), "{look}");
    // The Node is looked for last: it may have been registered again.
    assert_eq!(asked[1], "GET /api/v1/nodes/b");

    let (asked, is_taken) = passes(&[], |_| list(&["plain"])).await;
    assert!(!is_taken, "{asked:?}");
    let (asked, is_taken) = passes(&[], |_| refusal(503)).await;
    assert!(!is_taken, "{asked:?}");
}

#[tokio::test]
async fn pods_are_looked_for_in_every_namespace_that_is_watched() {
    let in_second = |request: &str| {
        if request.contains("/namespaces/two/") {
            list(&["plain"])
        } else {
            list(&[])
        }
    };
    let (asked, is_taken) = passes(&["one", "two"], in_second).await;
    assert!(!is_taken, "{asked:?}");
    let (asked, is_taken) = passes(&["one", "three"], in_second).await;
    assert!(is_taken, "{asked:?}");
    assert!(
        asked[0].starts_with("GET /api/v1/namespaces/one/pods?"),
        "{asked:?}"
    );
}

/// Returns a world in which `a` reports a device that has no Instance, or none.
fn found(devices: usize) -> World {
    let devices = vec![json!({ "id": "device", "properties": {} }); devices];
    let report = json!({
        "namespace": "default", "name": "cam", "complete": true, "devices": devices,
    });
    World::default()
        .with_nodes([("a", ready())])
        .with_configuration(configuration("cam", json!({})))
        .with_node_devices(node_devices("a", json!([report])))
}

#[tokio::test]
async fn a_server_that_is_busy_refuses_no_instance() {
    for code in [401, 408, 429, 500, 503] {
        let fake = Fake::new(move |_| refusal(code));
        let (mut devices, world) = (Devices::default(), found(2));
        pass(&fake.shared, &mut devices, &world).await;
        assert!(devices.problems(&world).is_empty(), "{code}");
    }
}

#[tokio::test]
async fn what_the_server_refuses_is_told_on_the_configuration_until_it_is_wanted_no_more() {
    let fake = Fake::new(|_| refusal(403));
    let (mut devices, world) = (Devices::default(), found(1));
    pass(&fake.shared, &mut devices, &world).await;
    let problem = devices.problems(&world).remove(&key("cam")).unwrap();
    assert_eq!(problem.reason, Reason::NotCreated);
    assert!(
        problem.message.ends_with(": x (403)"),
        "{}",
        problem.message
    );
    let world = found(0);
    pass(&fake.shared, &mut devices, &world).await;
    assert!(devices.problems(&world).is_empty());
}

#[tokio::test]
async fn an_instance_that_cannot_be_created_is_tried_less_and_less_often() {
    for code in [403, 404, 409, 422, 500] {
        let fake = Fake::new(move |_| refusal(code));
        let made = Box::new(instance("cam-1", json!({})));
        let written = act(&fake.shared, &Action::Create(made)).await;
        assert!(written.outcome.is_failed(), "{code}");
    }
}
