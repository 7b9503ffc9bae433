//! Tests of discoveries that fail, panic or hang, and of unusual devices.
use super::*;

/// Asserts that the discovery ran more than once, and with waits between the runs.
fn assert_backed_off(node: &TestNode, details: &str) {
    let runs = node.devices.runs(details);
    assert!((2..20).contains(&runs), "{details} was run {runs} times");
}

#[tokio::test]
async fn a_discovery_that_fails_says_so_and_is_tried_again_now_and_then() {
    let (node, door) = at_work().await;
    node.configure_with("bad", "fail-always", "capacity: 1");
    node.until_error("bad.yaml", "fail-always fails").await;
    node.until("it is tried again", async || {
        (node.devices.runs("fail-always") > 1).then_some(())
    })
    .await;
    still_works(&node, &door).await;
    assert_backed_off(&node, "fail-always");
}

#[tokio::test]
async fn a_discovery_that_panics_says_so_and_is_tried_again_now_and_then() {
    let (node, door) = at_work().await;
    node.configure_with("bad", "panic-always", "capacity: 1");
    node.until("it is tried again", async || {
        (node.devices.runs("panic-always") > 1).then_some(())
    })
    .await;
    node.until_error("bad.yaml", "panic").await;
    still_works(&node, &door).await;
    assert_backed_off(&node, "panic-always");
}

#[tokio::test]
async fn a_discovery_that_hangs_holds_up_nothing() {
    let (mut node, door) = at_work().await;
    node.configure_with("bad", "hang-always", "capacity: 1");
    node.until("it hangs", async || {
        (node.devices.runs("hang-always") > 0).then_some(())
    })
    .await;
    node.remove_manifest("bad.yaml");
    // The discovery never ends; other discoveries start nevertheless.
    node.configure("later", "capacity: 1");
    node.devices.see("later", [device("roof")]);
    node.until_counts(&instance_name("later", "roof"), 1, 1)
        .await;
    still_works(&node, &door).await;
    // The same holds if another one hangs too.
    node.configure_with("bad", "hang-more", "capacity: 1");
    node.until("it hangs", async || {
        (node.devices.runs("hang-more") > 0).then_some(())
    })
    .await;
    node.stop_agent().await;
}

#[tokio::test]
async fn strange_devices_become_instances_or_a_message() {
    let (node, door) = at_work().await;
    node.configure("odd", "capacity: 1, maxInstances: 3");
    let mut huge = Device::new("huge");
    huge.properties
        .insert("HUGE".to_owned(), "x".repeat(300_000));
    let mut nul = Device::new("nul");
    nul.properties.insert("NUL".to_owned(), "a\0b".to_owned());
    let names = ["", "ünï/cödé\n: {}", "x".repeat(5000).as_str()].map(Device::new);
    let strange = names.into_iter().chain([huge, nul]);
    node.devices.see("odd", strange);
    node.until("three of them have Instances", async || {
        let of_odd = node
            .instances()
            .into_keys()
            .filter(|name| name.starts_with("odd-"));
        (of_odd.count() == 3).then_some(())
    })
    .await;
    node.until_error("odd.yaml", "2 more devices were found")
        .await;
    still_works(&node, &door).await;
}
