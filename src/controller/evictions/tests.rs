use super::*;
use crate::controller::{
    fixtures::{Fake, configuration, instance, node_devices, ready, refusal},
    world::World,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The action of a node that has lost `cam-1`, whose slots containers hold.
fn action(slots: usize) -> Action {
    let usage: BTreeMap<_, _> = (0..slots).map(|n| (format!("cam-1-{n}"), "a")).collect();
    let held = instance(
        "cam-1",
        json!({"spec": {"shared": true, "nodes": ["a"], "deviceUsage": usage}}),
    );
    let gone = json!({"instance": "cam-1", "state": "Left", "gone": true});
    let says = json!([{
        "namespace": "default", "name": "cam", "complete": true, "generation": 1, "devices": [gone],
    }]);
    let world = World::default()
        .with_nodes([("a", ready())])
        .with_configuration(configuration("cam", json!({"spec": {"whenGone": "Evict"}})))
        .with_instance(held)
        .with_node_devices(node_devices("a", says));
    let mut evictions = Evictions::new("akri.sh".parse().unwrap());
    let (mut actions, _) = evictions.plan(&Reported::new(&world), Instant::now());
    assert_eq!(actions.len(), 1, "{actions:?}");
    actions.remove(0)
}

fn pods(names: &[&str]) -> Value {
    let pod = |name: &&str| {
        json!({
            "metadata": {"name": name, "namespace": "other", "uid": format!("uid-{name}")},
            "spec": {"containers": [{"resources": {"limits": {"akri.sh/cam-1": "1"}}}]},
            "status": {"startTime": "2026-01-01T00:00:00Z"},
        })
    };
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": names.iter().map(pod).collect::<Vec<_>>()})
}

/// Carries out the action where the API server lists these Pods and answers evictions with this code. Returns the result and
/// the requests.
async fn acts(names: &'static [&'static str], code: u16) -> (Outcome, Vec<String>) {
    let fake = Fake::new(move |asked| match asked.starts_with("GET") {
        true => (200, pods(names)),
        false if code == 201 => (201, json!({"kind": "Status", "status": "Success"})),
        false => refusal(code),
    });
    let written = act(&fake.shared, &action(names.len().max(1))).await;
    (written.outcome, fake.asked())
}

#[tokio::test]
async fn the_pod_is_evicted_by_its_subresource_and_only_the_pods_of_its_node_are_read() {
    let (outcome, asked) = acts(&["web"], 201).await;
    assert_eq!(outcome, Outcome::Done);
    let [list, eviction] = &asked[..] else {
        panic!("{asked:?}");
    };
    let selector =
        "fieldSelector=spec.nodeName%3Da%2Cstatus.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed";
    assert!(
        list.starts_with("GET /api/v1/pods?") && list.contains(selector),
        "{list}"
    );
    assert_eq!(eviction, "POST /api/v1/namespaces/other/pods/web/eviction");
}

#[tokio::test]
async fn a_disruption_budget_that_refuses_is_asked_again_and_a_pod_that_is_gone_is_not() {
    assert!(acts(&["web"], 429).await.0.is_failed());
    assert!(acts(&["web"], 403).await.0.is_failed());
    assert_eq!(acts(&["web"], 404).await.0, Outcome::Gone);
    assert_eq!(
        acts(&["web"], 409).await.0,
        Outcome::Gone,
        "another Pod of its name"
    );
    let (outcome, asked) = acts(&[], 201).await;
    assert_eq!((outcome, asked.len()), (Outcome::Gone, 1));
}

#[tokio::test]
async fn without_the_list_of_pods_nothing_is_evicted() {
    let fake = Fake::new(|_| refusal(500));
    assert!(act(&fake.shared, &action(1)).await.outcome.is_failed());
    assert_eq!(fake.asked().len(), 1);
    let more = Fake::new(|_| {
        let mut list = pods(&["web"]);
        list["metadata"]["continue"] = json!("next");
        (200, list)
    });
    assert_eq!(act(&more.shared, &action(1)).await.outcome, Outcome::Gone);
    assert_eq!(more.asked().len(), 1);
}

#[tokio::test]
async fn a_pod_that_was_evicted_counts_also_if_another_was_refused() {
    let fake = Fake::new(|asked| match asked {
        list if list.starts_with("GET") => (200, pods(&["web", "kept"])),
        web if web.contains("/web/") => (201, json!({"kind": "Status", "status": "Success"})),
        _ => refusal(429),
    });
    let action = action(2);
    let written = act(&fake.shared, &action).await;
    assert_eq!(
        (written.outcome, fake.asked().len()),
        (Outcome::Partly, 3),
        "{:?}",
        fake.asked()
    );
    let mut evictions = Evictions::new("akri.sh".parse().unwrap());
    let now = Instant::now();
    for (outcome, is_noted) in [
        (Outcome::Gone, false),
        (Outcome::Failed("away".to_owned()), false),
        (Outcome::Partly, true),
    ] {
        evictions.settle(&action, &Written::new(outcome.clone()), now);
        assert_eq!(!evictions.evicted.is_empty(), is_noted, "{outcome:?}");
    }
}
