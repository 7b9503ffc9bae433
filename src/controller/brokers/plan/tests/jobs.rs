//! Jobs, and the change from one kind of broker to another.
use super::*;

#[test]
fn a_job_runs_once_for_each_generation_also_when_it_was_collected() {
    let mut cluster = Cluster::new(job_spec(), &["a", "b"]);
    assert_eq!(cluster.step(), ["create cam-1-1-job"]);
    assert_eq!(cluster.generation_remembered(), Some(1));
    assert_eq!(cluster.step(), NONE);
    cluster.world.jobs.clear();
    assert_eq!(cluster.after(100).step(), NONE);
    cluster.configuration(|_| {});
    assert_eq!(cluster.step(), ["create cam-1-2-job"]);
    cluster.configuration(|_| {});
    assert_eq!(cluster.step(), ["create cam-1-3-job"]);
    let expected = ["delete cam-1-2-job: its Configuration has changed"];
    assert_eq!(cluster.step(), expected);
    assert_eq!(cluster.step(), NONE);
}

#[test]
fn a_new_spec_that_the_api_server_refuses_ends_no_job_or_pod_that_runs() {
    let refused = Outcome::from_status(422, "spec.template.spec.restartPolicy: Required value");
    for (before, after, old, create) in [
        (job_spec(), job_spec(), "cam-1-1-job", "create cam-1-2-job"),
        (pod_spec(), job_spec(), "cam-1-pod", "create cam-1-2-job"),
        (job_spec(), pod_spec(), "cam-1-1-job", "create cam-1-pod"),
    ] {
        let mut cluster = Cluster::new(before, &["a"]);
        cluster.settle();
        cluster.broker_spec(after.clone());
        for _ in 0..3 {
            let actions = cluster.whole_plan().actions;
            assert_eq!(actions.iter().map(words).collect::<Vec<_>>(), [create]);
            cluster
                .memory
                .settle(&actions[0], &refused, cluster.time().instant);
            assert_eq!(cluster.plan(), NONE);
            let (_, reason, message) = cluster.report();
            assert_eq!(reason, "BrokerSpecInvalid");
            assert!(message.contains("restartPolicy"), "{message}");
            cluster.after(60);
        }
        // The user corrects it.
        cluster.broker_spec(after);
        assert!(cluster.step()[0].starts_with("create "));
        let gone = cluster.step();
        assert!(gone[0].starts_with(&format!("delete {old}: ")), "{gone:?}");
        assert_eq!(cluster.step(), NONE);
    }
}

#[test]
fn a_job_waits_for_its_device_and_its_predecessor_stays_until_then() {
    let mut cluster = Cluster::new(job_spec(), &["a"]);
    cluster.health("a", "Unhealthy", "here");
    assert_eq!(cluster.step(), NONE);
    cluster.health("a", "Healthy", "here");
    assert_eq!(cluster.step(), ["create cam-1-1-job"]);
    cluster.health("a", "Unhealthy", "here");
    cluster.configuration(|_| {});
    assert_eq!(cluster.step(), NONE);
}

#[test]
fn a_job_that_is_there_already_is_remembered() {
    let mut cluster = Cluster::new(job_spec(), &["a"]);
    cluster.step();
    cluster.instance(|instance| instance.status.as_mut().unwrap().broker_generation = None);
    assert_eq!(cluster.step(), ["remember 1"]);
    assert_eq!(cluster.step(), NONE);
}

#[test]
fn a_job_whose_creation_was_not_answered_is_tried_again() {
    for outcome in [Outcome::Failed("away".to_owned()), Outcome::Conflict] {
        let mut cluster = Cluster::new(job_spec(), &["a"]);
        let action = cluster.whole_plan().actions.remove(0);
        cluster
            .memory
            .settle(&action, &outcome, cluster.time().instant);
        assert_eq!(cluster.after(1).step(), ["create cam-1-1-job"]);
        cluster.plan();
        cluster.world.jobs.clear();
        assert_eq!(cluster.after(60).step(), NONE);
    }
}

#[test]
fn a_job_that_has_a_device_which_is_gone_for_good_is_deleted_so_that_its_instance_can_go() {
    let mut cluster = Cluster::new(job_spec(), &["a"]);
    assert_eq!(cluster.step(), ["create cam-1-1-job"]);
    let since = cluster.now.to_string();
    let held = |node: &'static str| {
        let since = since.clone();
        move |instance: &mut Instance| {
            instance.spec.nodes.clear();
            let usage = &mut instance.spec.device_usage;
            usage.insert("cam-1-0".to_owned(), node.to_owned());
            let condition = json!({
                "type": "Available", "status": "False", "reason": "DeviceGoneInUse",
                "lastTransitionTime": since,
            });
            let status = instance.status.as_mut().unwrap();
            status.conditions = vec![serde_json::from_value(condition).unwrap()];
        }
    };
    // A node that is away may have the Job's Pod for longer.
    cluster.instance(held("lost"));
    assert_eq!(cluster.after(59).step(), NONE);
    cluster.instance(held("a"));
    assert_eq!(cluster.step(), NONE);
    assert_eq!(
        cluster.wake(),
        Some(cluster.now + SignedDuration::from_secs(1))
    );
    assert_eq!(cluster.after(1).step(), ["remember 0"]);
    let expected = ["delete cam-1-1-job: no node sees its device any more"];
    assert_eq!(cluster.step(), expected);
    assert_eq!(cluster.step(), NONE);
    // The slot of another Pod keeps the Instance, and the device returns.
    cluster.instance(|instance| {
        instance.spec.nodes = vec!["a".into()];
        instance.status.as_mut().unwrap().conditions.clear();
    });
    assert_eq!(cluster.step(), ["create cam-1-1-job"]);
}

#[test]
fn a_switch_between_pod_and_job_and_none_deletes_what_was() {
    let mut cluster = Cluster::new(pod_spec(), &["a"]);
    cluster.settle();
    cluster.broker_spec(job_spec());
    assert_eq!(cluster.step(), ["create cam-1-2-job"]);
    let expected = ["delete cam-1-pod: its Configuration asks for no Pod"];
    assert_eq!(cluster.step(), expected);
    cluster.broker_spec(pod_spec());
    assert_eq!(cluster.step(), ["create cam-1-pod"]);
    let expected = ["delete cam-1-2-job: its Configuration asks for no Job"];
    assert_eq!(cluster.step(), expected);
    cluster.broker_spec(Value::Null);
    let expected = ["delete cam-1-pod: its Configuration asks for no Pod"];
    assert_eq!(cluster.step(), expected);
    assert_eq!(cluster.step(), NONE);
}
