//! Simulates one run of a controller: its view of the cluster, and the passes that it makes as the leader.
//!
//! The decisions are the real ones: `controller::nodes::plan`, `controller::brokers::plan` with its memory,
//! `controller::{touched, parts, agenda}`, and `controller::pace`. The loops around them are copies. The Lease, Jobs,
//! Services and the status of Configurations are not modelled: `faults.rs` chooses the leader, and lets two controllers
//! lead for a moment.
use super::{
    World,
    api_server::{ApiServer, Node, Pod, Table, key},
    machine::Process,
    network::{Client, Event, follow},
    pods::{Container, Kind},
};
use crate::{
    api::{instance::Instance, names, node_devices::NodeDevices},
    cluster::{is_conflict, is_not_found},
    controller::{
        agenda::{Agenda, CREATED_AGAIN, Pass},
        brokers::{
            memory::{Memory as Brokers, Outcome},
            plan as brokers,
        },
        nodes::{absent_node, lost::Memory as Lost, plan as nodes},
        pace::Pace,
        touched::touched,
        world::{BrokerPod, Meta, World as Seen},
    },
    model::{instance_name::InstanceKey, names::ObjectKey, typed_names::NodeName},
};
use futures::future::{LocalBoxFuture, join_all};
use json_patch::Patch;
use kube::api::Preconditions;
use serde_json::Value;
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::sync::watch;

const SETTLE: u64 = 20;

pub(super) struct Controller {
    world: Rc<World>,
    pub(super) name: String,
    pub(super) process: Process,
    client: Client,
    pub(super) is_leader: watch::Sender<bool>,
    /// The objects of its watches, and the names of the sets that were listed.
    seen: RefCell<(Arc<Seen>, BTreeSet<&'static str>)>,
    changed: watch::Sender<u64>,
}

type Paces = Pace<(&'static str, ObjectKey)>;

impl Controller {
    pub(super) fn start(world: &Rc<World>, name: &str, link: &watch::Sender<bool>) -> Rc<Self> {
        let seen = Seen {
            configurations: world.server.borrow().configurations.clone(),
            ..Seen::default()
        };
        let controller = Rc::new(Self {
            world: world.clone(),
            name: name.to_owned(),
            process: world.machine.process(),
            client: Client::new(world, name, link),
            is_leader: watch::Sender::new(false),
            seen: RefCell::new((Arc::new(seen), BTreeSet::new())),
            changed: watch::Sender::new(0),
        });
        controller.watch(
            "nodes",
            |server| &server.nodes,
            |_: &Node| true,
            |seen, key, node| {
                match node {
                    Some(node) => seen
                        .nodes
                        .insert(key.name.into(), Arc::new(node.state.clone())),
                    None => seen.nodes.remove(key.name.as_str()),
                };
            },
        );
        controller.watch(
            "instances",
            |server| &server.instances,
            |_: &Instance| true,
            |seen, key, object| {
                match object {
                    Some(object) => seen.instances.insert(key.typed(), object),
                    None => seen.instances.remove(&key.typed()),
                };
            },
        );
        controller.watch(
            "nodedevices",
            |server| &server.node_devices,
            |_: &NodeDevices| true,
            |seen, key, object| {
                match object {
                    Some(object) => seen.node_devices.insert(key.name.into(), object),
                    None => seen.node_devices.remove(key.name.as_str()),
                };
            },
        );
        controller.watch(
            "pods",
            |server| &server.pods,
            |pod: &Pod| pod.broker.is_some(),
            |seen, key, pod| {
                match pod {
                    Some(pod) => seen.pods.insert(key, Arc::new(broker_pod(&pod))),
                    None => seen.pods.remove(&key),
                };
            },
        );
        let machine = &world.machine;
        machine.spawn(controller.process, controller.clone().keep_nodes());
        if world.has_brokers {
            machine.spawn(controller.process, controller.clone().keep_brokers());
        }
        controller
    }

    /// Follows a table. `put` inserts or removes an object.
    fn watch<T: Named + 'static>(
        self: &Rc<Self>,
        what: &'static str,
        table: fn(&ApiServer) -> &Table<T>,
        selects: fn(&T) -> bool,
        put: fn(&mut Seen, ObjectKey, Option<Arc<T>>),
    ) {
        let this = self.clone();
        let mut listed: BTreeMap<ObjectKey, Arc<T>> = BTreeMap::new();
        let mut known: BTreeSet<ObjectKey> = BTreeSet::new();
        let on = move |events: Vec<Event<T>>| {
            let (seen, whole) = &mut *this.seen.borrow_mut();
            let seen = Arc::make_mut(seen);
            for event in events {
                match event {
                    Event::Init => listed.clear(),
                    Event::Listed(object) => drop(listed.insert(object.key(), object)),
                    Event::Complete => {
                        let listed = std::mem::take(&mut listed);
                        for gone in known.iter().filter(|key| !listed.contains_key(*key)) {
                            put(seen, gone.clone(), None);
                        }
                        known = listed.keys().cloned().collect();
                        for (key, object) in listed {
                            put(seen, key, Some(object));
                        }
                        whole.insert(what);
                    }
                    Event::Applied(object) => {
                        known.insert(object.key());
                        put(seen, object.key(), Some(object));
                    }
                    Event::Deleted(object, _) => {
                        known.remove(&object.key());
                        put(seen, object.key(), None);
                    }
                }
            }
            this.changed.send_modify(|n| *n += 1);
        };
        let watching = follow(self.client.clone(), table, selects, on);
        self.world.machine.spawn(self.process, watching);
    }

    /// Calls `pass` with the parts of the world that are due, as `controller::Turns` does.
    async fn follow<S>(
        self: Rc<Self>,
        mut state: S,
        pass: impl for<'a> Fn(&'a Self, &'a mut S, Arc<Seen>) -> LocalBoxFuture<'a, Pass>,
    ) {
        let (mut changed, mut leader) = (self.changed.subscribe(), self.is_leader.subscribe());
        let (mut agenda, mut before) = (Agenda::new(), None);
        let mut wait = Duration::ZERO;
        loop {
            let millis = u64::try_from(wait.as_millis())
                .unwrap_or(u64::MAX)
                .min(1 << 40);
            tokio::select! {
                biased;
                _ = changed.changed() => {}
                _ = leader.changed() => {}
                () = self.world.machine.sleep(millis + 1) => {}
            }
            self.world.machine.sleep(SETTLE).await;
            changed.mark_unchanged();
            let leads = *leader.borrow_and_update();
            let (seen, is_whole) = {
                let (seen, whole) = &*self.seen.borrow();
                (seen.clone(), whole.len() == 4)
            };
            if !leads || !is_whole {
                (agenda, before, wait) = (Agenda::new(), None, Duration::MAX);
                continue;
            }
            match before.replace(seen.clone()) {
                Some(before) => agenda.touch(touched(&before, &seen)),
                None => agenda = Agenda::new(),
            }
            if let Some(parts) = agenda.take(self.now().instant) {
                let result = pass(&self, &mut state, seen.part(&parts)).await;
                agenda.done(&parts, result, self.now().instant);
            }
            let now = self.now().instant;
            let next = agenda.next().map(|at| at.saturating_duration_since(now));
            wait = next.unwrap_or(Duration::MAX);
        }
    }

    async fn keep_nodes(self: Rc<Self>) {
        let pace = Pace::new(Duration::from_millis(500), Duration::from_secs(30));
        let batches = Pace::new(Duration::from_millis(100), Duration::from_secs(2));
        let state = (Lost::default(), pace, batches);
        self.follow(state, |this, state, seen| {
            Box::pin(this.nodes_pass(state, seen))
        })
        .await;
    }

    async fn nodes_pass(
        &self,
        (memory, pace, batches): &mut (Lost, Paces, Paces),
        mut seen: Arc<Seen>,
    ) -> Pass {
        memory.notice(&seen, self.now());
        for node in memory.looks(self.now().instant) {
            let pods = self.pods_of(&node).await;
            memory.looked(&node, pods, self.now().instant);
            if let Some(scope) = &seen.scope {
                seen = scope.whole.clone();
            }
        }
        let planned = nodes::plan(&seen, memory, self.now());
        let (batched, paced): (Vec<_>, Vec<_>) =
            (planned.actions.into_iter()).partition(nodes::Action::is_batched);
        let (mut actions, mut later) = batches.due(batched, step, self.now().instant);
        let (others, others_later) = pace.due(paced, step, self.now().instant);
        actions.extend(others);
        later.extend(others_later);
        let mut waits = planned.waits;
        for (action, wait) in later {
            waits.add(&action.part(&seen), wait);
        }
        for action in actions.iter().filter(|action| action.is_creation()) {
            waits.add(&action.part(&seen), CREATED_AGAIN);
        }
        let suspects: BTreeSet<NodeName> = actions.iter().flat_map(taken_for_gone).collect();
        let there = self.not_gone(suspects).await;
        let is_sure = |action: &nodes::Action| taken_for_gone(action).is_disjoint(&there);
        let (sure, doubtful): (Vec<_>, Vec<_>) = actions.into_iter().partition(is_sure);
        let memory = RefCell::new(memory);
        let acts = join_all(sure.iter().map(|action| self.act(action, &memory)));
        let results = acts.await.into_iter().zip(&sure);
        let failed = results.filter(|(is_done, _)| !is_done);
        let failed = failed.map(|(_, action)| action).chain(&doubtful);
        Pass {
            failed: failed.map(|action| action.part(&seen)).collect(),
            waits,
        }
    }

    fn now(&self) -> absent_node::Now {
        absent_node::Now {
            clock: self.world.machine.clock(),
            instant: self.world.machine.instant(),
        }
    }

    /// Implements `controller::nodes::looks::pods_of`.
    async fn pods_of(&self, node: &str) -> absent_node::Pods {
        let that_may_run = |pod: &Arc<Pod>| pod.node == node && !pod.has_ended();
        let has_pods = self.client.request(
            || format!("list pods of {node}"),
            |server| Ok(server.pods.objects.values().any(that_may_run)),
        );
        match has_pods.await {
            Ok(true) => absent_node::Pods::Remain,
            Ok(false) => absent_node::Pods::Deleted,
            Err(_) => absent_node::Pods::Unknown,
        }
    }

    /// Implements `controller::nodes::looks::not_gone`.
    async fn not_gone(&self, suspects: BTreeSet<NodeName>) -> BTreeSet<NodeName> {
        let looks = suspects.into_iter().map(async |name| {
            let asked = self.client.request(
                || format!("get node {name}"),
                |server| Ok(server.nodes.objects.contains_key(&key(&name))),
            );
            (asked.await.unwrap_or(true)).then_some(name)
        });
        join_all(looks).await.into_iter().flatten().collect()
    }

    async fn act(&self, action: &nodes::Action, memory: &RefCell<&mut Lost>) -> bool {
        match action {
            nodes::Action::Change(change) => {
                if let Some(patch) = &change.patch {
                    if let Err(e) = self.patch(&change.key, (patch, false)).await {
                        return is_not_found(&e);
                    }
                    let left = change.absent.iter().chain(&change.gone);
                    let now = self.now().instant;
                    memory.borrow_mut().left(&change.key, left, now);
                }
                let Some(patch) = &change.status else {
                    return true;
                };
                is_done(self.patch(&change.key, (patch, true)).await)
            }
            nodes::Action::Delete {
                key,
                uid,
                resource_version,
                orphan_of: _, // Configurations stay
                why: _,
            } => {
                let preconditions = Preconditions {
                    uid: Some(uid.clone()),
                    resource_version: Some(resource_version.clone()),
                };
                let what = || format!("delete {}", key.name);
                let ask = |server: &mut ApiServer| {
                    server.delete(&key.name, &preconditions, names::CONTROLLER_MANAGER)
                };
                is_done(self.client.request(what, ask).await)
            }
            nodes::Action::Create(instance) => {
                let key = crate::store::key_of(&instance.metadata);
                let now = self.now().clock;
                let what = || format!("create {}: {:?}", key.name, instance.spec.nodes);
                let ask = |server: &mut ApiServer| {
                    server.create(instance, (names::CONTROLLER_MANAGER, now))
                };
                is_done(self.client.request(what, ask).await.map(drop))
            }
            nodes::Action::DeleteNodeDevices { node, uid } => {
                let what = || format!("delete nodedevices {node}");
                let ask = |server: &mut ApiServer| server.delete_node_devices(node, Some(uid));
                is_done(self.client.request(what, ask).await)
            }
            nodes::Action::Strip { .. } => true,
        }
    }

    async fn patch(
        &self,
        key: &InstanceKey,
        (patch, is_status): (&Patch, bool),
    ) -> kube::Result<()> {
        let what = || format!("patch {}: {patch}", key.name);
        let ask = |server: &mut ApiServer| {
            server.patch(&key.name, (patch, is_status), names::CONTROLLER_MANAGER)
        };
        self.client.request(what, ask).await.map(drop)
    }

    async fn keep_brokers(self: Rc<Self>) {
        self.follow(Brokers::default(), |this, memory, seen| {
            Box::pin(this.brokers_pass(memory, seen))
        })
        .await;
    }

    async fn brokers_pass(&self, memory: &mut Brokers, seen: Arc<Seen>) -> Pass {
        let machine = &self.world.machine;
        memory.observe(&seen, machine.clock());
        let planned = |memory: &Brokers| {
            brokers::plan(&brokers::Input {
                world: &seen,
                memory,
                resource_prefix: &"akri.sh".parse().unwrap(),
                now: machine.clock(),
            })
        };
        let mut failed = BTreeSet::new();
        let first = planned(memory);
        for (action, part) in first.actions.iter().zip(first.parts) {
            // Another controller may lead now.
            if *self.is_leader.borrow() {
                let outcome = self.perform(action).await;
                let settled = memory.settle(action, &outcome, machine.clock());
                failed.extend((!settled.is_done).then_some(part));
            }
        }
        let left = planned(memory);
        failed.extend(left.parts);
        Pass {
            failed,
            waits: left.waits,
        }
    }

    async fn perform(&self, action: &brokers::Action) -> Outcome {
        let made = match action {
            brokers::Action::CreatePod { broker, pod, .. } => {
                let pod = pod_of(&broker.key.name, pod);
                let what = || format!("create pod {}", pod.name);
                self.client
                    .request(what, |server| server.create_pod(pod.clone()))
                    .await
            }
            brokers::Action::DeletePod { key, uid, .. }
            | brokers::Action::ReplacePod { key, uid } => {
                let what = || format!("delete pod {}", key.name);
                self.client
                    .request(what, |server| server.delete_pod(&key.name, uid))
                    .await
            }
            brokers::Action::MovePod {
                broker: brokers::Broker { key, .. },
                uid,
                ..
            } => {
                let what = || format!("delete pod {}", key.name);
                self.client
                    .request(what, |server| server.delete_pod(&key.name, uid))
                    .await
            }
            brokers::Action::CreateJob { .. }
            | brokers::Action::DeleteJob { .. }
            | brokers::Action::TryPod { .. }
            | brokers::Action::Remember { .. } => Ok(None),
        };
        match made {
            Ok(uid) => Outcome::Done(uid),
            Err(e) => match crate::cluster::code(&e) {
                Some(code) => Outcome::from_status(code, ""),
                None => Outcome::Failed(e.to_string()),
            },
        }
    }
}

fn is_done(result: kube::Result<()>) -> bool {
    result.map_or_else(|e| is_not_found(&e) && !is_conflict(&e), |()| true)
}

fn step(action: &nodes::Action) -> (&'static str, ObjectKey) {
    match action {
        nodes::Action::Change(change) => ("change", change.key.untyped()),
        nodes::Action::Create(instance) => ("create", crate::store::key_of(&instance.metadata)),
        nodes::Action::Delete { key, .. } => ("delete", key.untyped()),
        nodes::Action::DeleteNodeDevices { node, .. } => ("silence", ObjectKey::new("", node)),
        nodes::Action::Strip { key, .. } => ("strip", key.untyped()),
    }
}

fn taken_for_gone(action: &nodes::Action) -> BTreeSet<NodeName> {
    match action {
        nodes::Action::Change(change) => change.gone.clone(),
        nodes::Action::Create(_)
        | nodes::Action::Delete { .. }
        | nodes::Action::DeleteNodeDevices { .. }
        | nodes::Action::Strip { .. } => BTreeSet::new(),
    }
}

trait Named {
    fn key(&self) -> ObjectKey;
}

impl Named for Instance {
    fn key(&self) -> ObjectKey {
        crate::store::key_of(&self.metadata)
    }
}

impl Named for Node {
    fn key(&self) -> ObjectKey {
        key(&self.name)
    }
}

impl Named for NodeDevices {
    fn key(&self) -> ObjectKey {
        key(self.metadata.name.as_deref().unwrap_or_default())
    }
}

impl Named for Pod {
    fn key(&self) -> ObjectKey {
        key(&self.name)
    }
}

/// Returns a broker as the server stores it, from the object that the controller made.
fn pod_of(name: &str, made: &Value) -> Pod {
    let limits = &made["spec"]["containers"][0]["resources"]["limits"];
    let asks = limits.as_object().into_iter().flatten();
    Pod {
        name: name.to_owned(),
        uid: 0,
        node: made["metadata"]["labels"][names::TARGET_NODE_LABEL]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        containers: vec![Container {
            name: "broker",
            kind: Kind::App,
            asks: asks.map(|(resource, _)| (resource.clone(), 1)).collect(),
            runs: 10_000_000,
        }],
        restarts: true,
        tolerates: false,
        is_deleting: false,
        phase: "Pending",
        broker: Some(made.clone()),
        started: None,
    }
}

fn broker_pod(pod: &Pod) -> BrokerPod {
    let made = pod.broker.as_ref().unwrap_or(&Value::Null);
    let map = |value: &Value| serde_json::from_value(value.clone()).unwrap_or_default();
    BrokerPod {
        meta: Meta {
            uid: pod.uid.to_string(),
            labels: map(&made["metadata"]["labels"]),
            annotations: map(&made["metadata"]["annotations"]),
            owner: made["metadata"]["ownerReferences"][0]["uid"]
                .as_str()
                .map(str::to_owned),
            created: None,
            is_deleting: pod.is_deleting,
        },
        node: Some(pod.node.clone()),
        phase: pod.phase.to_owned(),
        started: pod.started,
        ..BrokerPod::default()
    }
}
