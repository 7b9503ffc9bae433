//! Tests of the inventory and the plan together: sequences of events, and properties.
use super::{
    inventory::{Claim, Endpoint, Holder, Inventory},
    plan::{Choice, Refusal, Request, Reuse, choose},
};
use petiole_kubelet_api::device_plugin::{
    ContainerAllocateResponse, Device, DevicePluginOptions, HEALTHY, UNHEALTHY,
};
use proptest::prelude::*;
use std::{collections::BTreeSet, time::Duration};

const CAM: &str = "akri.sh/cam";
const SECOND: Duration = Duration::from_secs(1);

fn endpoint(generation: u64, prefers: bool) -> Endpoint<u64> {
    Endpoint {
        socket: format!("cam-{generation}.sock").into(),
        generation,
        client: Some(generation),
        options: Some(DevicePluginOptions {
            pre_start_required: false,
            get_preferred_allocation_available: prefers,
        }),
        stopped: None,
    }
}

fn device(id: &str, healthy: bool) -> Device {
    Device {
        id: id.to_owned(),
        health: if healthy { HEALTHY } else { UNHEALTHY }.to_owned(),
        topology: None,
    }
}

fn cam(healthy: &[&str], unhealthy: &[&str]) -> Inventory<u64> {
    let mut inventory = Inventory::default();
    inventory.connect(CAM, endpoint(1, false)).unwrap();
    let listed = healthy.iter().map(|id| device(id, true));
    let listed = listed.chain(unhealthy.iter().map(|id| device(id, false)));
    inventory.list(CAM, 1, listed.collect());
    inventory
}

fn holder(pod: &str) -> Holder {
    Holder {
        pod_uid: pod.to_owned(),
        container: "c".to_owned(),
    }
}

fn ids(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

fn request<'a>(holder: &'a Holder, quantity: usize, reuse: &'a Reuse) -> Request<'a> {
    Request {
        resource: CAM,
        quantity,
        holder,
        reuse,
        had_devices_at_start: false,
    }
}

fn ask(inventory: &Inventory<u64>, pod: &str, quantity: usize) -> Result<Choice, Refusal> {
    choose(
        inventory,
        &request(&holder(pod), quantity, &Reuse::default()),
        None,
    )
}

fn counts(inventory: &Inventory<u64>) -> Option<(usize, usize)> {
    let resource = inventory.resource(CAM).filter(|r| r.is_listed())?;
    let count = resource.count();
    Some((count.capacity, count.allocatable))
}

#[test]
fn a_resource_counts_from_its_first_list_until_its_grace_is_over() {
    let mut inventory = Inventory::default();
    inventory.connect(CAM, endpoint(1, false)).unwrap();
    assert_eq!(counts(&inventory), None);
    inventory.list(CAM, 1, vec![device("a", true), device("b", false)]);
    assert_eq!(counts(&inventory), Some((2, 1)));

    assert!(inventory.disconnect(CAM, 1, SECOND, "EOF"));
    assert_eq!(counts(&inventory), Some((2, 0)));
    assert_eq!(inventory.next_expiry(SECOND * 300), Some(SECOND * 301));
    assert!(inventory.expire(SECOND * 300, SECOND * 300).is_empty());
    assert_eq!(inventory.expire(SECOND * 301, SECOND * 300), [CAM]);
    assert!(inventory.resources().is_empty());
}

#[test]
fn a_stream_that_ends_before_its_first_list_leaves_zero_of_zero() {
    let mut inventory = Inventory::default();
    inventory.connect(CAM, endpoint(1, false)).unwrap();
    inventory.disconnect(CAM, 1, SECOND, "EOF");
    assert_eq!(counts(&inventory), Some((0, 0)));
}

/// Returns the generations of the plugins that are connected, the one that answers last.
fn connected(inventory: &Inventory<u64>) -> Vec<u64> {
    let endpoints = inventory.resource(CAM).unwrap().endpoints().iter();
    endpoints.filter_map(|endpoint| endpoint.client).collect()
}

#[test]
fn the_newest_of_several_plugins_answers_and_the_list_that_came_last_counts() {
    let mut inventory = cam(&["a"], &[]);
    inventory.connect(CAM, endpoint(2, false)).unwrap();
    assert_eq!(connected(&inventory), [1, 2]);
    assert_eq!(counts(&inventory), Some((1, 1)));
    assert!(inventory.list(CAM, 2, vec![device("a", true), device("b", true)]));
    assert_eq!(counts(&inventory), Some((2, 2)));
    assert!(inventory.list(CAM, 1, vec![device("a", false)]));
    assert_eq!(counts(&inventory), Some((1, 0)));
}

#[test]
fn devices_stay_healthy_until_the_last_of_several_plugins_has_gone() {
    for (first, second) in [(1, 2), (2, 1)] {
        let mut inventory = cam(&["a"], &[]);
        inventory.connect(CAM, endpoint(2, false)).unwrap();
        assert!(inventory.disconnect(CAM, first, SECOND, "EOF"));
        assert_eq!(connected(&inventory), [second]);
        assert_eq!(counts(&inventory), Some((1, 1)));
        assert!(!inventory.list(CAM, first, vec![]), "it has gone");
        assert!(!inventory.disconnect(CAM, first, SECOND, "EOF"));
        assert_eq!(inventory.next_expiry(SECOND), None);

        assert!(inventory.disconnect(CAM, second, SECOND, "EOF"));
        assert_eq!(connected(&inventory), [0; 0]);
        assert_eq!(counts(&inventory), Some((1, 0)));
        assert_eq!(inventory.next_expiry(SECOND), Some(SECOND * 2));
    }
}

#[test]
fn a_socket_is_refused_while_its_plugin_is_connected_and_not_afterwards() {
    let mut inventory = cam(&["a"], &[]);
    let same = || Endpoint {
        socket: endpoint(1, false).socket,
        ..endpoint(2, false)
    };
    let refusal = inventory.connect(CAM, same()).unwrap_err().to_string();
    assert_eq!(refusal, "device plugin already connected: cam-1.sock");
    assert_eq!(connected(&inventory), [1]);
    inventory.connect("akri.sh/mic", same()).unwrap();

    inventory.disconnect(CAM, 1, SECOND, "EOF");
    inventory.connect(CAM, same()).unwrap();
    assert_eq!(connected(&inventory), [2]);
}

#[test]
fn a_registration_within_the_grace_is_live_at_once() {
    let mut inventory = cam(&["a"], &[]);
    inventory.hold(CAM, &holder("p"), &ids(&["a"]));
    inventory.disconnect(CAM, 1, SECOND, "EOF");
    inventory.connect(CAM, endpoint(2, false)).unwrap();
    inventory.list(CAM, 2, vec![device("a", true)]);
    assert_eq!(counts(&inventory), Some((1, 1)));
    assert_eq!(inventory.next_expiry(SECOND), None);
    assert_eq!(ask(&inventory, "p", 1), Ok(Choice::Nothing));
}

#[test]
fn a_dead_plugin_keeps_the_health_it_reported() {
    let mut inventory = cam(&["a"], &["b"]);
    inventory.disconnect(CAM, 1, SECOND, "EOF");
    assert!(inventory.is_reported_healthy(CAM, "a"));
    assert!(!inventory.is_reported_healthy(CAM, "b"));
    assert!(inventory.is_reported_healthy(CAM, "not listed"));
}

#[test]
fn what_is_held_keeps_its_health_beyond_the_grace_and_counts_no_more() {
    let mut inventory = cam(&["a", "b"], &[]);
    inventory.hold(CAM, &holder("p"), &ids(&["a"]));
    inventory.list(CAM, 1, vec![device("a", false), device("b", true)]);
    inventory.disconnect(CAM, 1, SECOND, "EOF");
    assert_eq!(inventory.expire(SECOND * 2, SECOND), [CAM]);
    assert!(!inventory.is_reported_healthy(CAM, "a"));
    assert_eq!(counts(&inventory), None);
    // The plugin is back and has not listed its devices yet.
    inventory.connect(CAM, endpoint(2, false)).unwrap();
    let count = inventory.resource(CAM).unwrap().count();
    assert_eq!((count.capacity, count.allocatable), (0, 0));
    // They do not count either if the plugin stops before its first list.
    let mut ended = inventory.clone();
    ended.disconnect(CAM, 2, SECOND, "EOF");
    let count = ended.resource(CAM).unwrap().count();
    assert_eq!((count.capacity, count.allocatable), (0, 0));
    inventory.list(CAM, 2, vec![device("b", true)]);
    assert!(inventory.is_reported_healthy(CAM, "a"));

    inventory.disconnect(CAM, 2, SECOND, "EOF");
    inventory.expire(SECOND * 2, SECOND);
    inventory.retain_pods(|_| false);
    assert!(inventory.resources().is_empty());
}

#[test]
fn refusals_have_the_kubelets_texts() {
    let mut held = cam(&["a", "b"], &[]);
    held.hold(CAM, &holder("p"), &ids(&["a"]));
    let mut sick = held.clone();
    sick.list(CAM, 1, vec![device("a", false), device("b", true)]);
    let mut gone = held.clone();
    gone.disconnect(CAM, 1, SECOND, "EOF");
    let mut expired = gone.clone();
    expired.expire(SECOND * 2, SECOND);
    let cases = [
        (
            &held,
            2,
            r#"pod "p" container "c" changed request for resource "akri.sh/cam" from 1 to 2"#,
        ),
        (
            &sick,
            1,
            "previously allocated devices are no longer healthy; cannot allocate unhealthy devices akri.sh/cam",
        ),
        (
            &gone,
            1,
            "no healthy devices present; cannot allocate unhealthy devices akri.sh/cam",
        ),
        (
            &expired,
            1,
            "cannot allocate unregistered device akri.sh/cam",
        ),
    ];
    for (inventory, quantity, want) in cases {
        assert_eq!(ask(inventory, "p", quantity).unwrap_err().to_string(), want);
    }
    assert_eq!(
        ask(&held, "q", 2).unwrap_err().to_string(),
        "requested number of devices unavailable for akri.sh/cam. Requested: 2, Available: 1"
    );
}

#[test]
fn what_the_container_has_already_needs_no_call() {
    let mut inventory = cam(&["a", "b"], &[]);
    inventory.hold(CAM, &holder("p"), &ids(&["a"]));
    assert_eq!(ask(&inventory, "p", 1), Ok(Choice::Nothing));
    assert_eq!(ask(&inventory, "q", 0), Ok(Choice::Nothing));
    assert_eq!(ask(&Inventory::default(), "p", 1), Ok(Choice::Nothing));
    inventory.disconnect(CAM, 1, SECOND, "EOF");
    let (holder, reuse) = (holder("p"), Reuse::default());
    let at_start = Request {
        had_devices_at_start: true,
        ..request(&holder, 1, &reuse)
    };
    assert_eq!(choose(&inventory, &at_start, None), Ok(Choice::Nothing));
}

#[test]
fn preferences_fill_what_reuse_leaves_and_the_rest_goes_by_id() {
    let mut inventory = cam(&["a", "b", "c", "d"], &["x"]);
    inventory.connect(CAM, endpoint(2, true)).unwrap();
    inventory.hold(CAM, &holder("init"), &ids(&["b"]));
    let reuse = Reuse {
        from: vec![holder("init")],
        kept_by: vec![],
    };
    let holder = holder("p");
    let request = request(&holder, 3, &reuse);
    let asked = Choice::AskPreferred {
        available: ids(&["a", "b", "c", "d"]),
        must_include: ids(&["b"]),
    };
    assert_eq!(choose(&inventory, &request, None), Ok(asked));
    let preferred = ["x", "d", "unknown"].map(str::to_owned);
    assert_eq!(
        choose(&inventory, &request, Some(&preferred)),
        Ok(Choice::Take(ids(&["a", "b", "d"])))
    );
    assert_eq!(
        choose(&inventory, &request, Some(&[])),
        Ok(Choice::Take(ids(&["a", "b", "c"])))
    );
}

#[test]
fn what_one_container_has_taken_over_the_next_does_not() {
    let mut inventory = cam(&["a", "b", "c"], &[]);
    inventory.hold(CAM, &holder("init"), &ids(&["a", "b"]));
    let reuse = Reuse {
        from: vec![holder("init")],
        kept_by: vec![holder("main-1"), holder("main-2")],
    };
    let take = |inventory: &Inventory<u64>, main: &str| {
        choose(inventory, &request(&holder(main), 1, &reuse), None)
    };
    assert_eq!(take(&inventory, "main-1"), Ok(Choice::Take(ids(&["a"]))));
    inventory.hold(CAM, &holder("main-1"), &ids(&["a"]));
    assert_eq!(take(&inventory, "main-2"), Ok(Choice::Take(ids(&["b"]))));
    inventory.hold(CAM, &holder("main-2"), &ids(&["b"]));
    assert_eq!(take(&inventory, "main-3"), Ok(Choice::Take(ids(&["c"]))));
}

#[derive(Debug, Clone)]
enum Step {
    List(BTreeSet<String>, BTreeSet<String>),
    Ask {
        pod: u8,
        quantity: usize,
        answered: bool,
    },
    End(u8),
    /// The oldest plugin that is connected, or the newest.
    Die {
        oldest: bool,
    },
    Register,
}

fn step() -> impl Strategy<Value = Step> {
    let some_ids = || prop::collection::btree_set("[a-f]", 0..6);
    prop_oneof![
        2 => (some_ids(), some_ids()).prop_map(|(healthy, other)| Step::List(healthy, other)),
        4 => (0..5u8, 0..4usize, any::<bool>())
            .prop_map(|(pod, quantity, answered)| Step::Ask { pod, quantity, answered }),
        2 => (0..5u8).prop_map(Step::End),
        2 => any::<bool>().prop_map(|oldest| Step::Die { oldest }),
        1 => Just(Step::Register),
    ]
}

proptest! {
    #[test]
    fn no_device_has_two_holders_and_what_is_taken_is_healthy(steps in prop::collection::vec(step(), 0..40)) {
        let mut inventory = cam(&["a", "b", "c"], &[]);
        let mut generation = 1;
        for step in steps {
            match step {
                Step::List(healthy, other) => {
                    let other = other.difference(&healthy).map(|id| device(id, false));
                    let all: Vec<_> = healthy.iter().map(|id| device(id, true)).chain(other).collect();
                    let listed = (all.len(), healthy.len());
                    inventory.list(CAM, generation, all);
                    let lives = connected(&inventory).contains(&generation);
                    prop_assert!(!lives || counts(&inventory) == Some(listed));
                }
                Step::Ask { pod, quantity, answered } => {
                    let holder = holder(&pod.to_string());
                    let before = inventory.resource(CAM).unwrap().clone();
                    if let Ok(Choice::Take(taken)) = ask(&inventory, &pod.to_string(), quantity) {
                        prop_assert_eq!(taken.len(), quantity);
                        prop_assert!(taken.is_subset(&before.healthy()));
                        prop_assert!(taken.is_disjoint(&before.held()));
                        inventory.hold(CAM, &holder, &taken);
                        if answered {
                            inventory.answer(CAM, &holder, ContainerAllocateResponse::default());
                        } else {
                            inventory.roll_back(CAM, &holder);
                            prop_assert_eq!(inventory.resource(CAM).unwrap().holders(), before.holders());
                        }
                    }
                }
                Step::End(pod) => {
                    inventory.retain_pods(|uid| uid != pod.to_string());
                }
                Step::Die { oldest } => {
                    let (before, plugins) = (counts(&inventory), connected(&inventory));
                    let dies = if oldest { plugins.first() } else { plugins.last() };
                    prop_assert_eq!(dies.is_some_and(|dies| inventory.disconnect(CAM, *dies, SECOND, "EOF")), dies.is_some());
                    let left = if plugins.len() > 1 { before } else { before.map(|(capacity, _)| (capacity, 0)) };
                    prop_assert_eq!(counts(&inventory), left);
                }
                Step::Register => {
                    generation += 1;
                    inventory.connect(CAM, endpoint(generation, false)).unwrap();
                }
            }
            let resource = inventory.resource(CAM).unwrap();
            let held: usize = resource.holders().values().map(|claim: &Claim| claim.device_ids().len()).sum();
            prop_assert_eq!(held, resource.held().len());
        }
    }
}
