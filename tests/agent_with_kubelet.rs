//! Our agent and our kubelet over real sockets: the two halves of one protocol test each other.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod support;

use petiole::{
    model::device::{Device, DeviceNode, Mount},
    proto::device_plugin::Empty,
};
use std::{fs, time::Duration};
use support::{
    fake_kubelet::{FakePodResources, FakeRegistration},
    node::{PATIENCE, TestNode, instance_name, request},
    test_handler::{device, with},
};
use tokio::time::{Instant, sleep, timeout};

mod devices {
    use super::*;

    #[tokio::test]
    async fn a_device_becomes_an_instance_a_socket_a_resource_and_the_environment_of_a_process() {
        let node = TestNode::started();
        node.configure("cam", "brokerProperties: {MODE: fast}");
        node.devices.see("cam", [device("door")]);
        let name = instance_name("cam", "door");
        let digest = name.rsplit('-').next().unwrap().to_uppercase();

        let instance = node.instance(&name).await;
        assert_eq!(instance.spec.nodes, ["node-a"]);
        assert_eq!(instance.spec.configuration_name, "cam");
        node.until_counts(&name, 1, 1).await;
        node.until_counts("cam", 1, 1).await;
        assert!(node.socket_of(&name).is_some(), "{:?}", node.sockets());

        node.run_pod("broker", &[(&format!("akri.sh/{name}"), 1)]);
        let env = node.env("broker").await;
        for key in ["ADDRESS", &format!("ADDRESS_{digest}")] {
            assert_eq!(env[key], "10.0.0.1");
        }
        for key in ["MODE", &format!("MODE_{digest}")] {
            assert_eq!(env[key], "fast");
        }
        node.until_usage(&name, &[(&format!("{name}-0"), "node-a")])
            .await;
    }

    #[tokio::test]
    async fn a_device_that_goes_is_unhealthy_at_once_and_its_traces_go_in_order() {
        let node = TestNode::started();
        node.configure("cam", "gracePeriodSeconds: 2");
        node.devices.see("cam", [device("door"), device("yard")]);
        let (door, yard) = (instance_name("cam", "door"), instance_name("cam", "yard"));
        node.until_counts(&door, 1, 1).await;
        node.until_counts(&yard, 1, 1).await;

        node.devices.see("cam", [device("yard")]);
        node.until_counts(&door, 1, 0).await;
        assert!(
            node.instances().contains_key(&door),
            "an Instance has its grace"
        );
        assert!(
            node.socket_of(&door).is_some(),
            "a plugin goes with its Instance"
        );
        node.until_no_instance(&door).await;
        node.until("the socket is gone", async || {
            node.socket_of(&door).is_none().then_some(())
        })
        .await;
        node.until("the capacity entry is gone", async || {
            node.counts(&door).await.is_none().then_some(())
        })
        .await;
        assert_eq!(node.counts(&yard).await, Some((1, 1)));
    }
}

mod allocation {
    use super::*;

    #[tokio::test]
    async fn a_container_may_have_an_instance_and_a_configuration_resource() {
        let node = TestNode::started();
        node.configure("cam", "capacity: 1");
        node.configure("mic", "capacity: 1");
        node.devices.see("cam", [device("door")]);
        let ear = with(device("ear"), &[("ADDRESS", "10.0.0.2"), ("GAIN", "3")]);
        node.devices.see("mic", [ear]);
        let (door, ear) = (instance_name("cam", "door"), instance_name("mic", "ear"));
        node.until_counts(&door, 1, 1).await;
        node.until_counts("mic", 1, 1).await;

        node.run_pod(
            "broker",
            &[(&format!("akri.sh/{door}"), 1), ("akri.sh/mic", 1)],
        );
        let env = node.env("broker").await;
        let suffix = |name: &str| name.rsplit('-').next().unwrap().to_uppercase();
        assert_eq!(env[&format!("ADDRESS_{}", suffix(&door))], "10.0.0.1");
        assert_eq!(env[&format!("ADDRESS_{}", suffix(&ear))], "10.0.0.2");
        assert_eq!(env["GAIN"], "3");
        node.until_usage(&door, &[(&format!("{door}-0"), "node-a")])
            .await;
        node.until_usage(&ear, &[(&format!("{ear}-0"), "C:mic-0:node-a")])
            .await;
    }

    #[tokio::test]
    async fn two_of_a_configuration_in_one_container_are_two_devices() {
        let node = TestNode::started();
        node.configure("cam", "capacity: 3");
        let yard = with(device("yard"), &[("ADDRESS", "10.0.0.2")]);
        node.devices.see("cam", [device("door"), yard]);
        node.until_counts("cam", 2, 2).await;

        node.run_pod("broker", &[("akri.sh/cam", 2)]);
        let env = node.env("broker").await;
        let mut addresses: Vec<_> = (env.iter())
            .filter(|(key, _)| key.starts_with("ADDRESS_"))
            .map(|(_, value)| value.as_str())
            .collect();
        addresses.sort_unstable();
        assert_eq!(addresses, ["10.0.0.1", "10.0.0.2"]);
        for name in ["door", "yard"].map(|id| instance_name("cam", id)) {
            assert_eq!(node.usage(&name).len(), 1, "{name}");
        }
    }

    #[tokio::test]
    async fn one_call_for_one_container_has_one_response_with_everything_of_both_devices() {
        let node = TestNode::started();
        node.configure("cam", "capacity: 1");
        let mounted = |id: &str, path: &str| {
            let mut device = Device::new(id);
            device.mounts.push(Mount {
                container_path: path.to_owned(),
                host_path: path.to_owned(),
                read_only: true,
            });
            device.device_nodes.push(DeviceNode {
                container_path: path.to_owned(),
                host_path: path.to_owned(),
                permissions: "rw".to_owned(),
            });
            device.cdi_devices.push(format!("example.com/cam={id}"));
            device
        };
        node.devices
            .see("cam", [mounted("door", "/a"), mounted("yard", "/b")]);
        node.until_counts("cam", 2, 2).await;
        // `allocate` asserts that there is one response.
        let response = node.allocate("cam", &["cam-0", "cam-1"]).await.unwrap();
        let mut paths: Vec<_> = response.mounts.iter().map(|m| &*m.host_path).collect();
        paths.sort_unstable();
        assert_eq!(paths, ["/a", "/b"]);
        assert_eq!(response.devices.len(), 2);
        let mut names: Vec<_> = response.cdi_devices.iter().map(|c| &*c.name).collect();
        names.sort_unstable();
        assert_eq!(names, ["example.com/cam=door", "example.com/cam=yard"]);
    }

    #[tokio::test]
    async fn slots_that_the_other_resource_holds_are_unhealthy() {
        let node = TestNode::started();
        node.configure("cam", "capacity: 2");
        node.devices.see("cam", [device("door")]);
        let door = instance_name("cam", "door");
        node.until_counts(&door, 2, 2).await;
        node.until_counts("cam", 1, 1).await;

        node.run_pod("by-configuration", &[("akri.sh/cam", 1)]);
        node.pid("by-configuration").await;
        node.until_counts(&door, 2, 1).await;
        // A free id beside the one in use: the device has a free slot.
        node.until_counts("cam", 2, 2).await;

        let resource = format!("akri.sh/{door}");
        node.run_pod("by-instance", &[(&resource, 1)]);
        node.pid("by-instance").await;
        node.until_usage(
            &door,
            &[
                (&format!("{door}-0"), "node-a"),
                (&format!("{door}-1"), "C:cam-0:node-a"),
            ],
        )
        .await;
        node.until_counts("cam", 1, 1).await;
        node.run_pod("third", &[(&resource, 1)]);
        node.until_refused("third", &resource).await;

        let refusal = node
            .allocate(&door, &[&format!("{door}-1")])
            .await
            .unwrap_err();
        assert!(
            refusal.message().contains("by the other resource"),
            "{refusal}"
        );
    }

    #[tokio::test]
    async fn a_call_that_its_client_gives_up_undoes_its_claim() {
        let node = TestNode::started();
        node.configure("cam", "capacity: 1");
        node.devices.see("cam", [device("door")]);
        let door = instance_name("cam", "door");
        let slot = format!("{door}-0");
        let mut plugin = node.plugin(&door).await;

        node.store.is_held_up.send_replace(true);
        let usage = [(slot.as_str(), "node-a")];
        let claimed = node.until_usage(&door, &usage);
        tokio::select! {
            answer = plugin.allocate(request(&[&slot])) => panic!("the write was held up: {answer:?}"),
            () = claimed => {}
        }
        node.store.is_held_up.send_replace(false);
        node.until_usage(&door, &[]).await;
        node.allocate(&door, &[&slot]).await.unwrap();
    }

    #[tokio::test]
    async fn a_slot_is_released_when_its_pod_is_gone() {
        let mut node = TestNode::new();
        node.agent_settings.between_looks = Duration::from_millis(300);
        node.start_kubelet();
        node.start_agent();
        node.configure("cam", "capacity: 2");
        node.devices.see("cam", [device("door")]);
        let door = instance_name("cam", "door");
        node.until_counts(&door, 2, 2).await;
        for pod in ["stays", "goes"] {
            node.run_pod(pod, &[(&format!("akri.sh/{door}"), 1)]);
            node.pid(pod).await;
        }
        node.remove_pod("goes");
        node.until("one slot is released", async || {
            (node.usage(&door).len() == 1).then_some(())
        })
        .await;
        let restarts = node.restarts("stays").await;
        assert_eq!(restarts, Some(0));
    }
}

mod restarts {
    use super::*;

    /// 200 devices, and a broker at the first three.
    async fn with_brokers_at_three_of_200(node: &TestNode) -> Vec<String> {
        let ids: Vec<String> = (0..200).map(|n| format!("d{n}")).collect();
        node.configure("cam", "capacity: 1");
        node.devices.see("cam", ids.iter().map(|id| device(id)));
        let names: Vec<_> = ids.iter().map(|id| instance_name("cam", id)).collect();
        // `akri.sh/cam` is the one more.
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

    #[tokio::test]
    async fn a_kubelet_restart_registers_200_instances_again_and_keeps_allocations() {
        let mut node = TestNode::new();
        node.kubelet_settings.endpoint_grace = Duration::from_secs(60);
        node.start_kubelet();
        node.start_agent();
        let names = with_brokers_at_three_of_200(&node).await;
        let before = node.instances();
        node.stop_kubelet().await;
        node.start_kubelet();
        everything_is_back_after(&node, "was stopped", &names).await;
        assert_eq!(node.instances(), before, "no Instance was touched");
    }

    #[tokio::test]
    async fn a_killed_kubelet_finds_200_instances_and_their_allocations_again() {
        let mut node = TestNode::new();
        node.kubelet_settings.endpoint_grace = Duration::from_secs(60);
        node.start_kubelet();
        node.start_agent();
        let names = with_brokers_at_three_of_200(&node).await;
        let before = node.instances();
        node.kill_kubelet();
        node.start_kubelet();
        everything_is_back_after(&node, "was killed", &names).await;
        assert_eq!(node.instances(), before, "no Instance was touched");
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

    /// Instances, allocations and brokers stay as they are when the agent goes and `again` comes.
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
        // A container that restarts is started with what it was given.
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
        let mut node = TestNode::started();
        node.configure("cam", "capacity: 1");
        node.devices.see("cam", [device("door")]);
        let door = instance_name("cam", "door");
        node.until_counts(&door, 1, 1).await;
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
        let mut node = TestNode::started();
        node.configure("cam", "capacity: 1");
        node.devices.see("cam", [device("door")]);
        let door = instance_name("cam", "door");
        node.until_counts(&door, 1, 1).await;
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
        // Nothing is deleted that was only not seen yet.
        assert!(node.instances().contains_key(&door));
    }

    /// A node whose agent was killed when a claim was written and not answered, and is started again.
    async fn killed_within_a_claim(between_looks: Duration) -> (TestNode, String) {
        let mut node = TestNode::new();
        node.agent_settings.between_looks = between_looks;
        node.start_kubelet();
        node.start_agent();
        node.configure("cam", "capacity: 1");
        node.devices.see("cam", [device("door")]);
        let door = instance_name("cam", "door");
        let slot = format!("{door}-0");
        let mut plugin = node.plugin(&door).await;
        node.store.is_held_up.send_replace(true);
        let usage = [(slot.as_str(), "node-a")];
        let claimed = node.until_usage(&door, &usage);
        tokio::select! {
            answer = plugin.allocate(request(&[&slot])) => panic!("the write was held up: {answer:?}"),
            () = claimed => {}
        }
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
        node.agent_settings.kubelet_settles = Duration::from_secs(6);
        node.agent_settings.between_looks = Duration::from_millis(100);
        node.start_kubelet();
        node.start_agent();
        node.configure("cam", "capacity: 1");
        node.devices.see("cam", [device("door")]);
        let door = instance_name("cam", "door");
        node.until_counts(&door, 1, 1).await;
        let (resource, slot) = (format!("akri.sh/{door}"), format!("{door}-0"));
        node.run_pod("broker", &[(&resource, 1)]);
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
        // From here on the kubelet is believed: the same look would have released it.
        pods.list(&[]);
        node.until_usage(&door, &[]).await;
    }
}

mod registration {
    use super::*;

    #[tokio::test]
    async fn a_plugin_whose_socket_file_is_deleted_makes_another_and_registers_again() {
        let node = TestNode::started();
        node.configure("cam", "capacity: 1");
        node.devices.see("cam", [device("door")]);
        let door = instance_name("cam", "door");
        node.until_counts(&door, 1, 1).await;
        let folder = node.agent_settings.plugin_folder.clone();
        let path = || Some(folder.join(node.socket_of(&door)?));
        let before = fs::metadata(path().unwrap()).unwrap().modified().unwrap();
        fs::remove_file(path().unwrap()).unwrap();
        node.until("another socket is registered", async || {
            let made = fs::metadata(path()?).ok()?.modified().unwrap();
            let plugins = node.kubelet().plugins().await.ok()?;
            let plugin = (plugins.into_iter()).find(|p| p.name == format!("akri.sh/{door}"))?;
            let is_its = plugin.endpoint == path()?.display().to_string();
            (made != before && is_its && plugin.healthy == 1).then_some(())
        })
        .await;
        node.allocate(&door, &[&format!("{door}-0")]).await.unwrap();
    }

    #[tokio::test]
    async fn a_plugin_that_the_kubelet_has_let_go_of_registers_again() {
        let mut node = TestNode::new();
        let folder = node.agent_settings.plugin_folder.clone();
        fs::create_dir_all(&folder).unwrap();
        let mut kubelet = FakeRegistration::start(&folder.join("kubelet.sock"));
        node.start_agent();
        node.configure("cam", "capacity: 1");
        node.devices.see("cam", [device("door")]);
        let door = instance_name("cam", "door");
        let resource = format!("akri.sh/{door}");
        for _ in 0..3 {
            let registered = kubelet.registered(&resource).await;
            assert!(
                folder.join(&registered.endpoint).exists(),
                "serve, then register"
            );
            let mut plugin = node.plugin(&door).await;
            let mut lists = plugin.list_and_watch(Empty {}).await.unwrap().into_inner();
            let list = timeout(PATIENCE, lists.message())
                .await
                .unwrap()
                .unwrap()
                .unwrap();
            assert_eq!(list.devices.len(), 1);
        }
    }
}

mod pre_start {
    use super::*;

    /// A node with a Pod at a device of `cam`, to be changed and the Pod to crash.
    async fn with_broker() -> TestNode {
        let node = TestNode::started();
        node.configure("cam", "gracePeriodSeconds: 600");
        node.devices.see("cam", [device("door")]);
        let door = instance_name("cam", "door");
        node.until_counts(&door, 1, 1).await;
        node.run_pod("broker", &[(&format!("akri.sh/{door}"), 1)]);
        node.env("broker").await;
        node
    }

    #[tokio::test]
    async fn a_container_whose_device_is_gone_is_not_started_again() {
        let node = with_broker().await;
        node.devices.see("cam", []);
        node.until_counts(&instance_name("cam", "door"), 1, 0).await;
        node.crash("broker").await;
        node.until_waiting("broker", "is gone").await;
        // It is when the device is back.
        node.devices.see("cam", [device("door")]);
        node.until("it runs again", async || node.restarts("broker").await)
            .await;
    }

    #[tokio::test]
    async fn a_container_whose_device_has_another_address_is_not_started_again() {
        let node = with_broker().await;
        node.devices
            .see("cam", [with(device("door"), &[("ADDRESS", "10.0.0.9")])]);
        let door = instance_name("cam", "door");
        node.until("the new address is known", async || {
            let instance = node.instances().remove(&door)?;
            (instance.spec.broker_properties["ADDRESS"] == "10.0.0.9").then_some(())
        })
        .await;
        node.crash("broker").await;
        node.until_waiting("broker", "is reached differently now")
            .await;
    }

    #[tokio::test]
    async fn a_container_whose_device_says_something_else_is_started_again() {
        let node = with_broker().await;
        node.devices
            .see("cam", [with(device("door"), &[("PAGES", "2")])]);
        let door = instance_name("cam", "door");
        node.until("the new number is known", async || {
            let instance = node.instances().remove(&door)?;
            (instance.spec.broker_properties["PAGES"] == "2").then_some(())
        })
        .await;
        node.crash("broker").await;
        node.until("it runs again", async || {
            node.restarts("broker").await.filter(|n| *n == 1)
        })
        .await;
    }
}

mod edits {
    use super::*;

    #[tokio::test]
    async fn an_edited_capacity_takes_effect() {
        let node = TestNode::started();
        node.configure("cam", "capacity: 1");
        node.devices.see("cam", [device("door")]);
        let door = instance_name("cam", "door");
        node.until_counts(&door, 1, 1).await;
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
        let node = TestNode::started();
        node.configure("cam", "capacity: 2");
        node.devices.see("cam", [device("door")]);
        let door = instance_name("cam", "door");
        node.until_counts(&door, 2, 2).await;
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
        let node = TestNode::started();
        node.configure("cam", "capacity: 2, brokerProperties: {MODE: slow}");
        node.devices.see("cam", [device("door")]);
        let door = instance_name("cam", "door");
        node.until_counts(&door, 2, 2).await;
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
}
