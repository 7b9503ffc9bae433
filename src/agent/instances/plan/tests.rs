use super::*;
use crate::{
    discovery::plan::SessionSpec,
    model::device::DeviceSet,
    store::{manifest, plan::changed},
};
use proptest::{collection::btree_set, prelude::*};
use std::sync::Arc;

const NODE: &str = "node-a";

/// The inputs of a plan, and a store that carries plans out.
struct Fixture {
    configurations: Configurations,
    judged: Judged,
    discoveries: Discoveries,
    instances: Instances,
    absences: Absences,
    max_instances: usize,
    uptime: u64,
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

impl Fixture {
    /// A Configuration `cam` with `spec`, and nothing seen yet.
    fn new(spec: &str) -> Self {
        let mut fixture = Self {
            configurations: Configurations {
                is_complete: true,
                ..Configurations::default()
            },
            judged: Judged::default(),
            discoveries: Discoveries::new(),
            instances: Instances::new(),
            absences: Absences::new(),
            max_instances: 100,
            uptime: 0,
        };
        fixture.configure(spec);
        fixture
    }

    fn configure(&mut self, spec: &str) {
        let text = format!(
            "{{apiVersion: akri.sh/v0, kind: Configuration, metadata: {{name: cam}}, spec: {{discoveryHandler: {{name: echo}}{spec}}}}}"
        );
        let configuration = Arc::new(manifest::read(&text).unwrap().remove(0));
        let session = SessionSpec {
            handler: "echo".to_owned(),
            details: String::new(),
        };
        let accepted = AcceptedConfiguration {
            configuration: configuration.clone(),
            session,
            scope: Scope::Shared,
        };
        self.judged.accepted.insert(key("cam"), accepted);
        self.configurations
            .objects
            .insert(key("cam"), configuration);
    }

    fn see(&mut self, ids: &[&str], complete: bool) {
        self.see_devices(ids.iter().map(|id| Device::new(*id)), complete);
    }

    fn see_devices(&mut self, devices: impl IntoIterator<Item = Device>, complete: bool) {
        let set = Arc::new(DeviceSet {
            complete,
            ..DeviceSet::complete(devices)
        });
        self.discoveries.insert(
            key("cam"),
            Sighting {
                set,
                ..Sighting::default()
            },
        );
    }

    fn plan(&self) -> Plan {
        plan(&World {
            node: NODE,
            max_instances: self.max_instances,
            now: Now {
                uptime: Duration::from_secs(self.uptime),
                text: "2026-01-01T00:00:00Z",
            },
            configurations: &self.configurations,
            judged: &self.judged,
            discoveries: &self.discoveries,
            instances: &self.instances,
            absences: &self.absences,
        })
    }

    /// Plans and carries out, and checks that this leaves nothing to do.
    fn settle(&mut self) -> Plan {
        let planned = self.plan();
        self.absences.clone_from(&planned.absences);
        for change in &planned.changes {
            let key = change.key();
            let after = match (self.instances.get(&key), change) {
                (None, InstanceChange::Create(instance)) => Some(Instance::clone(instance)),
                (Some(instance), change) => changed(instance, change, NODE),
                (None, change) => panic!("{change:?} has no Instance"),
            };
            match after {
                Some(instance) => drop(self.instances.insert(key, Arc::new(instance))),
                None => drop(self.instances.remove(&key)),
            }
        }
        assert_eq!(
            self.plan().changes,
            vec![],
            "the plan leaves something to do"
        );
        planned
    }

    fn only(&self) -> &Instance {
        assert_eq!(self.instances.len(), 1);
        self.instances.values().next().unwrap()
    }

    fn names(&self) -> Vec<&str> {
        self.instances.keys().map(|key| key.name.as_str()).collect()
    }

    fn problems(&self) -> Vec<String> {
        let reports = self.plan().reports;
        reports
            .into_values()
            .flat_map(|r| r.problems)
            .map(|p| p.reason)
            .collect()
    }
}

fn health(instance: &Instance) -> &str {
    &instance.status.as_ref().unwrap().nodes[0].health
}

#[test]
fn a_device_becomes_an_instance_with_all_that_akri_writes() {
    let mut fixture = Fixture::new(", capacity: 3, brokerProperties: {MODE: night}");
    let mut device = Device::new("foo0");
    device
        .properties
        .insert("URL".to_owned(), "rtsp://x".to_owned());
    fixture.see_devices([device], false);
    fixture.settle();
    let instance = fixture.only();
    assert_eq!(instance.metadata.name.as_deref(), Some("cam-8120fe"));
    assert_eq!(
        instance.metadata.annotations.as_ref().unwrap()["akri.sh/device-id"],
        "foo0"
    );
    assert_eq!(
        instance.spec,
        InstanceSpec {
            configuration_name: "cam".to_owned(),
            cdi_name: "akri.sh/cam=8120fe".to_owned(),
            capacity: 3,
            broker_properties: [("MODE", "night"), ("URL", "rtsp://x")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
            shared: true,
            nodes: vec![NODE.to_owned()],
            device_usage: BTreeMap::new(),
        }
    );
    assert_eq!(health(instance), "Healthy");
    assert_eq!(fixture.plan().reports[&key("cam")].instances, 1);
}

#[test]
fn a_vanished_device_is_unhealthy_at_once_and_its_instance_goes_after_the_grace_period() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 60");
    fixture.see(&["a"], true);
    fixture.settle();
    fixture.uptime = 10;
    fixture.see(&[], true);
    assert_eq!(fixture.settle().wake_in, Some(Duration::from_secs(60)));
    assert_eq!(health(fixture.only()), "Unhealthy");
    fixture.uptime = 69;
    assert_eq!(fixture.settle().wake_in, Some(Duration::from_secs(1)));
    fixture.uptime = 70;
    fixture.settle();
    assert!(fixture.instances.is_empty());
}

#[test]
fn a_deletion_that_could_not_be_written_is_tried_again_at_once() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 60");
    fixture.see(&["a"], true);
    fixture.settle();
    fixture.see(&[], true);
    fixture.settle();
    fixture.uptime = 60;
    for _ in 0..3 {
        let planned = fixture.plan();
        let is_deletion = |change: &InstanceChange| matches!(change, InstanceChange::Delete { .. });
        assert!(
            planned.changes.iter().all(is_deletion),
            "{:?}",
            planned.changes
        );
        assert_eq!(planned.changes.len(), 1);
        fixture.absences = planned.absences; // and nothing was written
        fixture.uptime += 1;
    }
}

#[test]
fn a_device_that_comes_back_in_time_keeps_its_instance_and_its_slots() {
    let mut fixture = Fixture::new("");
    fixture.see(&["a"], true);
    fixture.settle();
    let mut used = fixture.only().clone();
    used.spec
        .device_usage
        .insert("cam-x-0".to_owned(), NODE.to_owned());
    fixture.instances.insert(
        key(used.metadata.name.as_ref().unwrap()),
        Arc::new(used.clone()),
    );
    fixture.see(&[], true);
    fixture.settle();
    fixture.uptime = 59;
    fixture.see(&["a"], true);
    fixture.settle();
    assert_eq!(health(fixture.only()), "Healthy");
    assert_eq!(fixture.only().spec.device_usage, used.spec.device_usage);
    // The next absence counts from its own beginning.
    fixture.uptime = 61;
    fixture.see(&[], true);
    assert_eq!(fixture.settle().wake_in, Some(Duration::from_secs(60)));
}

#[test]
fn nothing_is_deleted_before_a_first_complete_look() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 0");
    fixture.see(&["a", "b"], true);
    fixture.settle();
    // Another life: discovery starts anew and has seen one of the two so far.
    fixture.discoveries.clear();
    assert_eq!(fixture.settle().changes, vec![]);
    fixture.see(&["a"], false);
    assert_eq!(fixture.settle().changes, vec![]);
    fixture.see(&["a"], true);
    fixture.settle();
    assert_eq!(fixture.instances.len(), 1);
}

#[test]
fn a_device_that_leaves_before_the_first_complete_look_is_unhealthy_at_once_and_stays_until_then() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 0");
    fixture.see(&["a"], false);
    fixture.settle();
    fixture.see(&[], false);
    let sighting = fixture.discoveries.get_mut(&key("cam")).unwrap();
    sighting.seen.insert(DeviceId::new("a"));
    assert_eq!(fixture.settle().wake_in, None);
    assert_eq!(health(fixture.only()), "Unhealthy");
    fixture.see(&[], true);
    fixture.settle();
    assert!(fixture.instances.is_empty());
}

#[test]
fn a_deleted_configuration_takes_its_instances_along_at_once_and_an_unreadable_one_does_not() {
    let mut fixture = Fixture::new("");
    fixture.see(&["a"], true);
    fixture.settle();
    let (judged, objects) = (
        fixture.judged.clone(),
        std::mem::take(&mut fixture.configurations.objects),
    );
    fixture.judged = Judged::default();
    fixture.discoveries.clear();

    fixture.configurations.is_complete = false;
    assert_eq!(fixture.settle().changes, vec![]);

    fixture.configurations.is_complete = true;
    // Refused, not deleted.
    fixture.configurations.objects = objects;
    assert_eq!(fixture.settle().changes, vec![]);
    fixture.configurations.objects.clear();
    // Kept as it was, because its manifest has a mistake.
    fixture.judged = judged;
    assert_eq!(fixture.settle().changes, vec![]);
    fixture.judged = Judged::default();

    fixture.settle();
    assert!(fixture.instances.is_empty());
}

#[test]
fn an_edited_configuration_takes_effect_without_delete_and_create() {
    let mut fixture = Fixture::new("");
    fixture.see(&["a"], true);
    fixture.settle();
    fixture.configure(", capacity: 5, brokerProperties: {A: b}");
    let planned = fixture.settle();
    assert!(
        matches!(
            planned.changes.as_slice(),
            [InstanceChange::Describe { .. }]
        ),
        "{planned:?}"
    );
    assert_eq!(fixture.only().spec.capacity, 5);
    assert_eq!(fixture.only().spec.broker_properties["A"], "b");
}

#[test]
fn two_devices_with_one_short_digest_get_two_instances_and_keep_them() {
    let mut fixture = Fixture::new("");
    fixture.see(&["foo0"], true);
    fixture.settle();
    // As if foo1 had foo0's digest: the short name of foo0 belongs to somebody else.
    let mut taken = fixture.instances.remove(&key("cam-8120fe")).unwrap();
    let annotations = Arc::make_mut(&mut taken)
        .metadata
        .annotations
        .as_mut()
        .unwrap();
    annotations.insert("akri.sh/device-id".to_owned(), "other".to_owned());
    fixture.instances.insert(key("cam-8120fe"), taken);
    fixture.see(&["foo0"], false);
    fixture.settle();
    assert_eq!(fixture.names().len(), 2);
    assert!(fixture.names().contains(&"cam-8120fe"));
    assert_eq!(
        fixture.names().iter().map(|n| n.len()).max(),
        Some("cam-".len() + 10)
    );
    assert_eq!(fixture.settle().changes, vec![]);
}

#[test]
fn an_instance_that_akri_made_is_taken_over() {
    let mut fixture = Fixture::new("");
    fixture.see(&["foo0"], true);
    fixture.settle();
    let mut akris = fixture.only().clone();
    akris.metadata.annotations = None;
    akris.status = None;
    fixture.instances.insert(key("cam-8120fe"), Arc::new(akris));
    fixture.settle();
    assert_eq!(fixture.names(), ["cam-8120fe"]);
    assert_eq!(
        fixture.only().metadata.annotations.as_ref().unwrap()["akri.sh/device-id"],
        "foo0"
    );
}

#[test]
fn devices_beyond_the_limit_are_left_out_and_the_configuration_says_so() {
    let mut fixture = Fixture::new(", maxInstances: 2");
    fixture.see(&["a", "b", "c", "d"], true);
    fixture.settle();
    assert_eq!(fixture.instances.len(), 2);
    assert_eq!(fixture.problems(), ["TooManyDevices"]);

    let mut fixture = Fixture::new("");
    fixture.max_instances = 3;
    fixture.see(&["a", "b", "c", "d"], true);
    fixture.settle();
    assert_eq!(fixture.instances.len(), 3);
    assert_eq!(fixture.problems(), ["TooManyDevices"]);
}

#[test]
fn a_limit_that_was_lowered_lets_nobody_in_before_enough_are_gone() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 0");
    fixture.see(&["a", "b", "c", "d"], true);
    fixture.settle();
    fixture.max_instances = 2;
    fixture.see(&["b", "c", "d", "e"], true);
    fixture.settle();
    assert_eq!(fixture.instances.len(), 3);
}

#[test]
fn a_device_whose_identity_changes_has_one_instance_in_the_end() {
    let mut fixture = Fixture::new("");
    fixture.see(&["a"], true);
    fixture.settle();
    let accepted = fixture.judged.accepted.get_mut(&key("cam")).unwrap();
    accepted.scope = Scope::Node;
    let shared = fixture.names()[0].to_owned();
    fixture.settle();
    assert_eq!(fixture.names().len(), 1);
    assert_ne!(fixture.names()[0], shared);
}

#[test]
fn of_a_shared_instance_only_the_first_node_writes_what_all_see() {
    let mut fixture = Fixture::new("");
    fixture.see(&["a"], true);
    fixture.settle();
    let mut others = fixture.only().clone();
    others.spec.nodes = vec!["node-b".to_owned()];
    others
        .spec
        .broker_properties
        .insert("ADDR".to_owned(), "as node-b sees it".to_owned());
    let name = key(others.metadata.name.as_ref().unwrap());
    fixture.instances.insert(name, Arc::new(others));
    let planned = fixture.settle();
    assert!(
        matches!(planned.changes.as_slice(), [InstanceChange::Join(_)]),
        "{planned:?}"
    );
    assert_eq!(fixture.only().spec.nodes, ["node-b", NODE]);
    assert_eq!(
        fixture.only().spec.broker_properties["ADDR"],
        "as node-b sees it"
    );

    // This node loses sight of it; the other one still sees it.
    fixture.configure(", gracePeriodSeconds: 0");
    fixture.see(&[], true);
    let planned = fixture.plan();
    assert!(
        matches!(planned.changes.as_slice(), [InstanceChange::Leave(_)]),
        "{planned:?}"
    );
}

#[test]
fn a_scoped_address_is_never_stored() {
    let mut fixture = Fixture::new("");
    let mut device = Device::new("a");
    device
        .properties
        .insert("ADDR".to_owned(), "fe80::1%eth0".to_owned());
    device
        .properties
        .insert("DISCOUNT".to_owned(), "10%off".to_owned());
    fixture.see_devices([device], true);
    fixture.settle();
    let stored: Vec<_> = fixture.only().spec.broker_properties.keys().collect();
    assert_eq!(stored, ["DISCOUNT"]);
}

#[test]
fn a_discovery_that_fails_is_reported_and_keeps_what_it_saw() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 0");
    fixture.see(&["a"], true);
    fixture.settle();
    fixture.discoveries.get_mut(&key("cam")).unwrap().error = Some("no network".to_owned());
    assert_eq!(fixture.settle().changes, vec![]);
    assert_eq!(fixture.problems(), ["DiscoveryFailed"]);
}

proptest! {
    /// `settle` holds the property: carrying a plan out leaves nothing to do.
    #[test]
    fn whatever_comes_and_goes_the_instances_are_the_devices_in_the_end(
        lives in prop::collection::vec((btree_set("[a-f]", 0..6), any::<bool>(), 0_u64..100), 1..8),
    ) {
        let mut fixture = Fixture::new(", maxInstances: 4");
        for (ids, complete, seconds) in &lives {
            fixture.uptime += seconds;
            fixture.see(&ids.iter().map(String::as_str).collect::<Vec<_>>(), *complete);
            fixture.settle();
            prop_assert!(fixture.instances.len() <= 4);
        }
        let (last, ..) = lives.last().unwrap();
        let last: Vec<_> = last.iter().map(String::as_str).collect();
        fixture.see(&last, true);
        fixture.settle();
        fixture.uptime += 60;
        fixture.settle();
        prop_assert_eq!(fixture.instances.len(), last.len().min(4));
        prop_assert!(fixture.instances.values().all(|i| health(i) == "Healthy"));
    }
}
