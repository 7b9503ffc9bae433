//! Which names devices have.
mod sequences;

use super::*;
use crate::controller::{
    fixtures::{configuration, instance, key, ready},
    world::OwnedSlice,
};
use k8s_openapi::api::core::v1::ServiceSpec;
use std::sync::Arc;

fn networks() -> DeviceNetworks {
    let ranges = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    DeviceNetworks::new(
        ranges(&["10.0.0.0/8", "fd00::/8"]),
        ranges(&["10.244.0.0/16"]),
    )
}

/// Returns a device at this address, which a node sees or not.
fn device(name: &str, address: &str, is_seen: bool) -> Value {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut properties = json!({ "AKRI_ZEROCONF_DEVICE_ADDR": host });
    if !port.is_empty() {
        properties["AKRI_ZEROCONF_DEVICE_PORT"] = port.into();
    }
    let available = json!({
        "type": "Available", "reason": "NoNode", "lastTransitionTime": "",
        "status": if is_seen { "True" } else { "False" },
    });
    json!({
        "metadata": { "name": name },
        "spec": { "brokerProperties": properties },
        "status": { "conditions": [available] },
    })
}

/// A cluster that does what is planned.
struct Cluster {
    world: World,
    uids: usize,
}

impl Cluster {
    fn new(namespaces: &[&str]) -> Self {
        let mut world = World::default();
        for namespace in namespaces {
            let fields = json!({
                "metadata": { "namespace": namespace, "uid": format!("uid-of-cam-in-{namespace}") },
                "spec": { "deviceService": true },
            });
            world = world.with_configuration(configuration("cam", fields));
        }
        Self { world, uids: 0 }
    }

    fn with(devices: &[Value]) -> Self {
        let mut cluster = Self::new(&["default"]);
        devices.iter().for_each(|device| cluster.shows(device));
        cluster
    }

    fn shows(&mut self, device: &Value) {
        let name = device["metadata"]["name"].as_str().unwrap();
        let world = std::mem::take(&mut self.world);
        self.world = world.with_instance(instance(name, device.clone()));
    }

    fn asks(&mut self, is_asked: bool) {
        for configuration in self.world.configurations.values_mut() {
            Arc::make_mut(configuration).spec.device_service = is_asked;
        }
    }

    fn plan(&self) -> Plan {
        plan(&self.world, &networks())
    }

    /// Carries out plans until there is nothing to do. Returns what was done.
    fn settle(&mut self) -> Vec<String> {
        let mut done = vec![];
        for _ in 0..3 {
            let actions = self.plan().actions;
            done.extend(actions.iter().map(words));
            for action in actions {
                self.execute(action);
            }
        }
        let left: Vec<_> = self.plan().actions.iter().map(words).collect();
        let is_report = |words: &String| words.starts_with("report");
        assert!(left.iter().all(is_report), "{left:?} is left");
        done
    }

    fn execute(&mut self, action: Action) {
        let World {
            services, slices, ..
        } = &mut self.world;
        match action {
            Action::Apply(apply) => {
                self.uids += 1;
                let meta = &apply.manifest["metadata"];
                let texts = |value: &Value| serde_json::from_value(value.clone()).ok();
                let meta = Meta {
                    uid: apply.uid.unwrap_or(format!("new-{}", self.uids)),
                    labels: texts(&meta["labels"]).unwrap_or_default(),
                    annotations: texts(&meta["annotations"]).unwrap_or_default(),
                    owner: meta["ownerReferences"][0]["uid"]
                        .as_str()
                        .map(str::to_owned),
                    ..Meta::default()
                };
                if apply.kind == Kind::EndpointSlice {
                    let content = content(&apply.manifest);
                    let slice = OwnedSlice { meta, content };
                    slices.insert(apply.key, Arc::new(slice));
                } else {
                    let spec = ServiceSpec::default();
                    let service = OwnedService { meta, spec };
                    services.insert(apply.key, Arc::new(service));
                }
            }
            Action::Delete {
                kind: Kind::EndpointSlice,
                key,
                uid,
                ..
            } => {
                assert_eq!(slices.remove(&key).unwrap().meta.uid, uid);
            }
            Action::Delete { key, uid, .. } => {
                assert_eq!(services.remove(&key).unwrap().meta.uid, uid);
            }
            Action::Report(..) => {}
        }
    }

    /// Returns all slices in short.
    fn slices(&self) -> Vec<String> {
        let slices = self.world.slices.iter();
        slices
            .map(|(key, slice)| {
                let endpoints = slice.content.endpoints.iter();
                let endpoints = endpoints.map(|(ip, ready)| match ready {
                    true => ip.clone(),
                    false => format!("({ip})"),
                });
                let endpoints: Vec<_> = endpoints.collect();
                format!("{key} {}", endpoints.join(" "))
            })
            .collect()
    }

    fn refusal(&self) -> Option<String> {
        let mut refused = self.plan().refused;
        let problem = refused.remove(&key("cam"))?;
        assert_eq!(problem.reason, Reason::DeviceServiceRefused);
        Some(problem.message)
    }
}

fn content(manifest: &Value) -> SliceContent {
    let part = serde_json::from_value(manifest.clone()).unwrap();
    crate::controller::world::owned_slice(part).content
}

fn words(action: &Action) -> String {
    let kind = action.kind().name();
    match action {
        Action::Apply(apply) if apply.uid.is_none() => format!("create {kind} {}", apply.key),
        Action::Apply(apply) => format!("update {kind} {}", apply.key),
        Action::Delete { key, .. } => format!("delete {kind} {key}"),
        Action::Report(_, owner, key) => format!("report {kind} {key} of {}", owner.key),
    }
}

#[test]
fn each_device_has_a_service_and_so_have_all_together_by_family_and_port() {
    let mut cluster = Cluster::with(&[
        device("cam-1", "10.0.0.7:80", true),
        device("cam-2", "[fd00::2]:80", true),
        device("cam-3", "10.0.0.8:80", false),
        device("cam-4", "10.0.0.7:81", true),
        device("cam-5", "10.0.0.9", true),
    ]);
    cluster.settle();
    let services: Vec<_> = cluster.world.services.keys().map(|k| &*k.name).collect();
    let of_each = (1..=5).map(|n| format!("cam-{n}-device"));
    assert_eq!(
        services,
        of_each
            .chain(["cam-devices".to_owned()])
            .collect::<Vec<_>>()
    );
    assert_eq!(
        cluster.slices(),
        [
            "default/cam-1-device-ipv4-80-0 10.0.0.7",
            "default/cam-2-device-ipv6-80-0 fd00::2",
            "default/cam-3-device-ipv4-80-0 (10.0.0.8)",
            "default/cam-4-device-ipv4-81-0 10.0.0.7",
            "default/cam-5-device-ipv4-any-0 10.0.0.9",
            "default/cam-devices-ipv4-80-0 10.0.0.7 (10.0.0.8)",
            "default/cam-devices-ipv4-81-0 10.0.0.7",
            "default/cam-devices-ipv4-any-0 10.0.0.9",
            "default/cam-devices-ipv6-80-0 fd00::2",
        ]
    );
    assert_eq!(cluster.refusal(), None);
}

#[test]
fn the_objects_are_what_kubernetes_and_the_admission_policy_expect() {
    let mut cluster = Cluster::with(&[device("cam-1", "10.0.0.7:80", false)]);
    let services = cluster.plan().actions;
    let Action::Apply(service) = &services[0] else {
        panic!("{services:?}");
    };
    let owners = &service.manifest["metadata"]["ownerReferences"];
    assert_eq!(owners[0]["kind"], "Instance");
    assert_eq!(service.manifest["spec"], json!({ "clusterIP": "None" }));
    for action in services {
        cluster.execute(action);
    }
    let slices = cluster.plan().actions;
    let Action::Apply(slice) = &slices[0] else {
        panic!("{slices:?}");
    };
    let expected = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "cam-1-device-ipv4-80-0",
            "namespace": "default",
            "labels": {
                "akri.sh/configuration": "cam",
                "endpointslice.kubernetes.io/managed-by": "petiole-controller",
                "kubernetes.io/service-name": "cam-1-device",
                "service.kubernetes.io/headless": "",
            },
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Service", "name": "cam-1-device", "uid": "new-1", "controller": true,
            }],
        },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": ["10.0.0.7"], "conditions": { "ready": false } }],
        "ports": [{ "name": "", "port": 80, "protocol": "TCP" }],
    });
    assert_eq!(slice.manifest, expected);
}

#[test]
fn only_allowed_addresses_have_names_and_the_others_are_told_with_the_remedy() {
    for (address, why) in [
        ("11.0.0.1:80", "has 11.0.0.1, which is in no network"),
        (
            "10.244.1.2:80",
            "has 10.244.1.2, which is in a network of the cluster's Pods",
        ),
        ("10.0.0.2:80", "has 10.0.0.2, which is one of a node"),
        (
            "10.200.1.1:80",
            "has 10.200.1.1, which is one of a node or of its Pods",
        ),
        (
            "[fd00:ec2::254]:80",
            "has fd00:ec2::254, which is of a machine itself",
        ),
        (
            "[::ffff:10.244.1.2]:80",
            "has 10.244.1.2, which is in a network",
        ),
        (
            "[fe80::1%eth0]:80",
            "has no address that means the same on every node",
        ),
        (
            "127.0.0.1:80",
            "has no address that means the same on every node",
        ),
        ("cam.local:80", "has cam.local:80, which is no IP address"),
    ] {
        let mut cluster = Cluster::with(&[device("cam-1", address, true)]);
        let mut node = ready();
        node.networks = vec![
            "10.0.0.2".parse().unwrap(),
            "10.200.1.0/24".parse().unwrap(),
        ];
        cluster.world = std::mem::take(&mut cluster.world).with_nodes([("a", node)]);
        assert_eq!(
            cluster.settle(),
            ["create Service default/cam-devices"],
            "{address}"
        );
        let refusal = cluster.refusal().unwrap();
        assert!(
            refusal.contains(&format!("Instance cam-1 {why}")),
            "{refusal}"
        );
        assert!(refusal.contains("--device-service-networks"), "{refusal}");
    }
    // A device that is not in the network at all.
    let usb = json!({ "metadata": { "name": "cam-1" }, "spec": { "brokerProperties": {} } });
    let refusal = Cluster::with(&[usb.clone(), device("cam-2", "10.0.0.7:80", true)]).refusal();
    assert!(refusal.unwrap().contains("cam-1 has no address"));
    let mut both = Cluster::with(&[usb, device("cam-2", "11.0.0.1:80", true)]);
    assert!(both.refusal().unwrap().contains("and 1 more have none"));
    both.asks(false);
    assert_eq!(both.refusal(), None);
}

#[test]
fn many_devices_have_slices_of_a_hundred_and_long_names_keep_their_end() {
    let devices: Vec<_> = (0..250)
        .map(|n| {
            device(
                &format!("cam-{n}"),
                &format!("10.0.{}.{}:80", n / 200, n % 200),
                true,
            )
        })
        .collect();
    let mut cluster = Cluster::with(&devices);
    cluster.settle();
    let sizes = cluster.world.slices.iter();
    let sizes = sizes.filter(|(key, _)| key.name.starts_with("cam-devices-"));
    let sizes: Vec<_> = sizes
        .map(|(_, slice)| slice.content.endpoints.len())
        .collect();
    assert_eq!(sizes, [100, 100, 50]);
    let long = service_key("n", &"x".repeat(63), "device").name;
    assert!(
        long.len() <= NAME_BYTES && long.ends_with("-device"),
        "{long}"
    );
}
