//! Sequences that break a loop which plans by a stale view, or lets one part hold up another.
use super::*;
use crate::controller::world::{Meta, OwnedService};
use k8s_openapi::api::core::v1::ServiceSpec;

#[test]
fn an_instance_is_created_once_however_late_its_watch_is() {
    let mut controller = Controller::new(&[("default", "cam")]);
    controller.reports("a", json!([view("default", "cam", 1)]));
    assert_eq!(controller.sends().len(), 1);
    let created = controller.creates(0);
    for _ in 0..20 {
        controller.writes_statuses();
        controller.passes(500);
        assert!(!controller.sends().iter().any(is_of("create")));
    }
    controller.shows(created);
    controller.writes_statuses();
    assert!(!controller.sends().iter().any(is_of("create")));
}

#[test]
fn what_arrives_during_a_write_is_planned_once_the_write_is_answered() {
    let mut controller = Controller::new(&[("default", "cam")]);
    controller.reports("a", json!([view("default", "cam", 1)]));
    controller.sends();
    controller.reports("b", json!([view("default", "cam", 2)]));
    controller.passes(1_000);
    assert_eq!(controller.sends(), [""; 0], "the part waits for its answer");
    controller.creates(0);
    controller.writes_statuses();
    let sent = controller.waiting();
    assert!(sent.iter().any(is_of("change default/cam-")), "{sent:?}");
    assert!(sent.iter().any(is_of("create default/cam-")), "{sent:?}");
}

#[test]
fn an_answer_that_is_late_does_not_undo_a_newer_event() {
    let mut controller = Controller::new(&[("default", "cam")]);
    controller.reports("a", json!([view("default", "cam", 1)]));
    controller.sends();
    let (answer, mut newer) = controller.created(0);
    let mut claimed = Instance::clone(newer.object.as_ref().unwrap());
    let slot = format!("{}-0", newer.key.name);
    claimed.spec.device_usage.insert(slot, "a".to_owned());
    claimed.metadata.resource_version = Some("900".to_owned());
    newer.object = Some(Arc::new(claimed));
    newer.version = 900;
    let key = newer.key.clone();
    controller.shows(newer);
    controller.answers(0, answer);
    let known = &controller.turns.world().instances[&key];
    assert_eq!(known.spec.device_usage.len(), 1);
}

#[test]
fn what_is_deleted_while_its_creation_is_answered_stays_deleted() {
    let mut controller = Controller::new(&[("default", "cam")]);
    controller.reports("a", json!([view("default", "cam", 1)]));
    controller.sends();
    let (answer, created) = controller.created(0);
    let key = created.key.clone();
    controller.shows(created);
    controller.shows(Change {
        key: key.clone(),
        object: None,
        version: 900,
    });
    controller.answers(0, answer);
    assert!(controller.turns.world().instances.is_empty());
}

#[test]
fn an_instance_that_is_made_anew_shows_the_slots_that_containers_have_whoever_reports_first() {
    let mut controller = Controller::new(&[("default", "cam")]);
    for node in ["a", "b"] {
        controller.reports(node, json!([view("default", "cam", 1)]));
    }
    controller.sends();
    let mut claimed = controller.creates(0);
    let (key, name) = (claimed.key.clone(), claimed.key.name.clone());
    let mut instance = Instance::clone(claimed.object.as_ref().unwrap());
    let slots = [("a", 0), ("gone", 1)];
    (instance.spec.device_usage)
        .extend(slots.map(|(node, slot)| (format!("{name}-{slot}"), node.to_owned())));
    instance.spec.capacity = 2;
    instance.metadata.resource_version = Some("900".to_owned());
    (claimed.object, claimed.version) = (Some(Arc::new(instance)), 900);
    controller.shows(claimed);
    controller.reports("a", json!([]));
    controller.shows(Change {
        key,
        object: None,
        version: 901,
    });
    // The same object was written a moment ago.
    controller.passes(1_000);
    controller.writes_statuses();
    let made = controller.open.iter().find_map(|(_, request)| {
        let Request::Device(DeviceAction::Create(made)) = request else {
            return None;
        };
        Some(made.clone())
    });
    let made = made.expect("it is made anew");
    assert_eq!(made.spec.nodes, ["b"]);
    let usage = [(format!("{name}-0"), "a".to_owned())];
    assert_eq!(
        made.spec.device_usage,
        usage.into(),
        "the other node is gone"
    );
    let mut labels = made.metadata.labels.iter().flatten();
    assert!(labels.any(|(label, _)| label.ends_with("/a")), "{made:?}");
}

#[test]
fn a_part_that_is_deleted_while_it_writes_ends_its_turn() {
    let mut controller = Controller::new(&[("default", "cam")]);
    controller.reports("a", json!([view("default", "cam", 1)]));
    controller.sends();
    let (answer, _) = controller.created(0);
    controller.turns.see(News::Configurations(vec![Change {
        key: key("cam"),
        object: None,
        version: 900,
    }]));
    controller.answers(0, answer);
    controller.passes(20);
    let sent = controller.sends();
    assert!(sent.iter().all(is_of("delete default/cam-")), "{sent:?}");
    assert_eq!(sent.len(), 1, "its Instance is an orphan");
}

#[test]
fn a_replica_that_does_not_lead_any_more_sends_nothing_and_takes_answers_in() {
    let mut controller = Controller::new(&[("default", "cam")]);
    controller.reports("a", json!([view("default", "cam", 40)]));
    assert_eq!(controller.sends().len(), SIDE_BY_SIDE);
    controller.turns.lead(false, controller.now);
    for _ in 0..SIDE_BY_SIDE {
        controller.creates(0);
    }
    controller.reports("b", json!([view("default", "cam", 40)]));
    controller.passes(1_000);
    assert_eq!(controller.sends(), [""; 0]);
    assert_eq!(controller.turns.wakes_at(controller.now.instant), None);
    assert_eq!(controller.turns.world().instances.len(), SIDE_BY_SIDE);
    controller.turns.lead(true, controller.now);
    let sent = controller.sends();
    let created = sent.iter().filter(|sent| is_of("create")(sent)).count();
    let changed = sent.iter().filter(|sent| is_of("change")(sent)).count();
    assert_eq!(created + changed, SIDE_BY_SIDE, "{sent:?}");
}

#[test]
fn a_replica_that_leads_again_waits_for_the_answers_of_its_last_term() {
    let mut controller = Controller::new(&[("default", "cam")]);
    controller.reports("a", json!([view("default", "cam", 1)]));
    controller.sends();
    controller.turns.lead(false, controller.now);
    controller.turns.lead(true, controller.now);
    controller.passes(1_000);
    assert_eq!(controller.sends(), [""; 0]);
    controller.creates(0);
    let sent = controller.sends();
    assert!(!sent.iter().any(is_of("create")), "{sent:?}");
}

#[test]
fn a_list_that_is_made_again_while_a_part_waits_is_no_change_by_itself() {
    let mut controller = Controller::new(&[("default", "cam")]);
    controller.reports("a", json!([view("default", "cam", 1)]));
    controller.sends();
    let created = controller.creates(0);
    let again = || Change {
        key: created.key.clone(),
        object: created.object.clone(),
        version: created.version,
    };
    controller.writes_statuses();
    controller.passes(20);
    controller.writes_statuses();
    let before = controller
        .turns
        .queue
        .next(controller.now.instant, |_| true);
    controller.shows(again());
    controller.shows(again());
    let after = controller
        .turns
        .queue
        .next(controller.now.instant, |_| true);
    assert_eq!(before, after);
}

#[test]
fn two_configurations_of_one_name_in_two_namespaces_are_one_part_and_keep_their_devices_apart() {
    let mut controller = Controller::new(&[("default", "cam"), ("other", "cam")]);
    let views = json!([view("default", "cam", 1), view("other", "cam", 2)]);
    controller.reports("a", views);
    let sent = controller.sends();
    let of = |namespace: &str| {
        let words = format!("create {namespace}/cam-");
        sent.iter().filter(|sent| sent.starts_with(&words)).count()
    };
    assert_eq!((of("default"), of("other")), (1, 2), "{sent:?}");
    for _ in 0..3 {
        controller.creates(0);
    }
    controller.writes_statuses();
    assert!(!controller.sends().iter().any(is_of("create")));
}

#[test]
fn a_part_whose_writes_fail_or_hang_holds_up_no_other() {
    let mut controller = Controller::new(&[("default", "cam"), ("default", "tv")]);
    controller.reports("a", json!([view("default", "cam", 40)]));
    controller.writes_statuses();
    assert_eq!(controller.open.len(), SIDE_BY_SIDE, "none is answered");
    controller.passes(20);
    controller.reports("b", json!([view("default", "tv", 1)]));
    let sent = controller.sends();
    assert!(sent.iter().all(is_of("create default/tv-")), "{sent:?}");
    assert_eq!(sent.len(), 1);
}

#[test]
fn what_fails_is_tried_again_less_and_less_often() {
    let mut controller = Controller::new(&[("default", "cam")]);
    controller.reports("a", json!([view("default", "cam", 1)]));
    controller.sends();
    let mut waits = vec![];
    for _ in 0..8 {
        controller.answers(0, Answer::Written(Written::failed("away")));
        controller.writes_statuses();
        let begun = controller.now.instant;
        while controller.open.is_empty() {
            controller.now.instant = controller.turns.wakes_at(controller.now.instant).unwrap();
            controller.writes_statuses();
        }
        waits.push((controller.now.instant - begun).as_millis());
    }
    for (wait, longest) in waits
        .into_iter()
        .zip([500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000])
    {
        assert!(
            (longest * 3 / 4..=longest + 20).contains(&wait),
            "{wait} of {longest}"
        );
    }
}

#[test]
fn a_broker_that_cannot_be_created_is_not_tried_for_each_event_and_others_do_not_wait() {
    let mut controller = Controller::new(&[]);
    let containers = json!({ "brokerPodSpec": { "containers": [{ "name": "a" }] } });
    controller.configures(configuration(
        "cam",
        json!({ "spec": { "brokerSpec": containers } }),
    ));
    let device = |name: &str, version: usize| {
        let slot = format!("{name}-0");
        let usage = json!({ slot: if version.is_multiple_of(2) { "a" } else { "" } });
        shown(instance(
            name,
            json!({
                "metadata": { "resourceVersion": version.to_string(), "labels": { "node.akri.sh/a": "" } },
                "spec": { "nodes": ["a"], "deviceUsage": usage },
            }),
        ))
    };
    let mut tried = vec![];
    for n in 0..100 {
        controller.shows(device("cam-1", 1_000 + n));
        tried.extend(controller.fails());
        controller.passes(20);
    }
    assert!((2..5).contains(&tried.len()), "{tried:?}");
    controller.shows(device("cam-2", 2_000));
    let tried = controller.fails();
    assert_eq!(tried, ["pod default/cam-2-pod"]);
}

#[test]
fn creations_end_when_a_node_reports_meanwhile_and_the_others_need_not_wait() {
    for (also, left) in [(true, 4), (false, 0)] {
        let mut controller = Controller::new(&[("default", "cam")]);
        controller.reports("a", json!([view("default", "cam", 20)]));
        assert_eq!(controller.sends().len(), SIDE_BY_SIDE);
        if also {
            controller.reports("b", json!([view("default", "cam", 20)]));
        }
        for _ in 0..SIDE_BY_SIDE {
            controller.creates(0);
        }
        let sent = controller.sends();
        let on_a = sent.iter().filter(|sent| sent.ends_with(" on a")).count();
        assert_eq!(on_a, 4 - left, "{sent:?}");
        controller.passes(20);
        controller.writes_statuses();
        let waiting = controller.waiting();
        let on_both = waiting.iter().filter(|sent| sent.ends_with(" on a,b"));
        let on_both = on_both.count();
        assert_eq!(on_both, left);
    }
}

#[test]
fn deletions_that_are_not_sent_are_planned_anew_once_something_changes() {
    let mut controller = Controller::new(&[]);
    for n in 0..20 {
        let orphan = json!({ "spec": { "configurationName": "cam", "nodes": ["a"] } });
        controller.shows(shown(instance(&format!("cam-{n}"), orphan)));
    }
    let sent = controller.sends();
    assert!(sent.iter().all(is_of("delete ")), "{sent:?}");
    assert_eq!((sent.len(), controller.waiting().len()), (SIDE_BY_SIDE, 20));
    controller.configures(configuration("cam", json!({})));
    // The watch is faster than the answer.
    let Request::Device(DeviceAction::Delete { key: first, .. }) = controller.open[0].1.clone()
    else {
        unreachable!("they are deletions")
    };
    controller.shows(Change {
        key: first.clone(),
        object: None,
        version: 200,
    });
    controller.answers(0, Answer::Written(Written::new(Outcome::Done)));
    assert_eq!(controller.waiting().len(), SIDE_BY_SIDE - 1);
    let notes: Vec<_> = controller
        .turns
        .take_notes()
        .into_iter()
        .map(|n| n.text)
        .collect();
    let said = format!(
        "Instance {} is deleted: its Configuration was deleted",
        first.name
    );
    assert_eq!(notes, [said]);
    // The answer is faster than the watch.
    let Request::Device(DeviceAction::Delete { key: second, .. }) = controller.open[0].1.clone()
    else {
        unreachable!("they are deletions")
    };
    controller.answers(0, Answer::Written(Written::new(Outcome::Gone)));
    let second = &controller.turns.world().instances[&second];
    assert!(second.metadata.deletion_timestamp.is_some());
}

#[test]
fn a_heartbeat_of_a_node_plans_nothing_and_a_node_that_goes_plans_every_part() {
    let mut controller = Controller::new(&[("default", "cam"), ("default", "tv")]);
    controller.writes_statuses();
    controller.passes(20);
    controller.writes_statuses();
    let node = |state: Option<NodeState>| {
        News::Nodes(vec![Change {
            key: Key::new("", "b"),
            object: state.map(Arc::new),
            version: 2,
        }])
    };
    let due = |controller: &Controller| {
        controller
            .turns
            .queue
            .next(controller.now.instant, |_| true)
    };
    controller.passes(100);
    controller.sends();
    let before = due(&controller);
    controller.turns.see(node(Some(ready())));
    assert_eq!(due(&controller), before);
    controller.turns.see(node(None));
    assert_eq!(due(&controller), Some(controller.now.instant));
}

#[test]
fn a_service_has_its_minute_without_brokers_again_after_this_replica_did_not_lead() {
    let mut controller = Controller::new(&[]);
    let spec = json!({ "spec": { "configurationServiceSpec": { "ports": [] } } });
    controller.configures(configuration("cam", spec));
    let service = OwnedService {
        meta: Meta {
            uid: "u".to_owned(),
            owner: Some("uid-cam".to_owned()),
            ..Meta::default()
        },
        spec: ServiceSpec::default(),
    };
    controller.turns.see(News::Services(vec![Change {
        key: Key::new("default", "cam-svc"),
        object: Some(Arc::new(service)),
        version: 1,
    }]));
    controller.fails();
    let now = controller.now;
    controller.turns.lead(false, now);
    controller.passes(61_000);
    controller.turns.lead(true, controller.now);
    let sent = controller.sends();
    assert!(!sent.iter().any(is_of("Delete")), "{sent:?}");
    controller.fails();
    controller.passes(61_000);
    let sent = controller.sends();
    assert!(sent.iter().any(is_of("Delete")), "{sent:?}");
}
