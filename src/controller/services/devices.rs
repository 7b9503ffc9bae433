//! Decides by which names Pods reach devices themselves (`deviceService`): a headless Service of each device, one of all devices of
//! a Configuration, and the EndpointSlices of both. Pure.
//!
//! Who writes EndpointSlices sends what Pods say to a name wherever it likes. So they have only addresses that the administrator
//! allows, and belong to Services that are ours.
use super::action::{Action, Apply, Kind, Owner, Service};
use crate::{
    api::{configuration::Problem, names, reason::Reason},
    controller::{
        lists::format::{Devices, target},
        outcome::Problems,
        world::{Meta, OwnedService, SliceContent, World},
    },
    model::{
        names::{ObjectKey, shortened},
        networks::DeviceNetworks,
        printable::printable,
        typed_names::ConfigurationKey,
    },
};
use petiole_base::collect::CollectMap as _;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

/// The longest name of a Service, which is a DNS label.
const NAME_BYTES: usize = 63;
/// The endpoints of a slice: as many as Kubernetes' own have.
const IN_SLICE: usize = 100;
/// Changes when another Service is made than before.
const FORMAT: &str = "device-1";

#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    /// The problems of devices that get no name.
    pub(crate) refused: Problems,
}

/// A device that may have a name.
#[derive(Debug, Clone, Copy)]
struct Endpoint {
    ip: IpAddr,
    port: Option<u16>,
    is_ready: bool,
}

/// A Service as it should be.
struct Wanted<'a> {
    key: ObjectKey,
    owner: Owner,
    of: &'a ConfigurationKey,
    /// `None` where there should be none.
    endpoints: Option<&'a [Endpoint]>,
}

/// A slice as it should be.
struct Slice {
    key: ObjectKey,
    family: &'static str,
    content: SliceContent,
}

struct Planning<'a> {
    world: &'a World,
    networks: &'a DeviceNetworks,
    plan: Plan,
    /// The slices that should be there.
    slices: BTreeSet<ObjectKey>,
}

/// A Service goes with its device, or with the field, and its slices go with it. A slice whose Service should not have it goes at once. What
/// belongs to Configurations that are gone is garbage, and what belongs to those that cannot be read stays.
pub(crate) fn plan(world: &World, networks: &DeviceNetworks) -> Plan {
    let mut planning = Planning {
        world,
        networks,
        plan: Plan::default(),
        slices: BTreeSet::new(),
    };
    for (key, configuration) in &world.configurations {
        if configuration.metadata.deletion_timestamp.is_none() {
            planning.configuration(key);
        }
    }
    planning.remove_slices();
    planning.plan
}

impl Planning<'_> {
    fn configuration(&mut self, key: &ConfigurationKey) {
        let configuration = &self.world.configurations[key];
        let asks = configuration.spec.device_service && configuration.spec.instances;
        let is_allowed = asks && !self.networks.is_empty();
        let devices = Devices::new(self.world, key).into_iter();
        let (mut endpoints, mut refused) = (vec![], vec![]);
        for instance in devices.flat_map(|devices| devices.instances) {
            let name = instance.metadata.name.clone().unwrap_or_default();
            let found = if is_allowed {
                self.endpoint(target(&instance), instance.unavailable().is_none())
            } else {
                Err(String::new())
            };
            let its: Vec<_> = found.iter().copied().collect();
            refused.extend(found.err().map(|why| format!("Instance {name} {why}")));
            self.service(&Wanted {
                key: service_key(&key.namespace, &name, "device"),
                owner: Owner::new(
                    "Instance",
                    &ObjectKey::new(&key.namespace, name),
                    &instance.metadata,
                ),
                of: key,
                endpoints: (!its.is_empty()).then_some(&its),
            });
            endpoints.extend(its);
        }
        self.service(&Wanted {
            key: service_key(&key.namespace, &key.name, "devices"),
            owner: Owner::new("Configuration", key, &configuration.metadata),
            of: key,
            endpoints: is_allowed.then_some(&endpoints),
        });
        let why = match refused.as_slice() {
            _ if asks && !is_allowed => "no network is allowed".to_owned(),
            [first, others @ ..] if asks => said(first, others.len()),
            _ => return,
        };
        self.plan.refused.insert(key.clone(), refusal(&why));
    }

    /// Returns the endpoint of a device, or why it has none.
    fn endpoint(&self, target: Option<String>, is_ready: bool) -> Result<Endpoint, String> {
        let target = target.ok_or("has no address that means the same on every node")?;
        let whole: Option<SocketAddr> = target.parse().ok();
        let ip = whole.map(|address| address.ip());
        let ip = ip.or_else(|| target.trim_matches(['[', ']']).parse().ok());
        let Some(ip) = ip.map(|ip| ip.to_canonical()) else {
            let shown = printable(&target);
            return Err(format!("has {shown}, which is no IP address"));
        };
        let nodes = self.world.nodes.values();
        let of_nodes = nodes.flat_map(|node| &node.networks);
        match self.networks.refusal(ip, of_nodes) {
            Some(why) => Err(format!("has {ip}, which {why}")),
            None => Ok(Endpoint {
                ip,
                port: whole.map(|address| address.port()),
                is_ready,
            }),
        }
    }

    fn service(&mut self, wanted: &Wanted<'_>) {
        let existing = self.world.whole().services.get(&wanted.key);
        let is_ours =
            |service: &OwnedService| service.meta.owner.as_ref() == Some(&wanted.owner.uid);
        match (existing, wanted.endpoints) {
            (Some(existing), _) if existing.meta.is_deleting => {}
            (Some(existing), None) if is_ours(existing) => {
                self.delete(Kind::DeviceService, &wanted.key, &existing.meta);
            }
            (_, None) => {}
            (Some(existing), Some(_)) if !is_ours(existing) => {
                self.report(Kind::DeviceService, wanted, wanted.key.clone());
            }
            (existing, Some(endpoints)) => {
                let holds = existing.is_some_and(|service| {
                    let rendered = service.meta.annotations.get(names::RENDERED);
                    rendered.is_some_and(|r| r == FORMAT) && has(&service.meta, &wanted.labels())
                });
                if !holds {
                    let apply = wanted
                        .service()
                        .apply(existing.map(|service| &service.meta));
                    self.plan.actions.push(apply);
                }
                if let Some(service) = existing {
                    for slice in slices(&wanted.key, endpoints) {
                        self.slice(wanted, slice, &service.meta.uid);
                    }
                }
            }
        }
    }

    /// Follows a slice of the Service with this uid.
    fn slice(&mut self, wanted: &Wanted<'_>, slice: Slice, service: &str) {
        let existing = self.world.whole().slices.get(&slice.key);
        self.slices.insert(slice.key.clone());
        match existing {
            Some(existing) if existing.meta.is_deleting => {}
            Some(existing) if existing.meta.owner.as_deref() != Some(service) => {
                self.report(Kind::EndpointSlice, wanted, slice.key);
            }
            existing => {
                let holds = existing.is_some_and(|existing| {
                    let is_same = existing.content == slice.content;
                    is_same && has(&existing.meta, &slice_labels(wanted))
                });
                if !holds {
                    let apply = Box::new(Apply {
                        kind: Kind::EndpointSlice,
                        manifest: slice.manifest(wanted, service),
                        key: slice.key,
                        owner: wanted.owner.clone(),
                        uid: existing.map(|existing| existing.meta.uid.clone()),
                        digest: FORMAT.to_owned(),
                    });
                    self.plan.actions.push(Action::Apply(apply));
                }
            }
        }
    }

    fn remove_slices(&mut self) {
        let world = self.world;
        for (key, slice) in &world.slices {
            let of = slice.meta.labels.get(names::CONFIGURATION_LABEL);
            let of = of.map(|of| ConfigurationKey::new(&key.namespace, of.as_str()));
            let of = of.and_then(|of| world.configurations.get(&of));
            let is_known = of.is_some_and(|of| of.metadata.deletion_timestamp.is_none());
            if is_known && !self.slices.contains(key) && !slice.meta.is_deleting {
                self.delete(Kind::EndpointSlice, key, &slice.meta);
            }
        }
    }

    fn delete(&mut self, kind: Kind, key: &ObjectKey, existing: &Meta) {
        self.plan.actions.push(Action::Delete {
            kind,
            key: key.clone(),
            uid: existing.uid.clone(),
            reason: "no device has this name or address",
        });
    }

    fn report(&mut self, kind: Kind, wanted: &Wanted<'_>, key: ObjectKey) {
        let report = Action::Report(kind, wanted.owner.clone(), key);
        self.plan.actions.push(report);
    }
}

/// Returns the key of a Service. Its end is there however long the name of its owner is: an admission policy knows it by that.
fn service_key(namespace: &str, owner: &str, end: &str) -> ObjectKey {
    let most = NAME_BYTES - end.len() - 1;
    let start = shortened(&owner.replace('.', "-"), most);
    ObjectKey::new(namespace, format!("{start}-{end}"))
}

/// Returns the slices of a Service: of each family and each port. An address is ready if one of its devices is.
fn slices(service: &ObjectKey, endpoints: &[Endpoint]) -> Vec<Slice> {
    let mut groups: BTreeMap<(bool, Option<u16>), BTreeMap<IpAddr, bool>> = BTreeMap::new();
    for Endpoint { ip, port, is_ready } in endpoints {
        let group = groups.entry((ip.is_ipv6(), *port)).or_default();
        *group.entry(*ip).or_default() |= is_ready;
    }
    let mut slices = vec![];
    for ((is_ipv6, port), addresses) in groups {
        let (family, end) = if is_ipv6 {
            ("IPv6", "ipv6")
        } else {
            ("IPv4", "ipv4")
        };
        let of_port = port.map_or("any".to_owned(), |port| port.to_string());
        let addresses: Vec<_> = addresses.into_iter().collect();
        slices.extend(addresses.chunks(IN_SLICE).enumerate().map(|(n, some)| {
            let name = format!("{}-{end}-{of_port}-{n}", service.name);
            let endpoints = some.iter().map(|(ip, ready)| (ip.to_string(), *ready));
            Slice {
                key: ObjectKey::new(&service.namespace, name),
                family,
                content: SliceContent {
                    endpoints: endpoints.collect_map(),
                    ports: port.map(i32::from).into_iter().collect(),
                },
            }
        }));
    }
    slices
}

impl Wanted<'_> {
    fn labels(&self) -> [Label<'_>; 2] {
        [
            (names::CONTROLLER_LABEL, names::GROUP),
            (names::CONFIGURATION_LABEL, self.of.name.as_str()),
        ]
    }

    /// Returns the Service. It has no ports, because each slice has its own.
    fn service(&self) -> Service<'_> {
        Service {
            kind: Kind::DeviceService,
            key: &self.key,
            owner: &self.owner,
            digest: FORMAT,
            labels: json!(BTreeMap::from(self.labels())),
            spec: json!({ "clusterIP": "None" }),
        }
    }
}

impl Slice {
    fn manifest(&self, of: &Wanted<'_>, service: &str) -> Value {
        let SliceContent { endpoints, ports } = &self.content;
        let endpoints = endpoints.iter().map(|(address, is_ready)| {
            json!({ "addresses": [address], "conditions": { "ready": is_ready } })
        });
        let ports = ports.iter();
        let ports = ports.map(|port| json!({ "name": "", "port": port, "protocol": "TCP" }));
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": self.key.name,
                "namespace": self.key.namespace,
                "labels": BTreeMap::from(slice_labels(of)),
                "ownerReferences": [{
                    "apiVersion": "v1",
                    "kind": "Service",
                    "name": of.key.name,
                    "uid": service,
                    "controller": true,
                }],
            },
            "addressType": self.family,
            "endpoints": endpoints.collect::<Vec<_>>(),
            "ports": ports.collect::<Vec<_>>(),
        })
    }
}

/// A label and its value.
type Label<'a> = (&'static str, &'a str);

fn slice_labels<'a>(of: &'a Wanted<'_>) -> [Label<'a>; 4] {
    [
        (names::CONFIGURATION_LABEL, of.of.name.as_str()),
        (names::MANAGED_BY_LABEL, names::CONTROLLER_MANAGER),
        (names::SERVICE_NAME_LABEL, &of.key.name),
        (names::HEADLESS_LABEL, ""),
    ]
}

/// Returns whether an object has these labels, besides those of others.
fn has(meta: &Meta, labels: &[Label<'_>]) -> bool {
    let has = |(key, value): &Label<'_>| meta.labels.get(*key).is_some_and(|has| has == value);
    labels.iter().all(has)
}

fn said(first: &str, others: usize) -> String {
    match others {
        0 => format!("{first}, so that it has no name"),
        others => format!("{first}, so that it has no name, and {others} more have none"),
    }
}

fn refusal(why: &str) -> Problem {
    let note = format!(
        "spec.deviceService: {why}; the administrator of the controller allows networks with --device-service-networks (the \
         chart's deviceServices.networks); otherwise set spec.deviceService to false"
    );
    Problem::new(Reason::DeviceServiceRefused, note)
}

#[cfg(test)]
mod tests;
