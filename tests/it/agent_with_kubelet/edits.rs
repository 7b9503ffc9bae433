//! Tests of Configurations that are edited, deleted or rejected while their devices are in use.
use super::*;

#[tokio::test]
async fn an_edited_capacity_takes_effect() {
    let (node, door) = TestNode::with_a_camera("capacity: 1", 1).await;
    let created = node.instance(&door).await.metadata.creation_timestamp;
    for capacity in [3, 2] {
        node.configure("cam", &format!("capacity: {capacity}"));
        node.until_counts(&door, capacity, capacity).await;
    }
    assert_eq!(
        node.instance(&door).await.metadata.creation_timestamp,
        created
    );
    assert_eq!(node.devices.runs("cam"), 1, "its discovery went on");
}

#[tokio::test]
async fn a_capacity_below_what_is_in_use_takes_nothing_from_a_container() {
    let (node, door) = TestNode::with_a_camera("capacity: 2", 2).await;
    for pod in ["one", "two"] {
        node.run_pod(pod, &[(&format!("akri.sh/{door}"), 1)]);
        node.pid(pod).await;
    }
    node.configure("cam", "capacity: 1");
    node.until_counts(&door, 2, 1).await;
    assert_eq!(node.usage(&door).len(), 2);
    assert_eq!(node.restarts("one").await, Some(0));
    assert_eq!(node.restarts("two").await, Some(0));
}

#[tokio::test]
async fn edited_broker_properties_reach_the_instance_and_the_next_container() {
    let (node, door) =
        TestNode::with_a_camera("capacity: 2, brokerProperties: {MODE: slow}", 2).await;
    node.run_pod("before", &[(&format!("akri.sh/{door}"), 1)]);
    assert_eq!(node.env("before").await["MODE"], "slow");
    node.configure("cam", "capacity: 2, brokerProperties: {MODE: fast}");
    node.until("the Instance says so", async || {
        let instance = node.instances().remove(&door)?;
        (instance.spec.broker_properties["MODE"] == "fast").then_some(())
    })
    .await;
    node.run_pod("after", &[(&format!("akri.sh/{door}"), 1)]);
    assert_eq!(node.env("after").await["MODE"], "fast");
    assert_eq!(node.restarts("before").await, Some(0));
}

#[tokio::test]
async fn edited_details_begin_another_discovery() {
    let node = TestNode::started();
    node.devices.see("old", [device("door"), device("yard")]);
    node.devices.see("new", [device("yard"), device("roof")]);
    let [door, yard, roof] = ["door", "yard", "roof"].map(|id| instance_name("cam", id));
    node.configure_with("cam", "old", "gracePeriodSeconds: 1");
    node.until_counts(&door, 1, 1).await;
    let created = node.instance(&yard).await.metadata.creation_timestamp;
    node.configure_with("cam", "new", "gracePeriodSeconds: 1");
    node.until_counts(&roof, 1, 1).await;
    node.until_no_instance(&door).await;
    assert_eq!(
        node.instance(&yard).await.metadata.creation_timestamp,
        created
    );
}

#[tokio::test]
async fn what_a_deleted_configuration_had_goes_at_once() {
    let node = TestNode::started();
    node.configure("cam", "gracePeriodSeconds: 600");
    node.configure("mic", "gracePeriodSeconds: 600");
    node.devices.see("cam", [device("door"), device("yard")]);
    node.devices.see("mic", [device("ear")]);
    let ear = instance_name("mic", "ear");
    node.until_counts(&ear, 1, 1).await;
    node.until_counts("cam", 2, 2).await;
    node.remove_manifest("cam.yaml");
    node.until("only mic's are there", async || {
        let names: Vec<_> = node.instances().into_keys().collect();
        (names == [ear.clone()] && node.sockets().len() == 2).then_some(())
    })
    .await;
    node.until("the capacity entry goes", async || {
        node.counts("cam").await.is_none().then_some(())
    })
    .await;
    assert_eq!(node.counts(&ear).await, Some((1, 1)));
    assert_eq!(
        node.devices.runs("mic"),
        1,
        "the other discovery was not disturbed"
    );
}

#[tokio::test]
async fn a_refused_configuration_says_why_and_the_others_go_on() {
    let node = TestNode::started();
    node.configure("cam", "capacity: 1");
    node.configure_with("bad", "refused", "capacity: 1");
    node.devices.see("cam", [device("door")]);
    node.until_counts(&instance_name("cam", "door"), 1, 1).await;
    node.until_error("bad.yaml", "\"refused\" is no test").await;
    assert_eq!(node.error_of("cam.yaml"), None);
    node.configure("bad", "capacity: 1");
    node.until("it is used now", async || {
        node.error_of("bad.yaml").is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn variables_that_programs_obey_reach_no_container_and_are_named() {
    let node = TestNode::started();
    let door = with(device("door"), &[("LD_PRELOAD", "/evil.so")]);
    node.devices.see("cam", [door]);
    node.configure(
        "cam",
        "capacity: 2, brokerProperties: {NODE_OPTIONS: --require=/evil.js, 'PATH=/evil': x, MODE: night}",
    );
    let door = instance_name("cam", "door");
    node.until_counts(&door, 2, 2).await;
    let error = node.until_error("cam.yaml", "VariableRefused").await;
    for part in ["NODE_OPTIONS", "PATH=/evil", "--allow-variables"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    node.until_error(
        "cam.yaml",
        "device \"door\": its properties [\"LD_PRELOAD\"]",
    )
    .await;

    node.run_pod("broker", &[(&format!("akri.sh/{door}"), 1)]);
    let env = node.env("broker").await;
    assert_eq!((&*env["MODE"], &*env["PAGES"]), ("night", "1"));
    let evil: Vec<_> = (env.iter())
        .filter(|(key, value)| key.contains("evil") || value.contains("evil"))
        .collect();
    assert!(evil.is_empty(), "{evil:?}");
    let stored = node.instance(&door).await.spec.broker_properties;
    assert!(
        stored.values().all(|value| !value.contains("evil")),
        "{stored:?}"
    );
}
