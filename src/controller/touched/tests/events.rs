//! What can happen to a cluster.
use super::server::{Server, change, remove};
use crate::{
    api::{instance::Instance, names},
    controller::fixtures::{configuration, instance, node_devices, not_ready, off, ready},
    model::{
        device::{DeviceId, Scope},
        instance_name::InstanceName,
        names::Key,
    },
};
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

/// The Configurations. The third has the name of an Instance of the first; the fourth has its name in another namespace.
pub(super) const CONFIGURATIONS: [(&str, &str); 4] = [
    ("default", "cam"),
    ("default", "tv"),
    ("default", "cam-1"),
    ("other", "cam"),
];
pub(super) const NODES: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone)]
pub(super) enum Event {
    Node(usize, u8),
    /// What a node reports of the devices of a Configuration: of each whether it sees it.
    Report(usize, usize, Vec<u8>, bool),
    Silence(usize),
    Configuration(usize, u8, u8),
    /// An Instance of an agent's own, which may have the name of a shared one.
    Local(usize, usize, usize),
    Instance(usize, u8, usize),
    Pod(usize, u8, usize),
    Service(usize, u8, usize),
    Job(usize, u8),
    Passes(u64),
}

pub(super) fn event() -> impl Strategy<Value = Event> {
    let of = || 0..CONFIGURATIONS.len();
    let seen = || prop::collection::vec(0..3_u8, 2);
    prop_oneof![
        1 => (0..3_usize, 0..5_u8).prop_map(|(n, state)| Event::Node(n, state)),
        4 => (0..3_usize, of(), seen(), any::<bool>())
            .prop_map(|(n, of, seen, complete)| Event::Report(n, of, seen, complete)),
        1 => (0..3_usize).prop_map(Event::Silence),
        3 => (of(), 0..6_u8, 0..4_u8).prop_map(|(of, b, s)| Event::Configuration(of, b, s)),
        1 => (of(), of(), 0..2_usize).prop_map(|(of, like, n)| Event::Local(of, like, n)),
        3 => (0..8_usize, 0..6_u8, of()).prop_map(|(n, what, of)| Event::Instance(n, what, of)),
        5 => (0..8_usize, 0..9_u8, of()).prop_map(|(n, what, of)| Event::Pod(n, what, of)),
        2 => (0..8_usize, 0..4_u8, of()).prop_map(|(n, what, of)| Event::Service(n, what, of)),
        1 => (0..8_usize, 0..2_u8).prop_map(|(n, what)| Event::Job(n, what)),
        3 => prop_oneof![1..5_u64, 30..100_u64, 200..400_u64].prop_map(Event::Passes),
    ]
}

fn device(n: usize) -> String {
    format!("device-{n}")
}

/// Returns the name of the Instance of a shared device.
fn instance_name(of: usize, n: usize) -> String {
    let configuration = CONFIGURATIONS[of].1.into();
    let device = DeviceId::new(device(n));
    let names = InstanceName::candidates(&configuration, &device, Scope::Shared, &"".into());
    names[0].to_string()
}

impl Server {
    /// Carries out an event, except that time passes.
    pub(super) fn happen(&mut self, event: &Event, clock: Timestamp) {
        let uid = self.uid();
        let world = &mut self.world;
        match event {
            Event::Node(n, 0) => drop(world.nodes.remove(NODES[*n])),
            Event::Node(n, state) => {
                let state = match state {
                    1 => not_ready(clock),
                    2 => off(clock),
                    _ => ready(),
                };
                world.nodes.insert(NODES[*n].into(), Arc::new(state));
            }
            Event::Report(n, of, seen, complete) => self.report(*n, *of, seen, *complete),
            Event::Silence(n) => drop(world.node_devices.remove(NODES[*n])),
            Event::Configuration(of, spec, service) => self.configure(*of, *spec, *service),
            Event::Local(of, like, n) => {
                let (namespace, name) = CONFIGURATIONS[*of];
                let made = json!({
                    "metadata": { "namespace": namespace, "uid": uid },
                    "spec": { "configurationName": name, "nodes": ["a"] },
                });
                let made = instance(&instance_name(*like, *n), made);
                world
                    .instances
                    .insert(crate::store::instance_key(&made.metadata), Arc::new(made));
            }
            Event::Instance(n, what, of) => self.instance(*n, *what, *of, uid),
            Event::Pod(n, what, of) => self.pod(*n, *what, *of, clock),
            Event::Service(n, 0, _) => remove(&mut world.services, *n),
            Event::Service(n, what, of) => change(&mut world.services, *n, |service| {
                let name = instance_name(*of, 0);
                match what {
                    1 => service
                        .meta
                        .labels
                        .insert(names::INSTANCE_LABEL.to_owned(), name),
                    2 => service.meta.labels.remove(names::CONFIGURATION_LABEL),
                    _ => service.meta.owner.replace("another".to_owned()),
                };
            }),
            Event::Job(n, 0) => remove(&mut world.jobs, *n),
            Event::Job(n, _) => change(&mut world.jobs, *n, |job| {
                job.failure = Some("failed".to_owned());
            }),
            Event::Passes(_) => {}
        }
    }

    fn report(&mut self, n: usize, of: usize, seen: &[u8], complete: bool) {
        let uid = self.uid();
        let world = &mut self.world;
        let (namespace, name) = CONFIGURATIONS[of];
        let devices = seen.iter().enumerate().filter(|(_, seen)| **seen > 0);
        let devices: Vec<Value> = devices
            .map(|(n, seen)| match seen {
                1 => json!({ "id": device(n), "state": "Unhealthy" }),
                _ => json!({ "id": device(n), "properties": { "N": n.to_string() } }),
            })
            .collect();
        let view = json!({
            "namespace": namespace, "name": name, "complete": complete, "devices": devices,
        });
        let known = world.node_devices.get(NODES[n]);
        let views = known.map(|object| object.spec.configurations.clone());
        let mut views = views.unwrap_or_default();
        views.retain(|view| (view.namespace.as_str(), view.name.as_str()) != (namespace, name));
        views.push(serde_json::from_value(view).unwrap());
        let mut object = node_devices(NODES[n], json!(views));
        object.metadata.uid = known.map_or(Some(uid), |known| known.metadata.uid.clone());
        world.node_devices.insert(NODES[n].into(), Arc::new(object));
    }

    fn configure(&mut self, of: usize, broker: u8, service: u8) {
        let (namespace, name) = CONFIGURATIONS[of];
        let key = Key::new(namespace, name);
        let world = &mut self.world;
        let before = world.configurations.remove(&key);
        world.unreadable.remove(&key);
        let broker = match broker {
            0 => return,
            1 => {
                world.unreadable.insert(key, "why".to_owned());
                return;
            }
            2 => Value::Null,
            3 | 4 => {
                json!({ "brokerPodSpec": { "containers": [{ "name": "a" }], "hostNetwork": broker == 3 } })
            }
            _ => {
                json!({ "brokerJobSpec": { "template": { "spec": { "containers": [{ "name": "a" }] } } } })
            }
        };
        let spec = |is: bool, port: u8| is.then(|| json!({ "ports": [{ "port": port }] }));
        let generation = before
            .as_ref()
            .and_then(|before| before.metadata.generation);
        let made = json!({
            "metadata": {
                "namespace": namespace, "generation": generation.unwrap_or_default() + 1,
                "uid": format!("uid-{namespace}-{name}"),
            },
            "spec": {
                "brokerSpec": broker, "capacity": 1 + service % 2,
                "instanceServiceSpec": spec(service & 1 > 0, service),
                "configurationServiceSpec": spec(service & 2 > 0, service),
            },
        });
        let mut made = configuration(name, made);
        made.status = before.and_then(|before| before.status.clone());
        world.configurations.insert(key, Arc::new(made));
    }

    fn instance(&mut self, n: usize, what: u8, of: usize, uid: String) {
        let instances = &mut self.world.instances;
        if what == 0 {
            return remove(instances, n);
        }
        change(instances, n, |instance: &mut Instance| match what {
            1 => instance.spec.configuration_name = CONFIGURATIONS[of].1.into(),
            2 => instance.metadata.uid = Some(uid),
            3 => instance.spec.nodes.clear(),
            _ => {
                let name = instance.metadata.name.clone().unwrap();
                let usage = &mut instance.spec.device_usage;
                usage.insert(format!("{name}-0"), NODES[n % 3].to_owned());
            }
        });
    }

    fn pod(&mut self, n: usize, what: u8, of: usize, clock: Timestamp) {
        let world = &mut self.world;
        if what == 0 {
            return remove(&mut world.pods, n);
        }
        let uids = world.instances.values().map(|i| i.metadata.uid.clone());
        let uids: Vec<_> = uids.collect();
        change(&mut world.pods, n, |pod| {
            let labels = &mut pod.meta.labels;
            match what {
                1 => drop(labels.insert(
                    names::CONFIGURATION_LABEL.to_owned(),
                    CONFIGURATIONS[of].1.to_owned(),
                )),
                2 => drop(labels.insert(names::INSTANCE_LABEL.to_owned(), instance_name(of, 0))),
                3 => drop(labels.remove(names::INSTANCE_LABEL)),
                4 => pod.meta.owner = uids.get(of).cloned().flatten(),
                5 => pod.meta.is_deleting = true,
                6 => {
                    pod.phase = "Failed".to_owned();
                    (pod.started, pod.finished) = (Some(clock), Some(clock));
                }
                _ => {
                    pod.phase = "Running".to_owned();
                    (pod.started, pod.is_available) = (Some(clock), true);
                }
            }
        });
    }
}
