//! Tests that slots match the containers of the node, whatever happens to their Instances.
use super::*;
use petiole::{
    api::{instance::Instance, reason::Reason},
    model::instance_name::InstanceKey,
    store::About,
};
use petiole_kubelet_api::checkpoint::{self, Data, Entry};

/// The interval between two looks. It is short, so that a slot without a holder is released soon.
const BETWEEN_LOOKS: Duration = Duration::from_millis(300);
/// A time in which a slot would have been released several times.
const MANY_LOOKS: Duration = Duration::from_millis(2000);

async fn with_a_camera(spec: &str, slots: u32) -> (TestNode, String) {
    with_looks(BETWEEN_LOOKS, spec, slots).await
}

async fn with_looks(look_interval: Duration, spec: &str, slots: u32) -> (TestNode, String) {
    let mut node = TestNode::new();
    node.agent_settings.look_interval = look_interval;
    node.start_kubelet();
    node.start_agent();
    node.configure("cam", spec);
    node.devices.see("cam", [device("door")]);
    let door = instance_name("cam", "door");
    node.until_counts(&door, slots, slots).await;
    (node, door)
}

fn reason(instance: &Instance) -> Option<String> {
    let conditions = &instance.status.as_ref()?.conditions;
    Some(conditions.first()?.reason.clone())
}

async fn assert_stays(node: &TestNode, door: &str, owner: &str) {
    let begun = Instant::now();
    while begun.elapsed() < MANY_LOOKS {
        let usage = node.usage(door);
        assert_eq!(
            usage.values().collect::<Vec<_>>(),
            [owner],
            "{}",
            node.agent_log()
        );
        sleep(Duration::from_millis(50)).await;
    }
}

/// Runs a Pod, `flash`, whose init container alone asks for the camera.
async fn with_an_init_container() -> (TestNode, String) {
    let (node, door) = with_a_camera("capacity: 1", 1).await;
    let slot = format!("{door}-0");
    node.run_init_pod("flash", &[(&format!("akri.sh/{door}"), 1)]);
    node.until_usage(&door, &[(&slot, "node-a")]).await;
    (node, door)
}

#[tokio::test]
async fn a_slot_that_an_init_container_alone_asked_for_is_held_until_its_pod_is_gone() {
    let (node, door) = with_an_init_container().await;
    assert_stays(&node, &door, "node-a").await;
    node.remove_pod("flash");
    node.until_usage(&door, &[]).await;
}

#[tokio::test]
async fn a_slot_of_an_init_container_is_held_when_the_checkpoint_is_removed_under_its_kubelet() {
    let (node, door) = with_an_init_container().await;
    sleep(Duration::from_millis(600)).await; // the kubelet has written what it had to
    fs::remove_file((node.agent_settings.plugin_folder).join(checkpoint::FILE)).unwrap();
    assert_stays(&node, &door, "node-a").await;
}

#[tokio::test]
async fn a_slot_that_a_container_has_by_an_earlier_prefix_is_held_and_given_to_no_other() {
    let (mut node, door) = with_a_camera("capacity: 1", 1).await;
    let slot = format!("{door}-0");
    node.run_pod("first", &[(&format!("akri.sh/{door}"), 1)]);
    node.env("first").await;
    node.stop_agent().await;
    node.agent_settings.resource_prefixes = "edge.io".parse().unwrap();
    node.start_agent();
    let renamed = format!("edge.io/{door}");
    // The kubelet takes its ids for free.
    node.until_counts(&renamed, 1, 0).await;
    assert_stays(&node, &door, "node-a").await;
    let refusal = node.allocate(&door, &[&slot]).await.unwrap_err();
    let reason = format!("as akri.sh/{door}, which");
    assert!(refusal.message().contains(&reason), "{refusal}");
    node.until_usage(&door, &[(&slot, "node-a")]).await;
    node.remove_pod("first");
    node.until_usage(&door, &[]).await;
    node.until_counts(&renamed, 1, 1).await;
}

#[tokio::test]
async fn a_pod_that_has_ended_and_stands_in_the_checkpoint_still_holds_no_slot() {
    // The interval is long enough for the file to exist before the slot is released.
    let looks = Duration::from_secs(2);
    let (mut node, door) = with_looks(looks, "capacity: 1", 1).await;
    let slot = format!("{door}-0");
    node.allocate(&door, &[&slot]).await.unwrap();
    // The kubelet keeps this entry until it writes the file again.
    let entry = Entry {
        pod_uid: "ended".to_owned(),
        container_name: "main".to_owned(),
        resource_name: format!("akri.sh/{door}"),
        device_ids: Some([(-1, Some(vec![slot.clone()]))].into()),
        alloc_resp: Some(checkpoint::encoded(b"")),
    };
    let data = Data {
        pod_device_entries: Some(vec![entry]),
        registered_devices: Some([].into()),
    };
    let file = (node.agent_settings.plugin_folder).join(checkpoint::FILE);
    sleep(Duration::from_millis(600)).await; // the kubelet has written what it had to
    fs::write(&file, checkpoint::written(data)).unwrap();
    assert_eq!(node.usage(&door).len(), 1);
    node.until_usage(&door, &[]).await;
    assert!(!fs::read_to_string(&file).unwrap().contains("ended"));
    node.stop_agent().await;
}

#[tokio::test]
async fn nothing_is_released_while_the_checkpoint_cannot_be_read() {
    let (node, door) = with_a_camera("capacity: 1", 1).await;
    let slot = format!("{door}-0");
    let file = (node.agent_settings.plugin_folder).join(checkpoint::FILE);
    sleep(Duration::from_millis(600)).await; // the kubelet has written what it had to
    // A folder cannot be read as a file, and no file can replace it.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    node.allocate(&door, &[&slot]).await.unwrap();
    assert_stays(&node, &door, "node-a").await;
    let log = node.agent_log();
    assert_eq!(log.matches("checkpoint cannot be read").count(), 1, "{log}");
    fs::remove_dir(&file).unwrap();
    node.until_usage(&door, &[]).await;
}

#[tokio::test]
async fn a_device_that_is_away_for_longer_than_its_grace_finds_its_slot_as_it_is_used() {
    let (node, door) = with_a_camera("capacity: 1, gracePeriodSeconds: 1", 1).await;
    let slot = format!("{door}-0");
    node.run_pod("viewer", &[(&format!("akri.sh/{door}"), 1)]);
    node.pid("viewer").await;
    node.devices.see("cam", []);
    node.until("the Instance says why it stays", async || {
        let instance = node.instances().remove(&door)?;
        let is_left = instance.spec.nodes.is_empty();
        (is_left && reason(&instance)? == "DeviceGoneInUse").then_some(())
    })
    .await;
    assert_stays(&node, &door, "node-a").await;
    assert_eq!(
        node.counts(&door).await,
        Some((1, 0)),
        "its plugin stays with it"
    );

    node.devices.see("cam", [device("door")]);
    node.until_counts(&door, 1, 1).await;
    node.until_usage(&door, &[(&slot, "node-a")]).await;
    node.until("the Instance names the node again", async || {
        let instance = node.instances().remove(&door)?;
        (instance.spec.nodes == ["node-a"]).then_some(())
    })
    .await;
    let refusal = node.allocate("cam", &["cam-0"]).await.unwrap_err();
    assert!(refusal.message().contains("no slot of"), "{refusal}");
    assert_eq!(node.restarts("viewer").await, Some(0));

    node.devices.see("cam", []);
    node.until("the device's grace is over", async || {
        (node.instances().remove(&door)?.spec.nodes)
            .is_empty()
            .then_some(())
    })
    .await;
    node.remove_pod("viewer");
    node.until_no_instance(&door).await;
}

#[tokio::test]
async fn an_instance_that_is_made_anew_while_containers_run_shows_their_slots() {
    let (mut node, door) = with_a_camera("capacity: 2", 2).await;
    node.run_pod("one", &[(&format!("akri.sh/{door}"), 1)]);
    node.run_pod("two", &[("akri.sh/cam", 1)]);
    node.pid("one").await;
    node.pid("two").await;
    let before = node.usage(&door);
    assert_eq!(before.len(), 2, "{before:?}");

    node.stop_agent().await;
    let file = node.state().join(format!("instances/default_{door}.yaml"));
    fs::remove_file(file).unwrap();
    node.start_agent();
    node.until("both slots are claimed again", async || {
        (node.usage(&door) == before).then_some(())
    })
    .await;

    // The same holds for a Configuration that is deleted and created again.
    node.remove_manifest("cam.yaml");
    node.until_no_instance(&door).await;
    node.configure("cam", "capacity: 2");
    node.until("both slots are claimed again", async || {
        (node.usage(&door) == before).then_some(())
    })
    .await;
    assert_eq!(node.restarts("one").await, Some(0));
    assert_eq!(node.restarts("two").await, Some(0));
}

#[tokio::test]
async fn a_slot_that_another_node_shows_and_a_container_here_uses_is_reported_once() {
    let (node, door) = with_a_camera("capacity: 1", 1).await;
    let slot = format!("{door}-0");
    node.run_pod("viewer", &[(&format!("akri.sh/{door}"), 1)]);
    node.pid("viewer").await;
    node.hand_over(&slot, ("node-a", "node-b")).await;
    let reported = || -> Vec<String> {
        let warnings = node.store.warnings.lock().unwrap();
        let about = About::Instance(InstanceKey::new("default", door.as_str()));
        let twice = warnings
            .iter()
            .filter(|w| w.0 == about && w.1 == Reason::SlotHeldTwice);
        twice.map(|w| w.2.clone()).collect()
    };
    node.until("it is told", async || reported().first().cloned())
        .await;
    node.until_counts(&door, 1, 0).await;
    assert_stays(&node, &door, "node-b").await;
    let notes = reported();
    assert_eq!(notes.len(), 1, "{notes:?}");
    let expected = format!("slot {slot} is held by node-b, and a container on node node-a uses it");
    assert!(notes[0].starts_with(&expected), "{notes:?}");
    // Once the other node has released the slot, this node has it again.
    node.hand_over(&slot, ("node-b", "")).await;
    node.until_usage(&door, &[(&slot, "node-a")]).await;
}
