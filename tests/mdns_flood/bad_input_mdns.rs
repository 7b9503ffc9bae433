//! Tests the whole agent with a flood of mDNS services that change continuously.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::run_alone;
use crate::support::{
    mdns_publisher::{Announced, Publisher},
    node::TestNode,
    running_discovery::service_type,
};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const SERVICES: usize = 300;
/// The settle time of the handler, and the shortest time between two changes of a service.
const SETTLE: Duration = Duration::from_millis(250);

fn services(kind: &str, round: usize) -> Vec<Announced> {
    let said = format!("round={round}");
    (0..SERVICES)
        .map(|n| Announced::new(&format!("s{n}"), kind).txt(&[said.as_bytes()]))
        .collect()
}

#[test]
fn services_that_change_all_the_time_make_one_write_each_a_settle_time() {
    run_alone(changing_services());
}

async fn changing_services() {
    let node = TestNode::started();
    let kind = service_type("flap");
    let publisher = Publisher::start(services(&kind, 0));
    let text = format!(
        "apiVersion: akri.sh/v0\nkind: Configuration\nmetadata: {{name: flood}}\n\
         spec: {{discoveryHandler: {{name: zeroconf, discoveryDetails: 'kind: {kind}\n\n  interfaces: {{allow: [lo]}}'}}}}\n"
    );
    node.write_manifest("flood.yaml", &text);
    node.until("all have Instances", async || {
        (node.instances().len() == SERVICES).then_some(())
    })
    .await;

    node.store.writes.lock().unwrap().clear();
    let begun = Instant::now();
    let mut round = 0;
    while begun.elapsed() < Duration::from_secs(3) {
        round += 1;
        publisher.announce_all(services(&kind, round));
        sleep(Duration::from_millis(40)).await;
    }
    let last = round.to_string();
    node.until("the last word of each is written", async || {
        let says_so = |instance: &petiole::api::instance::Instance| {
            (instance.spec.broker_properties)
                .iter()
                .any(|(key, value)| key.ends_with("_ROUND") && *value == last)
        };
        let instances = node.instances();
        (instances.len() == SERVICES && instances.values().all(says_so)).then_some(())
    })
    .await;
    let writes = node.store.writes.lock().unwrap().clone();
    let settle_times = begun.elapsed().as_millis() / SETTLE.as_millis() + 1;
    let most = writes.values().max().copied().unwrap_or_default();
    eprintln!("{round} rounds of changes, {settle_times} settle times, {most} writes at most");
    assert_eq!(writes.len(), SERVICES);
    assert!(
        u128::try_from(most).unwrap() <= settle_times,
        "{most} writes"
    );
    node.assert_all_run();
}
