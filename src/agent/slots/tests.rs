use super::*;
use crate::{
    api::reason::Reason,
    model::{
        instance_name::{InstanceKey, InstanceName},
        slot::{SlotId, SlotOwner},
        slot_table::{ObservedSlots, Precedence, Resource},
    },
    store::{About, Configurations, Instances, Reports, Store},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicUsize, Ordering},
};
use tokio::{sync::watch, time::sleep};

/// A store in which another node takes the preferred slot just before this one.
#[derive(Default)]
struct Contended {
    writes: AtomicUsize,
}

impl Store for Contended {
    fn configurations(&self) -> watch::Receiver<Arc<Configurations>> {
        watch::Sender::default().subscribe()
    }

    fn instances(&self) -> watch::Receiver<Arc<Instances>> {
        watch::Sender::default().subscribe()
    }

    fn news(&self) -> watch::Receiver<()> {
        watch::Sender::default().subscribe()
    }

    fn earlier(&self) -> Instances {
        Instances::new()
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn exchange(&self, changes: Vec<SlotChange>) -> BoxFuture<'_, Result<(), StoreError>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            match changes[0].slot.index {
                PREFERRED => Err(StoreError::SlotTaken {
                    instance: InstanceKey::new("default", "cam-1"),
                    slot: format!("cam-1-{PREFERRED}"),
                    owner: "node-b".to_owned(),
                }),
                _ => {
                    sleep(OBSERVED_WITHIN / 10).await;
                    Ok(())
                }
            }
        })
    }

    fn report(&self, _: Reports) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }

    fn warn(&self, _: &About, _: Reason, _: String) {}

    fn run(&self, _: CancellationToken) -> BoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// The slot that every node claims first: the last free one.
const PREFERRED: u32 = 3;

fn observed_with(owner: &str) -> ObservedSlots {
    ObservedSlots {
        key: InstanceKey::new("default", "cam-1"),
        precedence: Precedence::default(),
        configuration: "cam".into(),
        capacity: PREFERRED + 1,
        users_max: PREFERRED + 1,
        is_offered: true,
        is_by_claims: false,
        is_own: false,
        told: BTreeMap::new(),
        usage: BTreeMap::from([(format!("cam-1-{PREFERRED}"), owner.to_owned())]),
    }
}

fn contended() -> (Arc<Contended>, Slots) {
    let table = SharedTable::new("node-a");
    table.observe(|slots| slots.observe([observed_with("")]));
    let store = Arc::new(Contended::default());
    let slots = Slots {
        store: store.clone(),
        clock: Clock::start(),
        table,
    };
    (store, slots)
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_another_node_beats_is_tried_with_another_slot_once_the_table_shows_it() {
    let (store, slots) = contended();
    let table = slots.table.clone();
    let (reply, answer) = oneshot::channel();
    let request = ClaimRequest {
        wanted: Wanted::Listed {
            resource: Resource::Configuration("cam".into()),
            containers: vec![vec!["cam-0".to_owned()]],
            gone: BTreeSet::new(),
        },
        connections: BTreeMap::from([("cam-1".into(), "digest".to_owned())]),
        reply,
    };
    let late_news = async {
        sleep(OBSERVED_WITHIN / 2).await;
        table.observe(|slots| slots.observe([observed_with("node-b")]));
    };
    tokio::join!(claim(&slots, request), late_news);
    let claim = answer.await.unwrap().unwrap();
    let claimed: Vec<u32> = claim.changes().map(|change| change.slot.index).collect();
    assert_eq!(claimed, [PREFERRED - 1]);
    assert_eq!(store.writes.load(Ordering::Relaxed), 2);
}

/// A look at the kubelet's records can be quicker than the call: both want the slot for the same container.
#[tokio::test(start_paused = true)]
async fn a_claim_of_a_slot_that_is_being_adopted_waits_for_that_write() {
    let (_, slots) = contended();
    let change = SlotChange {
        key: InstanceKey::new("default", "cam-1"),
        slot: SlotId::new(InstanceName::from("cam-1"), 0),
        from: None,
        to: Some(SlotOwner::Node("node-a".into())),
        connection_digest: None,
    };
    let (reply, answer) = oneshot::channel();
    let request = ClaimRequest {
        wanted: Wanted::Listed {
            resource: Resource::Instance("cam-1".into()),
            containers: vec![vec!["cam-1-0".to_owned()]],
            gone: BTreeSet::new(),
        },
        connections: BTreeMap::from([("cam-1".into(), "digest".to_owned())]),
        reply,
    };
    tokio::join!(
        adopt(&slots, vec![change], Duration::ZERO),
        claim(&slots, request)
    );
    let claim = answer.await.unwrap().unwrap();
    let claimed: Vec<u32> = claim.changes().map(|change| change.slot.index).collect();
    assert_eq!(claimed, [0]);
}

#[tokio::test(start_paused = true)]
async fn what_another_node_holds_for_the_same_resource_claim_is_used_and_not_written() {
    let (store, slots) = contended();
    let held = ObservedSlots {
        is_by_claims: true,
        ..observed_with("claim:u-1:node-b")
    };
    slots.table.observe(|table| {
        table.observe([held]);
        table.trust(table.arrivals());
    });
    let (reply, answer) = oneshot::channel();
    let request = ClaimRequest {
        wanted: Wanted::Claimed {
            uid: "u-1".to_owned(),
            devices: vec!["cam-1".into()],
        },
        connections: [("cam-1".into(), "digest".into())].into(),
        reply,
    };
    claim(&slots, request).await;
    let given = answer.await.unwrap().unwrap();
    let used: Vec<u32> = given.changes().map(|change| change.slot.index).collect();
    assert_eq!(used, [PREFERRED]);
    assert_eq!(store.writes.load(Ordering::Relaxed), 0);
    // It is free as soon as the other node has freed it.
    let freed = ObservedSlots {
        is_by_claims: true,
        ..observed_with("")
    };
    slots.table.observe(|table| table.observe([freed]));
    let slot = SlotId::new("cam-1", PREFERRED);
    assert!(slots.table.borrow().is_free(&slot));
}
