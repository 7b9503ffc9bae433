use super::*;
use crate::{
    agent::values::Accepted,
    discovery::{SessionSpec, damping::Damper, session::DiscoveryState},
    model::{
        device::{Device, DeviceSet},
        limits::SLOTS_MAX,
        resource_names::ResourceNames,
    },
    store::manifest,
};
use petiole_kubelet_api::device_plugin::{Device as ListedDevice, ListAndWatchResponse, UNHEALTHY};
use prost::Message as _;

/// A node with Configurations without Instances, and what was offered last.
#[derive(Default)]
struct Node {
    validated: ValidatedConfigurations,
    discoveries: Discoveries,
    offers: NodeOnly,
    uses: Vec<Use>,
    are_uses_known: bool,
    uptime: u64,
    max_devices: usize,
}

impl Node {
    fn new() -> Self {
        Self {
            max_devices: 2000,
            are_uses_known: true,
            ..Self::default()
        }
    }

    fn configure(&mut self, name: &str, fields: &str) {
        let without = if fields.contains("instances:") {
            ""
        } else {
            "instances: false, "
        };
        let text = format!(
            "{{apiVersion: akri.sh/v0, kind: Configuration, metadata: {{name: {name}}}, spec: {{discoveryHandler: {{name: paths}}, {without}{fields}}}}}"
        );
        let accepted = AcceptedConfiguration {
            configuration: Arc::new(manifest::read(&text).unwrap().remove(0)),
            session: SessionSpec::default(),
            scope: Scope::Node,
            selection: Selection::Selected,
            resource_name: None,
        };
        self.accepted().insert(key(name), accepted);
    }

    fn accepted(&mut self) -> &mut Accepted {
        &mut self.validated.accepted
    }

    fn see(&mut self, name: &str, set: DeviceSet) {
        let state = DiscoveryState {
            set: Arc::new(set),
            ..DiscoveryState::default()
        };
        self.discoveries.insert(key(name), state);
    }

    fn follow(&mut self) -> &mut Self {
        let world = World {
            validated: &self.validated,
            discoveries: &self.discoveries,
            node: &"node-a".into(),
            max_devices: self.max_devices,
            uses: self.are_uses_known.then_some(&*self.uses),
            uptime: Duration::from_secs(self.uptime),
        };
        self.offers = follow(world, &self.offers);
        self
    }

    fn next_end(&self) -> Option<Duration> {
        next_end(&self.offers, Duration::from_secs(self.uptime))
    }

    /// Returns the ids and the number of the healthy ones.
    fn listed(&self, name: &str) -> (usize, usize) {
        let slots = self.slots(name);
        let healthy = slots.iter().filter(|slot| slot.is_healthy);
        (slots.len(), healthy.count())
    }

    fn slots(&self, name: &str) -> Vec<Slot> {
        let offer = self.offers.get(&ConfigurationName::from(name));
        let limits = slot_limits(&Instances::new(), &self.offers);
        offer.map_or(vec![], |offer| offer.listed(limits.of(offer.namespace())))
    }
}

fn key(name: &str) -> ConfigurationKey {
    ConfigurationKey::new("default", name)
}

fn set(ids: &[&str]) -> DeviceSet {
    DeviceSet::complete(ids.iter().copied().map(Device::new))
}

fn many(count: usize) -> DeviceSet {
    DeviceSet::complete((0..count).map(|n| Device::new(format!("/dev/a{n}"))))
}

#[test]
fn each_device_has_its_slots_and_they_are_named_as_with_an_instance() {
    let mut node = Node::new();
    node.configure("gpu", "capacity: 2");
    node.see("gpu", set(&["/dev/dri/card0", "/dev/dri/card1"]));
    let ids: Vec<String> = node
        .follow()
        .slots("gpu")
        .into_iter()
        .map(|slot| slot.id)
        .collect();
    let name = |id: &str| {
        let [name, _] = InstanceName::candidates(
            &"gpu".into(),
            &DeviceId::new(id),
            Scope::Node,
            &"node-a".into(),
        );
        name
    };
    let mut expected = vec![];
    for device in ["/dev/dri/card0", "/dev/dri/card1"] {
        expected.extend([0, 1].map(|n| SlotId::new(name(device), n).to_string()));
    }
    expected.sort();
    assert_eq!(ids, expected);
    let claim = node.offers[&ConfigurationName::from("gpu")]
        .claim(std::slice::from_ref(&ids))
        .unwrap();
    assert_eq!(
        claim
            .changes()
            .map(|c| c.slot.to_string())
            .collect::<Vec<_>>(),
        ids
    );
    for unknown in ["gpu-ffffff-0", "gpu-0", "", "x"] {
        let refused =
            node.offers[&ConfigurationName::from("gpu")].claim(&[vec![unknown.to_owned()]]);
        assert!(
            matches!(refused, Err(ClaimError::Unknown { .. })),
            "{unknown}"
        );
    }
    // With Instances, or on a node that is left out, nothing is offered here.
    node.configure("gpu", "instances: true");
    assert_eq!(node.follow().listed("gpu"), (0, 0));
    node.configure("gpu", "capacity: 2");
    node.accepted().get_mut(&key("gpu")).unwrap().selection = Selection::LeftOut;
    assert!(node.follow().offers.is_empty());
}

#[test]
fn a_device_that_is_gone_is_unhealthy_for_the_grace_period_and_then_goes() {
    let mut node = Node::new();
    node.configure("cam", "capacity: 3");
    node.see("cam", set(&["a", "b"]));
    assert_eq!(node.follow().listed("cam"), (6, 6));
    node.see("cam", set(&["a"]));
    assert_eq!(node.follow().listed("cam"), (6, 3));
    assert_eq!(node.next_end(), Some(Duration::from_secs(60)));
    node.uptime = 59;
    assert_eq!(node.follow().listed("cam"), (6, 3));
    node.see("cam", set(&["a", "b"]));
    assert_eq!(node.follow().listed("cam"), (6, 6));
    assert_eq!(node.next_end(), None);
    node.see("cam", set(&["a"]));
    node.follow().uptime = 119;
    let gone = node.slots("cam").into_iter().find(|slot| !slot.is_healthy);
    let gone = gone.unwrap().id;
    node.uses = vec![Use {
        ids: [gone.parse().unwrap()].into(),
        ..Use::default()
    }];
    assert_eq!(node.follow().listed("cam"), (6, 3), "a container has it");
    assert_eq!(node.next_end(), None);
    node.uses.clear();
    assert_eq!(node.follow().listed("cam"), (3, 3));
}

#[test]
fn a_slot_that_a_container_has_by_another_name_of_the_resource_is_unhealthy() {
    let mut node = Node::new();
    node.validated.names = ResourceNames::new(&"akri.sh".parse().unwrap());
    node.configure("cam", "capacity: 3");
    node.see("cam", set(&["a"]));
    let id = node.follow().slots("cam").remove(0).id;
    node.uses = vec![Use {
        resource: Some("akri.sh/cam".parse().unwrap()),
        ids: [id.parse().unwrap()].into(),
        ..Use::default()
    }];
    assert_eq!(node.follow().listed("cam"), (3, 3));
    let names = &mut node.validated.names;
    names.set(&"cam".into(), Some("akri.sh/camera".parse().unwrap()));
    assert_eq!(node.follow().listed("cam"), (3, 2));
    assert!(!node.slots("cam")[0].is_healthy);
    // Nobody can say what containers have.
    node.are_uses_known = false;
    assert_eq!(node.follow().listed("cam"), (3, 2));
    (node.are_uses_known, node.uses) = (true, vec![]);
    assert_eq!(node.follow().listed("cam"), (3, 3));
}

#[test]
fn a_device_that_comes_and_goes_stays_unhealthy_until_it_is_steady_and_is_said_to() {
    let mut node = Node::new();
    node.configure("cam", "capacity: 1");
    let mut damper = Damper::default();
    for turn in 0..13 {
        node.uptime = turn;
        let seen = match turn % 2 {
            0 => set(&["a"]),
            _ => set(&[]),
        };
        let belief = damper.turn(&Arc::new(seen), |_| true, Duration::from_secs(turn));
        let state = DiscoveryState {
            set: belief.set,
            flapping: Arc::new(belief.flapping),
            ..DiscoveryState::default()
        };
        node.discoveries.insert(key("cam"), state);
        node.follow();
    }
    node.uptime = 10_000;
    assert_eq!(node.follow().listed("cam"), (1, 0));
    assert_eq!(node.next_end(), None);
    let offer = &node.offers[&ConfigurationName::from("cam")];
    let problem = offer.flapping(&node.discoveries).unwrap();
    assert_eq!(problem.reason, Reason::Flapping);
    assert!(problem.message.starts_with("a: the device went away"));
    node.see("cam", set(&["a"]));
    assert_eq!(node.follow().listed("cam"), (1, 1));
    let offer = &node.offers[&ConfigurationName::from("cam")];
    assert_eq!(offer.flapping(&node.discoveries), None);
}

#[test]
fn two_devices_whose_short_names_are_one_are_both_offered() {
    let ids = (0..20_000).map(|n| format!("/dev/a{n}"));
    let mut of = BTreeMap::new();
    let clash = ids.into_iter().find_map(|id| {
        let device = DeviceId::new(&*id);
        let [name, _] =
            InstanceName::candidates(&"c".into(), &device, Scope::Node, &"node-a".into());
        Some((of.insert(name, id.clone())?, id))
    });
    let (a, b) = clash.unwrap();
    let mut node = Node::new();
    node.configure("c", "capacity: 1");
    node.see("c", set(&[&a, &b]));
    assert_eq!(node.follow().listed("c"), (2, 2));
    assert_eq!(node.follow().listed("c"), (2, 2));
}

#[test]
fn while_a_discovery_has_not_looked_everywhere_what_was_there_stays() {
    let mut node = Node::new();
    node.configure("cam", "capacity: 1");
    node.see("cam", set(&["a", "b"]));
    node.follow();
    // It starts again with other details.
    node.discoveries.clear();
    assert_eq!(node.follow().listed("cam"), (2, 2));
    node.see(
        "cam",
        DeviceSet {
            complete: false,
            ..set(&["a"])
        },
    );
    assert_eq!(node.follow().listed("cam"), (2, 2));
    node.accepted().clear();
    assert!(node.follow().offers.is_empty());
}

#[test]
fn devices_beyond_the_bounds_are_left_out_and_those_that_are_offered_stay() {
    let mut node = Node::new();
    node.max_devices = 100;
    node.configure("b", "maxInstances: 10");
    node.see("b", many(12));
    assert_eq!(node.follow().listed("b"), (10, 10));
    let problem = node.offers[&ConfigurationName::from("b")]
        .problem(100)
        .unwrap();
    assert!(problem.message.starts_with("2 more devices"), "{problem:?}");
    node.configure("b", "maxInstances: 1000");
    node.see("b", many(1000));
    assert_eq!(node.follow().listed("b"), (50, 50), "half of the node's");
    // One whose name comes first takes nothing from it.
    node.configure("a", "capacity: 1");
    node.see("a", many(1000));
    assert_eq!(node.follow().listed("b"), (50, 50));
    let (a, _) = node.listed("a");
    assert!((1..=50).contains(&a), "{a}");
}

#[test]
fn all_slots_that_a_node_may_offer_are_a_list_that_the_kubelet_takes() {
    let name = "n".repeat(52);
    let mut node = Node::new();
    node.configure(&name, "capacity: 10000, maxInstances: 10000");
    node.max_devices = 10_000;
    node.see(&name, many(10_000));
    let slots = node.follow().slots(&name);
    assert!(slots.len() as u64 <= SLOTS_MAX, "{}", slots.len());
    node.see(&name, many(2));
    let mut node = Node {
        offers: NodeOnly::new(),
        ..node
    };
    let slots = node.follow().slots(&name);
    assert_eq!(slots.len() as u64, SLOTS_MAX);
    let device = |slot: Slot| ListedDevice {
        id: slot.id,
        health: UNHEALTHY.to_owned(),
        topology: None,
    };
    let list = ListAndWatchResponse {
        devices: slots.into_iter().map(device).collect(),
    };
    // The kubelet takes 16 MiB (pkg/kubelet/cm/devicemanager/endpoint.go and plugin/v1beta1/client.go).
    assert!(list.encoded_len() < 2 << 20, "{}", list.encoded_len());
}

#[test]
fn a_container_gets_distinct_devices_first_and_those_with_most_free_slots() {
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    let available = ids(&["c-a-0", "c-b-0", "c-b-1", "c-b-2"]);
    for (must, size, expected) in [
        (&[][..], 1, &["c-b-0"][..]),
        (&[], 2, &["c-b-0", "c-a-0"]),
        (&[], 3, &["c-b-0", "c-a-0", "c-b-1"]),
        (&["c-b-2"], 2, &["c-b-2", "c-a-0"]),
        (&[], 9, &["c-b-0", "c-a-0", "c-b-1", "c-b-2"]),
    ] {
        assert_eq!(
            preferred(&available, &ids(must), size),
            ids(expected),
            "{must:?} {size}"
        );
    }
}
