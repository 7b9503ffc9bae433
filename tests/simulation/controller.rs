//! Simulates one run of a controller: its watches, and the requests that it sends as the leader.
//!
//! The decisions are the real ones: `controller::turns` with all that it plans, and `controller::shown` for what watches and
//! answers say. Written again is the loop around them, `controller::run`, and how a request is sent. The Lease, Jobs and
//! Services are not modelled: `faults.rs` chooses the leader, and lets two controllers lead for a moment.
use super::{
    World,
    api_server::{ApiServer, Node, Pod, Table, key},
    machine::Process,
    network::{Client, Event, follow},
    pods::{Container, Kind},
};
use crate::{
    api::{
        broker, configuration::Configuration, instance::Instance, names, node_devices::NodeDevices,
    },
    cluster::{
        changes::{Change, Listed, version_of},
        is_conflict, is_not_found, is_unprocessable,
    },
    controller::{
        brokers::{Performed, memory::Outcome, plan as brokers},
        nodes::{absent_node, plan as nodes, taken_for_gone},
        outcome::{Tried, Written},
        parts::News,
        pod_state::Unscheduled,
        status::plan as status,
        turn::{Answer, Request},
        turns::Turns,
        world::{BrokerPod, Meta},
    },
    model::{
        instance_name::{InstanceKey, InstanceName},
        names::ObjectKey,
        typed_names::NodeName,
    },
};
use futures::{StreamExt as _, future::join_all, stream::FuturesUnordered};
use json_patch::Patch;
use kube::api::Preconditions;
use serde_json::Value;
use std::{cell::RefCell, collections::BTreeSet, rc::Rc, sync::Arc};
use tokio::sync::watch;

pub(super) struct Controller {
    world: Rc<World>,
    pub(super) name: String,
    pub(super) process: Process,
    client: Client,
    pub(super) is_leader: watch::Sender<bool>,
    turns: RefCell<Turns>,
    changed: watch::Sender<u64>,
}

impl Controller {
    pub(super) fn start(world: &Rc<World>, name: &str, link: &watch::Sender<bool>) -> Rc<Self> {
        let turns = Turns::new("akri.sh".parse().unwrap(), now(world));
        let controller = Rc::new(Self {
            world: world.clone(),
            name: name.to_owned(),
            process: world.machine.process(),
            client: Client::new(world, name, link),
            is_leader: watch::Sender::new(false),
            turns: RefCell::new(turns),
            changed: watch::Sender::new(0),
        });
        let state = |node: &Node| node.state.clone();
        controller.watch(|server| &server.nodes, |_| true, state);
        controller.watch(|server| &server.instances, |_| true, Instance::clone);
        controller.watch(|server| &server.node_devices, |_| true, NodeDevices::clone);
        controller.watch(
            |server| &server.configurations,
            |_| true,
            Configuration::clone,
        );
        controller.watch(
            |server| &server.pods,
            |pod| pod.broker.is_some(),
            broker_pod,
        );
        let unused = [
            News::Jobs(vec![]),
            News::Services(vec![]),
            News::Slices(vec![]),
        ];
        for unused in unused {
            controller.turns.borrow_mut().see(unused);
        }
        let running = controller.clone().run();
        world.machine.spawn(controller.process, running);
        controller
    }

    /// Follows a table, as `cluster::changes` follows a watch.
    fn watch<T: Stored + 'static, R, Name>(
        self: &Rc<Self>,
        table: fn(&ApiServer) -> &Table<T>,
        selects: fn(&T) -> bool,
        reduce: fn(&T) -> R,
    ) where
        R: 'static,
        Name: From<String> + Clone + Ord + 'static,
        News: From<Vec<Change<R, Name>>> + From<Listed<R>>,
    {
        let this = self.clone();
        let mut listed: Vec<Arc<T>> = vec![];
        let mut known: BTreeSet<ObjectKey> = BTreeSet::new();
        let there = move |object: &T| Change {
            key: object.key().typed(),
            version: object.version(),
            object: Some(Arc::new(reduce(object))),
        };
        let gone = |key: ObjectKey, version| Change {
            key: key.typed(),
            version,
            object: None,
        };
        let on = move |events: Vec<Event<T>>| {
            for event in events {
                let is_list = matches!(event, Event::Complete);
                let news: Vec<Change<R, Name>> = match event {
                    Event::Init => {
                        listed.clear();
                        continue;
                    }
                    Event::Listed(object) => {
                        listed.push(object);
                        continue;
                    }
                    Event::Complete => {
                        let keys = listed.iter().map(|object| object.key()).collect();
                        let before = std::mem::replace(&mut known, keys);
                        let lost = before.difference(&known).cloned();
                        let lost = lost.map(|key| gone(key, 0));
                        lost.chain(listed.iter().map(|object| there(object)))
                            .collect()
                    }
                    Event::Applied(object) => {
                        known.insert(object.key());
                        vec![there(&object)]
                    }
                    Event::Deleted(object, version) => {
                        known.remove(&object.key());
                        vec![gone(object.key(), version)]
                    }
                };
                let mut turns = this.turns.borrow_mut();
                turns.see(news.into());
                if is_list {
                    turns.see(Listed::<R>::new(None).into());
                }
            }
            this.changed.send_modify(|n| *n += 1);
        };
        let watching = follow(self.client.clone(), table, selects, on);
        self.world.machine.spawn(self.process, watching);
    }

    /// Implements `controller::run`.
    async fn run(self: Rc<Self>) {
        let (mut changed, mut leader) = (self.changed.subscribe(), self.is_leader.subscribe());
        let mut open = FuturesUnordered::new();
        loop {
            let now = now(&self.world);
            let (requests, wake) = {
                let mut turns = self.turns.borrow_mut();
                let leads = *leader.borrow_and_update() && turns.is_listed();
                turns.lead(leads, now);
                let requests = turns.step(now);
                turns.take_notes();
                (requests, turns.wakes_at(now.instant))
            };
            open.extend(requests.into_iter().map(|(part, request)| {
                let this = &self;
                async move {
                    let answer = this.ask(&request).await;
                    (part, request, answer)
                }
            }));
            let wait = wake.map(|at| at.saturating_duration_since(now.instant).as_millis());
            let millis = wait.and_then(|wait| u64::try_from(wait).ok());
            tokio::select! {
                biased;
                _ = leader.changed() => {}
                Some((part, request, answer)) = open.next() => {
                    let now = self::now(&self.world);
                    self.turns.borrow_mut().answered(part, &request, answer, now);
                }
                _ = changed.changed() => {}
                () = self.world.machine.sleep(millis.unwrap_or(1 << 40).min(1 << 40) + 1) => {}
            }
        }
    }

    async fn ask(&self, request: &Request) -> Answer {
        match request {
            Request::Look(node) => Answer::Pods(self.pods_of(node).await),
            Request::Device(action) => Answer::Written(self.act(action).await),
            Request::Broker(action) => Answer::Performed(self.perform(action).await),
            Request::Status(action) => Answer::Written(self.write_status(action).await),
            Request::Service(action) => panic!("there are no Services: {action:?}"),
            Request::List(action) => panic!("no Configuration asks for it: {action:?}"),
            Request::Eviction(action) => panic!("no Configuration asks for it: {action:?}"),
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

    async fn act(&self, action: &nodes::Action) -> Written {
        if !self.not_gone(taken_for_gone(action)).await.is_empty() {
            return Written::new(Tried::Failed);
        }
        match action {
            nodes::Action::Change(change) => {
                let mut written = Written::new(Tried::Done);
                for (patch, is_status) in [(&change.patch, false), (&change.status, true)] {
                    let Some(patch) = patch else {
                        continue;
                    };
                    let patched = self.patch(&change.key, (patch, is_status)).await;
                    written.tried = tried(&patched);
                    let Ok(instance) = patched else {
                        break;
                    };
                    written.objects.push(vec![seen(&instance)].into());
                }
                written
            }
            nodes::Action::Delete {
                key,
                uid,
                resource_version,
                .. // Configurations stay
            } => {
                let preconditions = Preconditions {
                    uid: Some(uid.clone()),
                    resource_version: Some(resource_version.clone()),
                };
                let what = || format!("delete {}", key.name);
                let ask = |server: &mut ApiServer| {
                    server.delete(&key.name, &preconditions, names::CONTROLLER_MANAGER)
                };
                Written::new(tried(&self.client.request(what, ask).await))
            }
            nodes::Action::Create(instance) => {
                let key = crate::store::key_of(&instance.metadata);
                let clock = self.world.machine.clock();
                let what = || format!("create {}: {:?}", key.name, instance.spec.nodes);
                let ask = |server: &mut ApiServer| {
                    server.create(instance, (names::CONTROLLER_MANAGER, clock))
                };
                let created = self.client.request(what, ask).await;
                match &created {
                    Ok(made) => Written::with(seen(made)),
                    Err(_) => Written::new(Tried::Failed),
                }
            }
            nodes::Action::DeleteNodeDevices { node, uid } => {
                let what = || format!("delete nodedevices {node}");
                let ask = |server: &mut ApiServer| server.delete_node_devices(node, Some(uid));
                Written::new(tried(&self.client.request(what, ask).await))
            }
            nodes::Action::Strip { .. } => Written::new(Tried::Done),
        }
    }

    async fn patch(
        &self,
        key: &InstanceKey,
        (patch, is_status): (&Patch, bool),
    ) -> kube::Result<Arc<Instance>> {
        let what = || format!("patch {}: {patch}", key.name);
        let ask = |server: &mut ApiServer| {
            server.patch(&key.name, (patch, is_status), names::CONTROLLER_MANAGER)
        };
        self.client.request(what, ask).await
    }

    async fn write_status(&self, action: &status::Action) -> Written {
        if !self.not_gone(action.gone.clone()).await.is_empty() {
            return Written::new(Tried::Failed);
        }
        let written = match &action.object {
            status::Object::Instance(key) => {
                let patched = self.patch(key, (&action.patch, true)).await;
                patched.map(|instance| Written::with(seen(&instance)))
            }
            status::Object::Configuration(key) => {
                let what = || format!("patch {}: {}", key.name, action.patch);
                let ask = |server: &mut ApiServer| server.patch_configuration(key, &action.patch);
                let patched = self.client.request(what, ask).await;
                patched.map(|configuration| {
                    Written::with(Change {
                        key: key.clone(),
                        version: version_of(&configuration.metadata),
                        object: Some(configuration),
                    })
                })
            }
        };
        written.unwrap_or_else(|e| Written::new(tried::<()>(&Err(e))))
    }

    async fn perform(&self, action: &brokers::Action) -> Performed {
        let made = match action {
            brokers::Action::CreatePod { broker, pod, .. } => {
                let pod = pod_of(&broker.key.name, pod);
                let what = || format!("create pod {}", pod.name);
                let created = (self.client).request(what, |server| server.create_pod(pod.clone()));
                match created.await {
                    Err(e) if is_conflict(&e) => return self.owner_of(&pod.name).await,
                    created => created.map(Some),
                }
            }
            brokers::Action::DeletePod {
                key, uid, version, ..
            }
            | brokers::Action::ReplacePod {
                key, uid, version, ..
            } => {
                let deleted = self.delete_pod(key, (uid, version.as_deref()));
                deleted.await.map(|()| None)
            }
            brokers::Action::CreateJob { .. }
            | brokers::Action::DeleteJob { .. }
            | brokers::Action::TryPod { .. }
            | brokers::Action::Remember { .. } => Ok(None),
        };
        let outcome = match &made {
            Ok(_) => Outcome::Done,
            Err(e) => match crate::cluster::code(e) {
                Some(code) => Outcome::from_status(code, ""),
                None => Outcome::Failed(e.to_string()),
            },
        };
        Performed {
            outcome,
            object: made.ok().flatten().map(known),
        }
    }

    async fn delete_pod(&self, key: &ObjectKey, of: (&str, Option<&str>)) -> kube::Result<()> {
        let what = || format!("delete pod {}", key.name);
        let delete = |server: &mut ApiServer| server.delete_pod(&key.name, of);
        self.client.request(what, delete).await
    }

    /// Implements `controller::brokers::owner_of`.
    async fn owner_of(&self, name: &str) -> Performed {
        let look = |server: &mut ApiServer| Ok(server.pods.objects.get(&key(name)).cloned());
        let found = self.client.request(|| format!("get pod {name}"), look);
        let (outcome, object) = match found.await {
            Err(e) => (Outcome::Failed(e.to_string()), None),
            Ok(Some(pod)) if pod.broker.is_none() => (Outcome::Taken, None),
            Ok(pod) => (Outcome::Conflict, pod),
        };
        Performed {
            outcome,
            object: object.map(known),
        }
    }
}

fn known(pod: Arc<Pod>) -> News {
    let change = Change {
        key: pod.key(),
        version: pod.version,
        object: Some(Arc::new(broker_pod(&pod))),
    };
    vec![change].into()
}

fn now(world: &World) -> absent_node::Now {
    absent_node::Now {
        clock: world.machine.clock(),
        instant: world.machine.instant(),
    }
}

/// Implements `controller::outcome::tried`.
fn tried<T>(result: &kube::Result<T>) -> Tried {
    match result {
        Err(e) if is_conflict(e) || is_unprocessable(e) => Tried::Overtaken,
        Err(e) if is_not_found(e) => Tried::Gone,
        Err(_) => Tried::Failed,
        Ok(_) => Tried::Done,
    }
}

fn seen(instance: &Arc<Instance>) -> Change<Instance, InstanceName> {
    Change {
        key: crate::store::instance_key(&instance.metadata),
        version: version_of(&instance.metadata),
        object: Some(instance.clone()),
    }
}

/// An object of a table.
trait Stored {
    fn key(&self) -> ObjectKey;
    fn version(&self) -> u64;
}

impl Stored for Instance {
    fn key(&self) -> ObjectKey {
        crate::store::key_of(&self.metadata)
    }

    fn version(&self) -> u64 {
        version_of(&self.metadata)
    }
}

impl Stored for Configuration {
    fn key(&self) -> ObjectKey {
        crate::store::key_of(&self.metadata)
    }

    fn version(&self) -> u64 {
        version_of(&self.metadata)
    }
}

impl Stored for Node {
    fn key(&self) -> ObjectKey {
        ObjectKey::new("", &self.name)
    }

    fn version(&self) -> u64 {
        0
    }
}

impl Stored for NodeDevices {
    fn key(&self) -> ObjectKey {
        crate::store::key_of(&self.metadata)
    }

    fn version(&self) -> u64 {
        version_of(&self.metadata)
    }
}

impl Stored for Pod {
    fn key(&self) -> ObjectKey {
        key(&self.name)
    }

    fn version(&self) -> u64 {
        self.version
    }
}

/// Returns a broker as the server stores it, from the object that the controller made.
fn pod_of(name: &str, made: &Value) -> Pod {
    let limits = &made["spec"]["containers"][0]["resources"]["limits"];
    let asks = limits.as_object().into_iter().flatten();
    Pod {
        name: name.to_owned(),
        uid: 0,
        version: 0,
        node: String::new(),
        unscheduled: None,
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
    let named = broker::named_nodes(&made["spec"]["affinity"]);
    let node = (!pod.node.is_empty()).then(|| NodeName::from(pod.node.as_str()));
    let map = |value: &Value| serde_json::from_value(value.clone()).unwrap_or_default();
    BrokerPod {
        meta: Meta {
            uid: pod.uid.to_string(),
            version: pod.version,
            labels: map(&made["metadata"]["labels"]),
            annotations: map(&made["metadata"]["annotations"]),
            owner: made["metadata"]["ownerReferences"][0]["uid"]
                .as_str()
                .map(str::to_owned),
            created: None,
            is_deleting: pod.is_deleting,
        },
        is_astray: node.as_ref().is_some_and(|node| !named.contains(node)),
        may_run_on: node.iter().fold(named, |_, _| BTreeSet::new()),
        node,
        unscheduled: pod.unscheduled.map(|since| Unscheduled {
            since: Some(since),
            message: String::new(),
        }),
        // Its containers are started again for ever.
        is_refused: pod.phase == "Failed",
        phase: pod.phase.to_owned(),
        started: pod.started,
        ..BrokerPod::default()
    }
}
