//! Tests of Configurations without Instances: resources of the node only.
use super::*;
use petiole::model::{
    device::{DeviceId, Scope},
    instance_name::InstanceName,
};
use std::collections::BTreeSet;

/// The details of a Configuration of the test handler whose devices are those of the node.
const LOCAL: &str = "kvm-local";

fn kvm(id: &str) -> Device {
    let mut device = device(id);
    device.device_nodes.push(DeviceNode {
        container_path: format!("/dev/{id}"),
        host_path: format!("/dev/{id}"),
        permissions: "rw".to_owned(),
        links: vec![],
    });
    device
}

/// Returns the name that the Instance of a device of `kvm` would have.
fn name_of(id: &str) -> String {
    let node = &crate::support::node::NODE.into();
    let [name, _] = InstanceName::candidates(&"kvm".into(), &DeviceId::new(id), Scope::Node, node);
    name.to_string()
}

/// A node with the device `kvm` and so many slots of it.
async fn with_kvm(spec: &str, slots: u32) -> TestNode {
    let node = TestNode::started();
    node.configure_with("kvm", LOCAL, &format!("instances: false, {spec}"));
    node.devices.see(LOCAL, [kvm("kvm")]);
    node.until_counts("kvm", slots, slots).await;
    node
}

#[tokio::test]
async fn a_hundred_containers_get_one_device_and_nothing_is_written() {
    let node = with_kvm("capacity: 10000, brokerProperties: {MODE: fast}", 10_000).await;
    let sockets = node.sockets();
    assert_eq!(
        sockets.len(),
        1,
        "no resource of a single device: {sockets:?}"
    );
    for n in 0..100 {
        let slot = format!("{}-{n}", name_of("kvm"));
        let answer = node.allocate("kvm", &[&slot]).await.unwrap();
        assert_eq!(answer.devices[0].host_path, "/dev/kvm");
        assert_eq!(
            (&*answer.envs["MODE"], &answer.envs["AKRI_SLOT"]),
            ("fast", &slot)
        );
    }
    for unknown in ["kvm-0", "kvm-ffffff-0"] {
        let refused = node.allocate("kvm", &[unknown]).await.unwrap_err();
        assert!(refused.message().contains("is no slot of"), "{refused:?}");
    }
    assert_eq!(node.counts("kvm").await, Some((10_000, 10_000)));
    assert!(node.instances().is_empty());
    assert!(node.store.writes.lock().unwrap().is_empty());
}

#[tokio::test]
async fn containers_keep_their_slots_while_the_agent_restarts() {
    let mut node = with_kvm("capacity: 2", 2).await;
    node.run_pod("first", &[("akri.sh/kvm", 1)]);
    let first = node.env("first").await;
    node.kill_agent();
    node.start_agent();
    node.until_connected(1).await;
    node.crash("first").await;
    node.until("it runs again", async || {
        node.restarts("first").await.filter(|n| *n == 1)
    })
    .await;
    node.run_pod("second", &[("akri.sh/kvm", 1)]);
    let second = node.env("second").await;
    let slots = [&first["AKRI_SLOT"], &second["AKRI_SLOT"]].map(String::as_str);
    let expected = [0, 1].map(|n| format!("{}-{n}", name_of("kvm")));
    assert_eq!(
        BTreeSet::from(slots),
        expected.iter().map(String::as_str).collect()
    );
    node.run_pod("third", &[("akri.sh/kvm", 1)]);
    node.until_refused("third", "akri.sh/kvm").await;
}

#[tokio::test]
async fn a_device_that_is_gone_is_given_to_nobody_and_its_resource_goes_after_the_grace_period() {
    let node = with_kvm("capacity: 5, gracePeriodSeconds: 600", 5).await;
    node.run_pod("user", &[("akri.sh/kvm", 1)]);
    node.env("user").await;
    node.devices.see(LOCAL, []);
    node.until_counts("kvm", 5, 0).await;
    let slot = format!("{}-4", name_of("kvm"));
    let refused = node.allocate("kvm", &[&slot]).await.unwrap_err();
    assert!(refused.message().contains("is gone"), "{refused:?}");
    let (about, reason, _) = node.store.warnings.lock().unwrap()[0].clone();
    assert_eq!(
        (format!("{about:?}").contains("kvm"), reason.as_str()),
        (true, "AllocateRefused")
    );
    node.crash("user").await;
    node.until_waiting("user", "is gone").await;
    node.devices.see(LOCAL, [kvm("kvm"), kvm("kvm1")]);
    node.until_counts("kvm", 10, 10).await;
    node.until("it runs again", async || node.restarts("user").await)
        .await;

    node.configure_with(
        "kvm",
        LOCAL,
        "instances: false, capacity: 5, gracePeriodSeconds: 1",
    );
    node.devices.see(LOCAL, []);
    // What a container has stays on the list, or the kubelet would take it for healthy.
    node.until_counts("kvm", 5, 0).await;
    node.crash("user").await;
    node.until_waiting("user", "is gone").await;
    node.remove_pod("user");
    node.until("the resource is gone", async || {
        node.counts("kvm").await.is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_device_that_a_container_holds_by_a_former_name_of_the_resource_is_given_to_no_other() {
    let mut node = TestNode::new();
    node.agent_settings.resource_prefixes = "akri.sh,pflex.io".parse().unwrap();
    node.start_kubelet();
    node.start_agent();
    node.configure_with("kvm", LOCAL, "instances: false");
    node.devices.see(LOCAL, [kvm("kvm")]);
    node.until_counts("kvm", 1, 1).await;
    node.run_pod("first", &[("akri.sh/kvm", 1)]);
    node.env("first").await;
    let renamed = "instances: false, resourceName: pflex.io/kvm";
    node.configure_with("kvm", LOCAL, renamed);
    // What the first one has is offered to nobody.
    node.until_counts("pflex.io/kvm", 1, 0).await;
    let slot = format!("{}-0", name_of("kvm"));
    let refused = node.allocate("kvm", &[&slot]).await.unwrap_err();
    assert!(
        refused.message().contains("as akri.sh/kvm, which"),
        "{refused:?}"
    );
    node.remove_pod("first");
    node.until_counts("pflex.io/kvm", 1, 1).await;
    node.until("another container can have it", async || {
        node.allocate("kvm", &[&slot]).await.ok()
    })
    .await;
}

#[tokio::test]
async fn with_and_without_instances_the_slots_that_a_container_holds_are_given_to_no_other() {
    let node = TestNode::started();
    let spec = |instances: bool| format!("instances: {instances}, gracePeriodSeconds: 1");
    node.configure_with("kvm", LOCAL, &spec(true));
    node.devices.see(LOCAL, [kvm("kvm")]);
    node.until_counts("kvm", 1, 1).await;
    let name = name_of("kvm");
    node.until_counts(&name, 1, 1).await;
    node.run_pod("first", &[("akri.sh/kvm", 1)]);
    node.env("first").await;
    node.configure_with("kvm", LOCAL, &spec(false));
    // What the container holds is all there is.
    node.until("the Instance is left", async || {
        node.instances()
            .get(&name)?
            .spec
            .nodes
            .is_empty()
            .then_some(())
    })
    .await;
    node.run_pod("second", &[("akri.sh/kvm", 1)]);
    node.until_refused("second", "akri.sh/kvm").await;
    node.remove_pod("second");
    node.remove_pod("first");
    node.until_no_instance(&name).await;
    node.until_counts("kvm", 1, 1).await;
    node.run_pod("third", &[("akri.sh/kvm", 1)]);
    assert_eq!(node.env("third").await["AKRI_SLOT"], format!("{name}-0"));
}

#[tokio::test]
async fn what_needs_instances_is_refused_without_them() {
    let node = TestNode::started();
    node.devices.see("cam", [device("door")]);
    node.configure("cam", "instances: false");
    node.until_error("cam.yaml", "set instances to true").await;
    node.configure_with("kvm", LOCAL, "instances: false, whenGone: Evict");
    node.until_error("kvm.yaml", "whenGone: Evict needs Instances")
        .await;
    assert!(node.instances().is_empty() && node.sockets().is_empty());
}
