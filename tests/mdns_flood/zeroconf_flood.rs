//! Tests that the zeroconf handler finds thousands of services soon, and misses none.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::run_alone;
use crate::support::{
    mdns_publisher::{Announced, Publisher},
    running_discovery::{RunningDiscovery, find, service_type},
};
use std::time::Duration;
use tokio::time::Instant;

fn services(count: usize, kind: &str) -> Vec<Announced> {
    (0..count)
        .map(|n| Announced::new(&format!("s{n}"), kind))
        .collect()
}

#[test]
fn three_hundred_running_services_are_there_in_a_moment() {
    run_alone(async {
        let kind = service_type("a");
        let _publisher = Publisher::start(services(300, &kind));
        let start = Instant::now();
        let mut discovery = RunningDiscovery::zeroconf(&format!("kind: {kind}"));
        let first = discovery
            .until("anything", |set| !set.devices.is_empty())
            .await;
        let first_after = start.elapsed();
        discovery.until("all", |set| set.devices.len() == 300).await;
        let all_after = start.elapsed();
        eprintln!(
            "{} of 300 after {first_after:?}, all after {all_after:?}",
            first.devices.len()
        );
        // An idle machine publishes one set after 0.6 s; this limit is for a busy machine.
        assert!(all_after < Duration::from_secs(3), "{all_after:?}");
        discovery.stop().await;
    });
}

#[test]
fn a_process_that_stood_still_while_a_thousand_services_came_misses_none() {
    run_alone(async {
        let kind = service_type("b");
        let dies = Announced::new("dies", &kind);
        let publisher = Publisher::start(vec![dies.clone()]);
        let details = format!("kind: {kind}\nverify: {{intervalSeconds: 5}}");
        let mut discovery = RunningDiscovery::zeroconf(&details);
        discovery.device(&dies.fullname()).await;
        publisher.die_silently(&dies.fullname());
        // This thread runs the handler: while it is blocked, packets are lost.
        publisher.announce_all(services(1300, &kind));
        std::thread::sleep(Duration::from_millis(700));
        let set = discovery
            .until("all but the dead one", |set| {
                set.devices.len() == 1300 && find(set, &dies.fullname()).is_none()
            })
            .await;
        assert!(set.complete);
    });
}
