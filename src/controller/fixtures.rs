//! Worlds for tests.
use super::{
    clock::WallClock,
    parts::{Cluster, News},
    shared::{Settings, Shared},
    world::{BrokerPod, Meta, NodeState, World},
};
use crate::{
    api::{configuration::Configuration, instance::Instance, node_devices::NodeDevices},
    cluster::{
        changes::Change,
        events::{Writer, events},
        watch::Objects,
    },
    model::{names::Key, typed_names::NodeName, variables::Variables},
    store::{configuration_key, instance_key},
};
use axum::http::{Request, Response};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};
use tokio::{sync::watch, time::Instant};

pub(super) fn key<Name: From<String>>(name: &str) -> Key<Name> {
    Key::new("default", name.to_owned())
}

/// Returns the time so many seconds after a fixed time.
pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// Returns the same by a clock that does not step.
pub(super) fn moment(seconds: u64) -> Instant {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    *BEGAN + Duration::from_secs(seconds)
}

pub(super) fn text(time: Timestamp) -> String {
    time.to_string()
}

/// `fields` are laid over a Configuration that is called `name`.
pub(super) fn configuration(name: &str, fields: Value) -> Configuration {
    let mut object = json!({
        "apiVersion": "akri.sh/v0", "kind": "Configuration",
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"), "generation": 1,
            "resourceVersion": "1",
        },
        "spec": { "discoveryHandler": { "name": "echo" } },
    });
    json_patch::merge(&mut object, &fields);
    serde_json::from_value(object).unwrap()
}

/// `fields` are laid over an Instance of `cam` that is called `name`.
pub(super) fn instance(name: &str, fields: Value) -> Instance {
    let mut object = json!({
        "apiVersion": "akri.sh/v0", "kind": "Instance",
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": "1",
        },
        "spec": { "configurationName": "cam", "cdiName": "akri.sh/cam=1", "capacity": 2 },
    });
    json_patch::merge(&mut object, &fields);
    serde_json::from_value(object).unwrap()
}

/// Returns the NodeDevices of `node`.
pub(super) fn node_devices(node: &str, configurations: Value) -> NodeDevices {
    let object = json!({
        "apiVersion": "akri.sh/v0", "kind": "NodeDevices",
        "metadata": { "name": node, "uid": format!("uid-of-{node}") },
        "spec": { "configurations": configurations },
    });
    serde_json::from_value(object).unwrap()
}

/// A broker of `instance`, of the Configuration `cam`.
pub(super) fn pod(instance: &str, phase: &str) -> BrokerPod {
    let labels = [
        ("akri.sh/configuration", "cam"),
        ("akri.sh/instance", instance),
    ];
    BrokerPod {
        meta: Meta {
            labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..Meta::default()
        },
        phase: phase.to_owned(),
        ..BrokerPod::default()
    }
}

impl World {
    pub(super) fn with_configuration(mut self, configuration: Configuration) -> Self {
        let key = configuration_key(&configuration.metadata);
        self.configurations.insert(key, Arc::new(configuration));
        self
    }

    pub(super) fn with_instance(mut self, instance: Instance) -> Self {
        let key = instance_key(&instance.metadata);
        self.instances.insert(key, Arc::new(instance));
        self
    }

    pub(super) fn with_node_devices(mut self, object: NodeDevices) -> Self {
        let node = object.metadata.name.clone().unwrap_or_default();
        Arc::make_mut(&mut self.node_devices).insert(node.into(), Arc::new(object));
        self
    }

    /// Deletes the NodeDevices of a node.
    pub(super) fn forget(&mut self, node: &str) {
        Arc::make_mut(&mut self.node_devices).remove(node);
    }

    pub(super) fn with_pod(mut self, name: &str, pod: BrokerPod) -> Self {
        self.pods.insert(key(name), Arc::new(pod));
        self
    }

    pub(super) fn with_nodes<const N: usize>(mut self, nodes: [(&str, NodeState); N]) -> Self {
        let nodes = nodes.map(|(name, node)| (name.into(), Arc::new(node)));
        self.nodes = Arc::new(BTreeMap::from(nodes));
        self
    }
}

/// Returns the changes by which these objects become those.
fn changes<K: Ord, T, Name>(
    before: &BTreeMap<K, Arc<T>>,
    now: &BTreeMap<K, Arc<T>>,
    name: impl Fn(&K) -> Key<Name>,
) -> News
where
    News: From<Vec<Change<T, Name>>>,
{
    let is_same = |key: &K, object| {
        before
            .get(key)
            .is_some_and(|known| Arc::ptr_eq(known, object))
    };
    let gone = before.keys().filter(|key| !now.contains_key(*key));
    let gone = gone.map(|key| (key, None));
    let new = now.iter().filter(|(key, object)| !is_same(key, object));
    let new = new.map(|(key, object)| (key, Some(object.clone())));
    let changes = gone.chain(new).map(|(key, object)| Change {
        key: name(key),
        object,
        version: 0,
    });
    changes.collect::<Vec<_>>().into()
}

/// Shows the news by which a world becomes another one, but for its Configurations.
pub(super) fn shown(before: &World, now: &World, mut see: impl FnMut(News)) {
    let of_node = |name: &NodeName| Key::<String>::new("", name.as_str());
    see(changes(&before.nodes, &now.nodes, of_node));
    see(changes(&before.node_devices, &now.node_devices, of_node));
    see(changes(&before.instances, &now.instances, Key::clone));
    see(changes(&before.jobs, &now.jobs, Key::clone));
    see(changes(&before.pods, &now.pods, Key::clone));
    see(changes(&before.services, &now.services, Key::clone));
    see(changes(&before.slices, &now.slices, Key::clone));
}

/// Returns what a controller knows that was shown this world.
pub(super) fn cluster(world: &World) -> Cluster {
    let mut cluster = Cluster::default();
    shown(&World::default(), world, |news| {
        cluster.see(news);
    });
    let configurations = Objects {
        objects: world.configurations.clone(),
        unreadable: world.unreadable.clone(),
        ..Objects::default()
    };
    cluster.list_configurations(&configurations);
    cluster
}

pub(super) fn ready() -> NodeState {
    NodeState {
        is_ready: true,
        since: Some(at(-10_000)),
        ..NodeState::default()
    }
}

pub(super) fn not_ready(since: Timestamp) -> NodeState {
    NodeState {
        is_ready: false,
        since: Some(since),
        ..NodeState::default()
    }
}

/// Returns a node that is not ready and marked as shut down.
pub(super) fn off(since: Timestamp) -> NodeState {
    NodeState {
        is_out_of_service: true,
        ..not_ready(since)
    }
}

/// Returns the settings of a replica.
pub(crate) fn settings(identity: &str) -> Settings {
    Settings {
        identity: identity.to_owned(),
        namespace: "petiole".to_owned(),
        watch_namespaces: vec![],
        resource_prefix: "akri.sh".parse().unwrap(),
        refused_pods: None,
        variables: Variables::default(),
        http_address: None,
        device_lists: false,
        claims: None,
        device_networks: crate::model::networks::DeviceNetworks::default(),
        instances_bytes: usize::MAX,
    }
}

/// The values that the controller's tasks share, with an API server that answers by method and path.
pub(super) struct Fake {
    pub(super) shared: Shared,
    asked: Arc<Mutex<Vec<String>>>,
    /// The writer of Events: without it, they would fail.
    _writer: Writer,
}

impl Fake {
    pub(super) fn new(answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (log, answer) = (asked.clone(), Arc::new(answer));
        let server = tower::service_fn(move |request: Request<Body>| {
            let asked = format!("{} {}", request.method(), request.uri());
            let (code, answer) = answer(&asked);
            log.lock().unwrap().push(asked);
            let body = Body::from(answer.to_string().into_bytes());
            let response = Response::builder().status(code).body(body).unwrap();
            async move { Ok::<_, Infallible>(response) }
        });
        let client = Client::new(server, "default");
        let (events, writer) = events(client.clone(), "petiole-controller", "test");
        let shared = Shared {
            client,
            clock: WallClock::System,
            events,
            settings: settings("test"),
            is_leader: watch::channel(true).1,
            offered: watch::Sender::default(),
            recalled: watch::Sender::default(),
            not_offered: watch::Sender::default(),
        };
        Self {
            shared,
            asked,
            _writer: writer,
        }
    }

    /// Returns the requests since the last call.
    pub(super) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

/// The answer to something that fails.
pub(super) fn refusal(code: u16) -> (u16, Value) {
    let reason = if code == 404 { "NotFound" } else { "Other" };
    let status = json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "x" });
    (code, status)
}
