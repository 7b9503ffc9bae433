//! Tests brokers that cannot be created, and the notices about them.
use super::*;
use crate::api::reason::Reason;

#[test]
fn a_refused_pod_is_tried_again_after_a_wait_that_grows_and_the_status_says_why() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    for _ in 0..10 {
        cluster.memory.observe(&cluster.world, cluster.time());
        let plan = cluster.whole_plan();
        assert_eq!(plan.actions.len(), 2);
        for action in &plan.actions {
            let outcome = Outcome::from_status(422, "no such field");
            let notice = cluster
                .memory
                .settle(action, &outcome, cluster.time().instant);
            assert_eq!(notice, None, "the status says it, not each Instance");
        }
        let plan = cluster.whole_plan();
        assert_eq!(plan.actions, []);
        cluster.now = cluster.wake().unwrap();
    }
    let (_, reason, message) = cluster.report();
    assert_eq!(reason, "BrokerSpecInvalid");
    assert!(message.contains("no such field"), "{message}");
    assert!(cluster.now < BEGINNING + SignedDuration::from_mins(20));
    // A user who mends it need not wait.
    cluster.now = BEGINNING;
    assert_eq!(cluster.plan(), NONE);
    cluster.broker_spec(json!({"brokerPodSpec": {"containers": []}}));
    assert_eq!(cluster.plan().len(), 2);
}

#[test]
fn a_new_spec_that_the_api_server_refuses_ends_no_broker_that_runs() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    cluster.settle();
    cluster.broker_spec(json!({"brokerPodSpec": {"containers": [], "comand": "typo"}}));
    cluster.trial = Outcome::from_status(403, "exceeded quota");
    assert_eq!(cluster.step(), ["try cam-1-1-pod"]);
    let (ratio, reason, message) = cluster.report();
    assert_eq!(
        (ratio.as_str(), reason.as_str()),
        ("2/2", "BrokerSpecInvalid")
    );
    assert!(message.contains("exceeded quota"), "{message}");
    cluster.trial = Outcome::from_status(400, "unknown field \"spec.comand\"");
    assert_eq!(cluster.after(60).step(), ["try cam-1-1-pod"]);
    assert_eq!(cluster.plan(), NONE);
    let mut tries = 0;
    for _ in 0..100 {
        tries += cluster.after(60).step().len();
    }
    assert!((10..=30).contains(&tries), "{tries} in 100 minutes");
    assert_eq!(cluster.world.pods.len(), 2);
    let (ratio, reason, message) = cluster.report();
    assert_eq!(
        (ratio.as_str(), reason.as_str()),
        ("2/2", "BrokerSpecInvalid")
    );
    assert!(message.contains("comand"), "{message}");
    // The user corrects it.
    cluster.trial = Outcome::Done;
    cluster.broker_spec(json!({"brokerPodSpec": {"containers": []}}));
    assert_eq!(cluster.step(), ["try cam-1-1-pod"]);
    assert_eq!(cluster.plan().len(), 2);
}

#[test]
fn a_spec_that_others_were_made_of_is_not_refused_as_a_whole() {
    let mut cluster = Cluster::new(pod_spec(), &["a", "b"]);
    let creations = cluster.whole_plan().actions;
    let refused = Outcome::from_status(422, "no such class");
    cluster
        .memory
        .settle(&creations[0], &refused, cluster.time().instant);
    assert_eq!(cluster.report().1, "BrokerSpecInvalid");
    (cluster.memory).settle(&creations[1], &Outcome::Done, cluster.time().instant);
    cluster
        .memory
        .settle(&creations[0], &refused, cluster.time().instant);
    assert_eq!(cluster.report().1, "BrokerRefused");
}

#[test]
fn a_refusal_for_another_reason_is_reported_on_the_instance() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    let action = cluster.whole_plan().actions.remove(0);
    let outcome = Outcome::from_status(403, "exceeded quota");
    let notice = cluster
        .memory
        .settle(&action, &outcome, cluster.time().instant);
    let notice = notice.unwrap();
    assert_eq!((&notice.instance, notice.is_warning), (&key("cam-1"), true));
    assert_eq!(notice.reason, Reason::BrokerRefused);
    let text = "cannot create cam-1-pod: exceeded quota. Next try in 1s";
    assert_eq!(notice.text, text);
    let away = cluster.memory.settle(
        &action,
        &Outcome::from_status(503, "away"),
        cluster.time().instant,
    );
    assert_eq!(away, None);
}

#[test]
fn the_name_of_a_job_that_somebody_else_has_is_reported_after_some_tries() {
    let mut cluster = Cluster::new(job_spec(), &["a"]);
    let action = cluster.whole_plan().actions.remove(0);
    let reported: Vec<_> = (0..4)
        .map(|_| {
            cluster
                .memory
                .settle(&action, &Outcome::Conflict, cluster.time().instant)
                .is_some()
        })
        .collect();
    assert_eq!(reported, [false, false, true, true]);
}

#[test]
fn a_spec_that_nothing_can_be_made_of_is_named_and_what_runs_of_it_goes_on() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    cluster.settle();
    cluster.node("b", true);
    cluster.health("b", "Healthy", "here");
    cluster.instance(|instance| instance.spec.nodes.push("b".into()));
    cluster.broker_spec(json!({"brokerPodSpec": {"containers": 3}}));
    let plan = cluster.whole_plan();
    assert_eq!(plan.actions, []);
    assert_eq!(plan.broken[&key("cam")].1.path, "brokerPodSpec.containers");
}
