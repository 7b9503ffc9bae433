//! Tests the querier with its sockets against a responder that shares no code with it, by real packets on `lo`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#[path = "support/publisher.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the tests of the package petiole use the rest of it"
)]
mod publisher;

use petiole_mdns::{Counts, Found, Interfaces, Mdns, Name, Subscription, Wanted};
use publisher::{Announced, Publisher};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::timeout;

/// A time limit that only ends a failing test. It is long, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns a service type that no other test and no other process uses.
fn service_type(test: &str) -> String {
    format!("_q{}{test}._tcp", std::process::id())
}

fn wanted(kind: &str) -> Wanted {
    let kind = Name::from_dotted(&format!("{kind}.local")).unwrap();
    Wanted {
        browsed: kind.clone(),
        base: kind,
        interfaces: Interfaces::new(vec!["lo".to_owned()], None),
        verify: Some(Duration::from_secs(5)),
    }
}

async fn until(browse: &mut Subscription, condition: impl FnMut(&Found) -> bool) -> Found {
    let found = timeout(PATIENCE, browse.found.wait_for(condition));
    found.await.unwrap().unwrap().clone()
}

#[tokio::test]
async fn a_service_is_found_with_its_records_and_is_gone_after_its_goodbye() {
    let kind = service_type("a");
    let camera = Announced::new("Front Door v1.2", &kind).txt(&[b"path=/live", b"duplex"]);
    let publisher = Publisher::start(vec![camera.clone()]);
    let mut browse = Mdns::default().subscribe(wanted(&kind));
    let found = until(&mut browse, |found| !found.services.is_empty()).await;
    let (name, service) = found.services.first_key_value().unwrap();
    assert_eq!(name.text(), Some(camera.fullname()));
    assert_eq!((found.services.len(), service.port), (1, 8080));
    let ips: Vec<String> = service.addresses.iter().map(|a| a.ip.to_string()).collect();
    assert_eq!(ips, ["127.0.0.1"]);
    let entries: [(&str, Option<&[u8]>); 2] = [("path", Some(b"/live")), ("duplex", None)];
    assert_eq!(service.txt_entries(), entries);
    publisher.goodbye(&camera.fullname());
    until(&mut browse, |found| found.services.is_empty()).await;
}

#[tokio::test]
async fn a_service_that_dies_without_a_goodbye_is_gone_and_is_found_again() {
    let kind = service_type("b");
    let lamp = Announced::new("lamp", &kind);
    let publisher = Publisher::start(vec![lamp.clone()]);
    let mut browse = Mdns::default().subscribe(wanted(&kind));
    until(&mut browse, |found| found.services.len() == 1).await;
    publisher.die_silently(&lamp.fullname());
    until(&mut browse, |found| found.services.is_empty()).await;
    // It answers again, and says nothing of itself: the querier searches for it.
    publisher.wake_up(lamp);
    until(&mut browse, |found| found.services.len() == 1).await;
}

#[tokio::test]
async fn after_the_last_browse_another_one_begins_anew_and_all_packets_are_counted() {
    let kind = service_type("c");
    let _publisher = Publisher::start(vec![Announced::new("s", &kind)]);
    let all = Arc::new(Mutex::new(Counts::default()));
    let counted = all.clone();
    let mdns = Mdns::observed(move |more| {
        let mut all = counted.lock().unwrap();
        all.sent += more.sent;
        all.received += more.received;
        all.records = more.records;
    });
    let mut sent = 0;
    for _ in 0..2 {
        let (mut one, mut other) = (mdns.subscribe(wanted(&kind)), mdns.subscribe(wanted(&kind)));
        for browse in [&mut one, &mut other] {
            let found = until(browse, |found| found.services.len() == 1).await;
            assert_eq!(found.interfaces, Some(1));
        }
        drop(one);
        // The task drops its sockets before its end of the channel.
        let mut found = other.found.clone();
        drop(other);
        let closed = timeout(PATIENCE, found.wait_for(|_| false)).await;
        assert!(closed.unwrap().is_err());
        let all = all.lock().unwrap().clone();
        assert!(all.sent > sent && all.received > sent, "{all:?}");
        assert!(all.records >= 4, "{all:?}");
        sent = all.sent;
    }
}
