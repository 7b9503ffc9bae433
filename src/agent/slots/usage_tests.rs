use super::*;
use crate::{
    agent::{
        device_state::observed_slots,
        settings::Clock,
        slots::{self, ClaimRequest, Slots, Wanted},
    },
    model::{
        slot::SlotId,
        slot_table::{Held, Resource, SlotChange},
    },
    store::{Configurations, Reports, plan::exchanged},
};
use futures::future::BoxFuture;
use std::{collections::BTreeSet, sync::Mutex};
use tokio::sync::{mpsc, oneshot, watch};

const NODE: &str = "node-a";

/// The answer of the API server to a write of an Instance with this name.
type Answer = fn(&str) -> Result<(), StoreError>;

/// An API server with Instances of devices that this node alone has.
struct Remote {
    instances: watch::Sender<Arc<Instances>>,
    news: watch::Sender<()>,
    answer: Mutex<Answer>,
    /// The writes: the Instance, and the number of slots.
    writes: Mutex<Vec<(String, usize)>>,
    warnings: Mutex<Vec<About>>,
}

impl Store for Remote {
    fn configurations(&self) -> watch::Receiver<Arc<Configurations>> {
        watch::Sender::default().subscribe()
    }

    fn instances(&self) -> watch::Receiver<Arc<Instances>> {
        self.instances.subscribe()
    }

    fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    fn earlier(&self) -> Instances {
        Instances::new()
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn exchange(&self, changes: Vec<SlotChange>) -> BoxFuture<'_, Result<(), StoreError>> {
        let key = changes[0].key.clone();
        let write = (key.name.to_string(), changes.len());
        self.writes.lock().unwrap().push(write);
        let answer = (*self.answer.lock().unwrap())(&key.name);
        Box::pin(async move {
            answer?;
            let before = self.instances.borrow()[&key].clone();
            let all: Vec<&SlotChange> = changes.iter().collect();
            self.publish(exchanged(&before, &all)?);
            Ok(())
        })
    }

    fn report(&self, _: Reports) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }

    fn warn(&self, about: &About, _: Reason, _: String) {
        self.warnings.lock().unwrap().push(about.clone());
    }

    fn run(&self, _: CancellationToken) -> BoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

impl Remote {
    fn publish(&self, instance: Instance) {
        let key = crate::store::instance_key(&instance.metadata);
        self.instances.send_modify(|all| {
            Arc::make_mut(all).insert(key, Arc::new(instance));
        });
        self.news.send_replace(());
    }

    fn usage(&self, name: &str) -> Vec<String> {
        let key = InstanceKey::new("default", name);
        let usage = self.instances.borrow()[&key].spec.device_usage.clone();
        usage
            .iter()
            .map(|(slot, owner)| format!("{slot}={owner}"))
            .collect()
    }
}

fn device(name: &str) -> Instance {
    let mut instance = Instance::new(name, Default::default());
    instance.metadata.namespace = Some("default".to_owned());
    instance.spec.configuration_name = "cam".into();
    instance.spec.capacity = 2;
    instance.spec.nodes = vec![NODE.into()];
    instance
}

/// A node with these Instances, whose agent has read the kubelet's records.
fn node(names: &[&str]) -> (Arc<Remote>, SharedTable) {
    let store = Remote {
        instances: watch::Sender::default(),
        news: watch::Sender::default(),
        answer: Mutex::new(|_| Ok(())),
        writes: Mutex::default(),
        warnings: Mutex::default(),
    };
    names.iter().for_each(|name| store.publish(device(name)));
    let table = SharedTable::new(NODE);
    observe(&store, &table);
    table.confirm(vec![], u64::MAX, Duration::ZERO);
    (Arc::new(store), table)
}

fn observe(store: &Remote, table: &SharedTable) {
    let all = store.instances.borrow().clone();
    let observed = all
        .iter()
        .map(|(key, instance)| observed_slots(key, instance, NODE));
    table.observe(|slots| slots.observe(observed));
}

/// Gives slots to containers by the Instance's resource, or takes them back.
fn give(table: &SharedTable, name: &str, indexes: &[u32], is_release: bool) {
    let owner = || Some(SlotOwner::Node(NODE.into()));
    let change = |index: &u32| SlotChange {
        key: InstanceKey::new("default", name),
        slot: SlotId::new(name, *index),
        from: owner().filter(|_| is_release),
        to: owner().filter(|_| !is_release),
        connection_digest: (!is_release).then(|| "digest".to_owned()),
    };
    let all: Vec<SlotChange> = indexes.iter().map(change).collect();
    table.settle(&all, Some(Duration::from_secs(1)));
}

async fn during(store: &Arc<Remote>, table: &SharedTable, then: impl Future<Output = ()>) {
    let (stop, shown) = (CancellationToken::new(), store.clone());
    let ended = async {
        then.await;
        stop.cancel();
    };
    // Nobody serves requests any more when the agent ends.
    let (requests, _) = mpsc::channel(1);
    let shown = run(shown, table.clone(), NODE.into(), requests, stop.clone());
    let (ran, ()) = tokio::join!(shown, ended);
    ran.unwrap();
}

fn writes(store: &Remote) -> Vec<(String, usize)> {
    std::mem::take(&mut *store.writes.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_container_gets_a_slot_of_a_device_of_its_node_without_a_write() {
    let (store, table) = node(&["cam-1"]);
    *store.answer.lock().unwrap() = |_| Err(StoreError::Unavailable("away".to_owned()));
    let slots = Slots {
        store: store.clone(),
        clock: Clock::start(),
        table: table.clone(),
    };
    let claim = async |resource: Resource, id: &str| {
        let (reply, answer) = oneshot::channel();
        let request = ClaimRequest {
            wanted: Wanted::Listed {
                resource,
                containers: vec![vec![id.to_owned()]],
                gone: BTreeSet::new(),
            },
            connections: BTreeMap::from([("cam-1".into(), "digest".to_owned())]),
            reply,
        };
        assert!(slots::claim(&slots, request).await.is_none());
        answer.await.unwrap().map(drop).map_err(|e| e.word())
    };
    let by_instance = || Resource::Instance("cam-1".into());
    let by_configuration = || Resource::Configuration("cam".into());
    assert_eq!(claim(by_instance(), "cam-1-1").await, Ok(()));
    assert_eq!(claim(by_configuration(), "cam-0").await, Ok(()));
    // An init container of the same Pod had it, or the kubelet asks again.
    assert_eq!(claim(by_configuration(), "cam-0").await, Ok(()));
    assert_eq!(claim(by_instance(), "cam-1-0").await, Err("held_here"));
    assert!(writes(&store).is_empty());
    assert_eq!(table.borrow().held().len(), 2);
    // A slot that is given back is free again, also without a write.
    let given: Vec<SlotChange> = (table.borrow().held().into_iter())
        .map(Held::release)
        .collect();
    let undo = slots::write_each(&slots, given, "claim undone");
    assert!(table.borrow().held().is_empty());
    undo.await;
    assert!(writes(&store).is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_changes_together_is_one_patch_within_a_second_and_no_second_one() {
    let (store, table) = node(&["cam-1", "cam-2"]);
    during(&store, &table, async {
        give(&table, "cam-1", &[0], false);
        give(&table, "cam-1", &[1], false);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(writes(&store), [("cam-1".to_owned(), 2)]);
        assert_eq!(store.usage("cam-1"), ["cam-1-0=node-a", "cam-1-1=node-a"]);
        observe(&store, &table);
        give(&table, "cam-1", &[0], true);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(writes(&store), [("cam-1".to_owned(), 1)]);
        assert_eq!(store.usage("cam-1"), ["cam-1-1=node-a"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_others_wrote_there_is_never_written_back() {
    let (store, table) = node(&["cam-1"]);
    let mut foreign = device("cam-1");
    let keys = [
        ("cam-1-0", "node-b"),
        ("cam-1-1", "C:?"),
        ("cam-1-00", NODE),
        ("what", NODE),
        ("cam-2-0", NODE),
        ("cam-1-7", ""),
    ];
    let keys = keys.map(|(slot, owner)| (slot.to_owned(), owner.to_owned()));
    foreign.spec.device_usage = BTreeMap::from(keys);
    during(&store, &table, async {
        give(&table, "cam-1", &[0], false);
        store.publish(foreign);
        observe(&store, &table);
        sleep(Duration::from_secs(60)).await;
        assert!(writes(&store).is_empty());
        // What this node has there and does not hold is removed once.
        let mut stale = device("cam-1");
        stale.spec.device_usage = BTreeMap::from([("cam-1-1".to_owned(), NODE.to_owned())]);
        store.publish(stale);
        observe(&store, &table);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(writes(&store), [("cam-1".to_owned(), 2)]);
        assert_eq!(store.usage("cam-1"), ["cam-1-0=node-a"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_away_and_is_back_with_an_older_object_gets_one_write() {
    let (store, table) = node(&["cam-1"]);
    during(&store, &table, async {
        give(&table, "cam-1", &[0], false);
        sleep(Duration::from_secs(1)).await;
        writes(&store);
        *store.answer.lock().unwrap() = |_| Err(StoreError::Unavailable("away".to_owned()));
        give(&table, "cam-1", &[1], false);
        sleep(Duration::from_secs(300)).await;
        let tries = writes(&store).len();
        assert!((10..60).contains(&tries), "{tries}");
        *store.answer.lock().unwrap() = |_| Ok(());
        store.publish(device("cam-1"));
        observe(&store, &table);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(writes(&store), [("cam-1".to_owned(), 2)]);
        assert_eq!(table.borrow().held().len(), 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_the_server_refuses_keeps_no_other_from_being_written_and_comes_again_later() {
    let names = ["a-poisoned", "b", "c-poisoned", "d"];
    let (store, table) = node(&names);
    *store.answer.lock().unwrap() = |name| {
        if name.contains("poisoned") {
            Err(StoreError::Refused("a policy says no".to_owned()))
        } else {
            Ok(())
        }
    };
    let written = |store: &Remote| {
        let names: BTreeSet<String> = writes(store).into_iter().map(|(name, _)| name).collect();
        names.into_iter().collect::<Vec<_>>()
    };
    during(&store, &table, async {
        names
            .iter()
            .for_each(|name| give(&table, name, &[0], false));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(written(&store), names);
        assert_eq!(store.warnings.lock().unwrap().len(), 2);
        give(&table, "d", &[1], false);
        sleep(Duration::from_secs(200)).await;
        assert_eq!(written(&store), ["d"]);
        sleep(Duration::from_secs(200)).await;
        assert_eq!(written(&store), ["a-poisoned", "c-poisoned"]);
        assert_eq!(
            table.borrow().held().len(),
            5,
            "containers keep their slots"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn instances_whose_writes_are_not_answered_hold_up_no_other() {
    // Their webhook is down, and they come first.
    let hung: Vec<String> = (0..SIDE_BY_SIDE + 4).map(|n| format!("a-{n:02}")).collect();
    let mut names: Vec<&str> = hung.iter().map(String::as_str).collect();
    names.push("b");
    let (store, table) = node(&names);
    *store.answer.lock().unwrap() = |name| match name {
        "b" => Ok(()),
        _ => Err(StoreError::Unavailable("away".to_owned())),
    };
    during(&store, &table, async {
        for name in &names {
            give(&table, name, &[0], false);
        }
        sleep(Duration::from_secs(60)).await;
        assert_eq!(store.usage("b"), ["b-0=node-a"]);
    })
    .await;
}
