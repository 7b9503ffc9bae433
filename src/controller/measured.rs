//! Gives `benches/controller.rs` the plans of a controller, in a world of any size. Nothing else uses this file.
use super::{
    brokers::{memory::Memory as Brokers, plan as brokers, report::Reports},
    nodes::{absent_node::Now, lost::Memory as Lost, plan as nodes},
    parts::Parts,
    services::plan as services,
    status::plan as status,
    touched::touched,
    world::{BrokerPod, Meta, NodeState, World},
};
use crate::{
    api::{
        configuration::Configuration,
        instance::{Instance, InstanceSpec},
        names,
        node_devices::{ConfigurationView, NodeDevices, NodeDevicesSpec, SeenDevice},
    },
    model::{instance_name::InstanceKey, names::ObjectKey, typed_names::ConfigurationKey},
};
use json_patch::PatchOperation;
use k8s_openapi::jiff::Timestamp;
use std::{collections::BTreeMap, sync::Arc};
use tokio::time::Instant;

const NODES: usize = 100;
/// The Instances of one Configuration.
const INSTANCES: usize = 50;

/// The memories of the controller's jobs, in a world in which each Instance has a broker.
pub struct Measured {
    world: Arc<World>,
    before: Arc<World>,
    nodes: Lost,
    brokers: Brokers,
    idle: services::Idle,
    reports: Reports,
    changes: usize,
}

fn node(n: usize) -> String {
    format!("node-{:03}", n % NODES)
}

fn configuration_name(n: usize) -> String {
    format!("camera-{:04}", n / INSTANCES)
}

fn configuration(name: &str) -> anyhow::Result<Configuration> {
    let spec = serde_json::json!({
        "discoveryHandler": { "name": "debugEcho" },
        "brokerSpec": { "brokerPodSpec": { "containers": [{ "name": "a" }] } },
        "maxInstances": 1000,
    });
    let mut configuration = Configuration::new(name, serde_json::from_value(spec)?);
    configuration.metadata.namespace = Some("default".to_owned());
    configuration.metadata.uid = Some(format!("uid-{name}"));
    configuration.metadata.generation = Some(1);
    Ok(configuration)
}

fn instance(n: usize) -> Instance {
    let name = format!("{}-{n:06x}", configuration_name(n));
    let spec = InstanceSpec {
        configuration_name: configuration_name(n).as_str().into(),
        cdi_name: format!("akri.sh/camera={n:06x}"),
        capacity: 1,
        broker_properties: BTreeMap::from([("URL".to_owned(), format!("rtsp://{n}/"))]),
        shared: true,
        nodes: vec![node(n).as_str().into()],
        device_usage: BTreeMap::from([(format!("{name}-0"), node(n))]),
    };
    let mut instance = Instance::new(&name, spec);
    let metadata = &mut instance.metadata;
    metadata.namespace = Some("default".to_owned());
    metadata.uid = Some(format!("uid-{name}"));
    metadata.labels = Some(BTreeMap::from([(
        names::node_label(&node(n)),
        String::new(),
    )]));
    metadata.annotations = Some(BTreeMap::from([(
        names::DEVICE_ID.to_owned(),
        n.to_string(),
    )]));
    instance
}

fn broker(instance: &Instance, node: String) -> BrokerPod {
    let spec = &instance.spec;
    let name = instance.metadata.name.clone().unwrap_or_default();
    let labels = [
        (
            names::CONFIGURATION_LABEL,
            spec.configuration_name.to_string(),
        ),
        (names::INSTANCE_LABEL, name),
        (names::TARGET_NODE_LABEL, node.clone()),
    ];
    BrokerPod {
        meta: Meta {
            labels: labels.map(|(key, value)| (key.to_owned(), value)).into(),
            owner: instance.metadata.uid.clone(),
            ..Meta::default()
        },
        node: Some(node),
        phase: "Running".to_owned(),
        is_available: true,
        ..BrokerPod::default()
    }
}

fn world(instances: usize) -> anyhow::Result<World> {
    let mut world = World::default();
    let mut views: BTreeMap<String, BTreeMap<String, ConfigurationView>> = BTreeMap::new();
    for n in 0..instances {
        let (instance, of) = (instance(n), configuration_name(n));
        let key = InstanceKey::new(
            "default",
            instance.metadata.name.as_deref().unwrap_or_default(),
        );
        let pod = ObjectKey::new("default", format!("{}-{}-pod", node(n), key.name));
        world.pods.insert(pod, Arc::new(broker(&instance, node(n))));
        let view = views.entry(node(n)).or_default().entry(of.clone());
        let view = view.or_insert_with(|| ConfigurationView {
            namespace: "default".to_owned(),
            name: of.clone(),
            complete: true,
            ..ConfigurationView::default()
        });
        view.devices.push(SeenDevice {
            id: Some(n.to_string()),
            ..SeenDevice::default()
        });
        world.instances.insert(key, Arc::new(instance));
        if n % INSTANCES == 0 {
            let key = ConfigurationKey::new("default", of.as_str());
            world
                .configurations
                .insert(key, Arc::new(configuration(&of)?));
        }
    }
    for n in 0..NODES {
        let state = NodeState {
            is_ready: true,
            ..NodeState::default()
        };
        world.nodes.insert(node(n).as_str().into(), Arc::new(state));
        let views = views.remove(&node(n)).unwrap_or_default();
        let spec = NodeDevicesSpec {
            left_out: None,
            configurations: views.into_values().collect(),
        };
        let object = Arc::new(NodeDevices::new(&node(n), spec));
        world.node_devices.insert(node(n).as_str().into(), object);
    }
    Ok(world)
}

impl Measured {
    /// Returns a controller that has planned its whole world once.
    pub fn new(instances: usize) -> anyhow::Result<Self> {
        let world = Arc::new(world(instances)?);
        let mut measured = Self {
            before: world.clone(),
            world,
            nodes: Lost::default(),
            brokers: Brokers::default(),
            idle: services::Idle::new(),
            reports: Reports::new(),
            changes: 0,
        };
        measured.write_status()?;
        anyhow::ensure!(measured.plan_whole() == 0, "something is left to do");
        Ok(measured)
    }

    /// Writes the status of all Configurations.
    fn write_status(&mut self) -> anyhow::Result<()> {
        let seen = status::Seen {
            world: &self.world,
            brokers: &self.reports,
            problems: &BTreeMap::new(),
        };
        let planned = status::plan(seen, Timestamp::now());
        let mut world = World::clone(&self.world);
        for mut action in planned.actions {
            let status::Object::Configuration(key) = &action.object else {
                continue;
            };
            let Some(configuration) = world.configurations.get_mut(key) else {
                continue;
            };
            // A test for `null` holds of what is not there, and fails in this crate.
            (action.patch.0).retain(|o| !matches!(o, PatchOperation::Test(_)));
            let mut object = serde_json::to_value(&**configuration)?;
            json_patch::patch(&mut object, &action.patch)?;
            *configuration = Arc::new(serde_json::from_value(object)?);
        }
        self.world = Arc::new(world);
        Ok(())
    }

    /// Changes one Instance.
    pub fn change(&mut self) {
        self.before = self.world.clone();
        let mut world = World::clone(&self.world);
        self.changes += 1;
        let n = self.changes * 7919 % world.instances.len().max(1);
        if let Some(instance) = world.instances.values_mut().nth(n) {
            *instance = Arc::new(Instance::clone(instance));
        }
        self.world = Arc::new(world);
    }

    /// Plans the whole world for each job. Returns the number of actions.
    pub fn plan_whole(&mut self) -> usize {
        (0..4).map(|job| self.plan(job, &self.world.clone())).sum()
    }

    /// Plans the parts that the last change has touched, for each job. Returns the number of actions.
    pub fn plan_touched(&mut self) -> usize {
        let job = |job| {
            let parts = touched(&self.before, &self.world);
            assert!(parts != Parts::All, "one change touches one part");
            let world = self.world.part(&parts);
            self.plan(job, &world)
        };
        (0..4).map(job).sum()
    }

    fn plan(&mut self, job: usize, world: &World) -> usize {
        let clock = Timestamp::now();
        let now = Now {
            clock,
            instant: Instant::now(),
        };
        match job {
            0 => {
                self.nodes.notice(world, now);
                nodes::plan(world, &self.nodes, now).actions.len()
            }
            1 => {
                self.brokers.observe(world, clock);
                let prefix = names::GROUP.parse();
                let Ok(resource_prefix) = &prefix else {
                    return 0;
                };
                let plan = || {
                    brokers::plan(&brokers::Input {
                        world,
                        memory: &self.brokers,
                        resource_prefix,
                        now: clock,
                    })
                };
                // The second plan says what to wait for.
                plan().actions.len() + plan().actions.len()
            }
            2 => services::plan(world, &self.idle, clock).actions.len(),
            _ => {
                let seen = status::Seen {
                    world,
                    brokers: &self.reports,
                    problems: &BTreeMap::new(),
                };
                status::plan(seen, clock).actions.len()
            }
        }
    }
}
