//! Tests of agents and kubelets that stop, are killed and start again.
use super::*;

/// Configures 200 devices, and runs brokers with the first three. Returns their Instances.
async fn with_brokers_at_three_of_200(node: &TestNode) -> Vec<String> {
    let ids: Vec<String> = (0..200).map(|n| format!("d{n}")).collect();
    node.configure("cam", "capacity: 1");
    node.devices.see("cam", ids.iter().map(|id| device(id)));
    let names: Vec<_> = ids.iter().map(|id| instance_name("cam", id)).collect();
    // The resource beyond the 200 is `akri.sh/cam`.
    node.until_connected(201).await;
    for (n, name) in names.iter().take(3).enumerate() {
        node.run_pod(&format!("broker{n}"), &[(&format!("akri.sh/{name}"), 1)]);
    }
    for (n, name) in names.iter().take(3).enumerate() {
        node.env(&format!("broker{n}")).await;
        node.until_usage(name, &[(&format!("{name}-0"), "node-a")])
            .await;
    }
    names
}

async fn everything_is_back_after(node: &TestNode, what: &str, names: &[String]) {
    let begun = Instant::now();
    node.until_connected(201).await;
    eprintln!(
        "200 Instances are registered {:?} after the kubelet {what}",
        begun.elapsed()
    );
    for (n, name) in names.iter().take(3).enumerate() {
        let env = node.env(&format!("broker{n}")).await;
        assert_eq!(env["ADDRESS"], "10.0.0.1");
        assert_eq!(node.usage(name).len(), 1, "{name}");
    }
    assert_eq!(node.instances().len(), 200);
    assert_eq!(node.sockets().len(), 201);
    node.assert_all_run();
}

/// Checks that Instances and allocations are unchanged after the kubelet was replaced by `go`.
async fn a_kubelet_restart_changes_nothing(what: &str, go: impl AsyncFnOnce(&mut TestNode)) {
    let mut node = TestNode::new();
    node.kubelet_settings.endpoint_grace = Duration::from_secs(60);
    node.start_kubelet();
    node.start_agent();
    let names = with_brokers_at_three_of_200(&node).await;
    let before = node.instances();
    go(&mut node).await;
    node.start_kubelet();
    everything_is_back_after(&node, what, &names).await;
    assert_eq!(node.instances(), before, "no Instance was touched");
}

#[tokio::test]
async fn a_kubelet_restart_registers_200_instances_again_and_keeps_allocations() {
    a_kubelet_restart_changes_nothing("was stopped", async |node| node.stop_kubelet().await).await;
}

#[tokio::test]
async fn a_killed_kubelet_finds_200_instances_and_their_allocations_again() {
    a_kubelet_restart_changes_nothing("was killed", async |node| node.kill_kubelet()).await;
}

#[tokio::test]
async fn a_clean_stop_of_the_agent_leaves_its_instances_and_removes_its_sockets() {
    let mut node = TestNode::started();
    node.configure("cam", "capacity: 1");
    node.devices.see("cam", [device("door"), device("yard")]);
    node.until_counts("cam", 2, 2).await;
    node.until_counts(&instance_name("cam", "door"), 1, 1).await;
    node.until_counts(&instance_name("cam", "yard"), 1, 1).await;
    let before = node.instances();
    node.stop_agent().await;
    assert_eq!(node.instances(), before);
    assert_eq!(node.sockets().len(), 0, "{:?}", node.sockets());
}

/// Checks that Instances, allocations and brokers are unchanged after the agent was replaced by `go`.
async fn an_agent_restart_changes_nothing(go: impl AsyncFnOnce(&mut TestNode)) {
    let mut node = TestNode::new();
    node.kubelet_settings.endpoint_grace = Duration::from_secs(60);
    node.start_kubelet();
    node.start_agent();
    node.configure("cam", "capacity: 2");
    node.devices.see("cam", [device("door"), device("yard")]);
    let door = instance_name("cam", "door");
    node.until_counts(&door, 2, 2).await;
    node.until_counts("cam", 2, 2).await;
    node.run_pod("one", &[(&format!("akri.sh/{door}"), 1)]);
    node.run_pod("two", &[("akri.sh/cam", 1)]);
    let pids = [node.pid("one").await, node.pid("two").await];
    node.until("both claims are written", async || {
        let slots = node
            .instances()
            .into_values()
            .map(|i| i.spec.device_usage.len());
        (slots.sum::<usize>() == 2).then_some(())
    })
    .await;
    let (before, sockets) = (node.instances(), node.sockets());

    go(&mut node).await;
    node.until_connected(0).await;
    node.start_agent();
    node.until_connected(3).await;
    assert_eq!(
        node.sockets().len(),
        3,
        "{:?} after {sockets:?}",
        node.sockets()
    );
    let after = node.instances();
    assert_eq!(
        after, before,
        "the same Instances, with their timestamps and slots"
    );
    assert_eq!([node.pid("one").await, node.pid("two").await], pids);
    // A container that restarts gets the same values again.
    for pod in ["one", "two"] {
        node.crash(pod).await;
        node.until("it runs again", async || {
            node.restarts(pod).await.filter(|n| *n > 0)
        })
        .await;
        assert_eq!(node.env(pod).await["ADDRESS"], "10.0.0.1");
    }
    assert_eq!(node.instances(), before);
}

#[tokio::test]
async fn an_agent_that_is_stopped_and_started_keeps_instances_allocations_and_brokers() {
    an_agent_restart_changes_nothing(async |node| node.stop_agent().await).await;
}

#[tokio::test]
async fn an_agent_that_is_killed_and_started_keeps_instances_allocations_and_brokers() {
    an_agent_restart_changes_nothing(async |node| node.kill_agent()).await;
}

#[tokio::test]
async fn sockets_of_an_agent_that_was_killed_go_also_when_their_instances_have_gone() {
    let mut node = TestNode::started();
    node.configure("cam", "capacity: 1");
    node.configure("mic", "capacity: 1");
    node.devices.see("cam", [device("door")]);
    node.devices.see("mic", [device("ear")]);
    let ear = instance_name("mic", "ear");
    node.until_counts(&ear, 1, 1).await;
    node.until_counts(&instance_name("cam", "door"), 1, 1).await;
    node.kill_agent();
    assert!(node.socket_of(&ear).is_some());
    node.remove_manifest("mic.yaml");
    node.start_agent();
    node.until_no_instance(&ear).await;
    node.until("only cam's two sockets are there", async || {
        let sockets = node.sockets();
        (sockets.len() == 2 && sockets.iter().all(|s| s.starts_with("cam"))).then_some(())
    })
    .await;
}

#[tokio::test]
async fn after_an_agent_restart_allocate_waits_until_the_device_is_seen() {
    let (mut node, door) = TestNode::with_a_camera("capacity: 1", 1).await;
    node.stop_agent().await;
    node.devices.silence("cam");
    node.start_agent();
    // Adopted slots are healthy.
    node.until_counts(&door, 1, 1).await;
    let slot = format!("{door}-0");
    let mut plugin = node.plugin(&door).await;
    let call = plugin.allocate(request(&[&slot]));
    tokio::pin!(call);
    let early = timeout(Duration::from_millis(300), &mut call).await;
    assert!(
        early.is_err(),
        "it was answered before the device was seen: {early:?}"
    );
    node.devices.see("cam", [device("door")]);
    timeout(PATIENCE, call).await.unwrap().unwrap();
}

#[tokio::test]
async fn after_an_agent_restart_allocate_is_refused_when_the_device_does_not_show() {
    let (mut node, door) = TestNode::with_a_camera("capacity: 1", 1).await;
    node.stop_agent().await;
    node.devices.silence("cam");
    node.start_agent();
    let begun = Instant::now();
    let refusal = node
        .allocate(&door, &[&format!("{door}-0")])
        .await
        .unwrap_err();
    assert!(
        refusal
            .message()
            .contains("was not seen since the agent started"),
        "{refusal}"
    );
    assert!(
        begun.elapsed() >= Duration::from_secs(2),
        "it was given no time"
    );
    assert_eq!(node.usage(&door).len(), 0);
    // An Instance is not deleted because its device was not seen yet.
    assert!(node.instances().contains_key(&door));
}

/// Starts a node whose agent was killed after a claim was written and before it was answered, and has been started
/// again.
async fn killed_within_a_claim(look_interval: Duration) -> (TestNode, String) {
    let mut node = TestNode::new();
    node.agent_settings.look_interval = look_interval;
    node.start_kubelet();
    node.start_agent();
    node.configure("cam", "capacity: 1");
    node.devices.see("cam", [device("door")]);
    let door = instance_name("cam", "door");
    node.give_up_a_claim(&door, &format!("{door}-0")).await;
    node.kill_agent();
    assert_eq!(
        node.usage(&door).len(),
        1,
        "killed before it could take the claim back"
    );
    node.store.is_held_up.send_replace(false);
    node.start_agent();
    (node, door)
}

#[tokio::test]
async fn a_slot_whose_claim_was_written_and_never_answered_can_be_allocated_again() {
    let (node, door) = killed_within_a_claim(Duration::from_secs(60)).await;
    node.until_counts(&door, 1, 1).await;
    node.run_pod("broker", &[(&format!("akri.sh/{door}"), 1)]);
    assert_eq!(node.env("broker").await["ADDRESS"], "10.0.0.1");
    assert_eq!(node.usage(&door).len(), 1);
}

#[tokio::test]
async fn a_slot_whose_claim_was_written_and_never_answered_is_released_when_nobody_uses_it() {
    let (node, door) = killed_within_a_claim(Duration::from_millis(300)).await;
    node.until_usage(&door, &[]).await;
    node.until_counts(&door, 1, 1).await;
}

#[tokio::test]
async fn no_slot_is_released_while_a_new_kubelet_lists_nothing() {
    let mut node = TestNode::new();
    let socket = node.root().join("pods.sock");
    let pods = FakePodResources::start(&socket);
    node.agent_settings.pod_resources_socket = socket;
    node.agent_settings.kubelet_startup_grace = Duration::from_secs(6);
    node.agent_settings.look_interval = Duration::from_millis(100);
    node.start_kubelet();
    node.start_agent();
    node.configure("cam", "capacity: 1");
    node.devices.see("cam", [device("door")]);
    let door = instance_name("cam", "door");
    node.until_counts(&door, 1, 1).await;
    let (resource, slot) = (format!("akri.sh/{door}"), format!("{door}-0"));
    node.run_pod("broker", &[(&resource, 1)]);
    // A kubelet that stops between the claim and its own record of it does not know that it has allocated the slot.
    node.env("broker").await;
    node.until_usage(&door, &[(&slot, "node-a")]).await;

    pods.go_away();
    node.stop_kubelet().await;
    let restarted = Instant::now();
    node.start_kubelet();
    node.until_counts(&door, 1, 1).await;
    pods.list(&[]);
    while restarted.elapsed() < Duration::from_secs(4) {
        assert_eq!(
            node.usage(&door).len(),
            1,
            "released while the kubelet listed nothing"
        );
        sleep(Duration::from_millis(50)).await;
    }
    pods.list(&[(&resource, &slot)]);
    pods.until_answered(5).await;
    assert_eq!(node.usage(&door).len(), 1);
    // From here on the kubelet's lists are trusted: the same look would have released the slot.
    node.remove_pod("broker");
    node.until("the Pod is gone", async || {
        node.pod("broker").await.is_none().then_some(())
    })
    .await;
    pods.list(&[]);
    node.until_usage(&door, &[]).await;
}
