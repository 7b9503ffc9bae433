mod arrivals;
mod budget;
mod content;
mod flapping;
mod gone;
mod held;
mod life;
mod named;
mod pinned;
mod reports;

use super::*;
use crate::{
    agent::values::ValidatedConfigurations,
    api::{instance::InstanceSpec, names},
    discovery::{
        SessionSpec,
        session::{Discoveries, DiscoveryState},
    },
    merge::{
        alone::{Alone, Step, changed},
        plan::is_held,
    },
    model::{
        device::{DeviceSet, Scope},
        instance_name::InstanceName,
        names::Key,
        slot_table::Use,
    },
    store::{Configurations, Instances, instance_key as key_of_instance, manifest},
};
use proptest::{collection::btree_set, prelude::*};
use std::sync::Arc;

const NODE: &str = "node-a";

/// The inputs of a plan, and what makes Instances of its reports.
struct Fixture {
    configurations: Configurations,
    validated: ValidatedConfigurations,
    discoveries: Discoveries,
    instances: Instances,
    uses: Vec<Use>,
    absences: Absences,
    arrivals: Arrivals,
    max_instances: usize,
    uptime: u64,
    /// The milliseconds after the seconds.
    millis: u64,
}

/// What became of the Instances, and when to plan again.
#[derive(Debug, Default)]
struct Settled {
    created: usize,
    changed: usize,
    deleted: usize,
    wake_in: Option<Duration>,
}

impl Settled {
    fn is_nothing(&self) -> bool {
        self.created + self.changed + self.deleted == 0
    }
}

fn instance_key(name: &str) -> InstanceKey {
    InstanceKey::new("default", name)
}

fn key<Name: From<String>>(name: &str) -> Key<Name> {
    Key::new("default", name.to_owned())
}

impl Fixture {
    /// A Configuration `cam` with `spec`, and nothing seen yet.
    fn new(spec: &str) -> Self {
        let mut fixture = Self {
            configurations: Configurations {
                is_complete: true,
                ..Configurations::default()
            },
            validated: ValidatedConfigurations::default(),
            discoveries: Discoveries::new(),
            instances: Instances::new(),
            uses: vec![],
            absences: Absences::new(),
            arrivals: Arrivals::default(),
            max_instances: 100,
            uptime: 0,
            millis: 0,
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
            ..SessionSpec::default()
        };
        let accepted = AcceptedConfiguration {
            configuration: configuration.clone(),
            session,
            selection: Selection::Selected,
            scope: Scope::Shared,
            resource_name: None,
        };
        self.validated.accepted.insert(key("cam"), accepted);
        self.configurations
            .objects
            .insert(key("cam"), configuration);
    }

    fn accepted(&mut self) -> &mut AcceptedConfiguration {
        self.validated.accepted.get_mut(&key("cam")).unwrap()
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
            DiscoveryState {
                set,
                ..DiscoveryState::default()
            },
        );
    }

    fn now(&self) -> Duration {
        Duration::from_secs(self.uptime) + Duration::from_millis(self.millis)
    }

    fn plan(&self) -> Plan {
        plan(&World {
            node: NODE.into(),
            max_instances: self.max_instances,
            uptime: self.now(),
            configurations: Arc::new(self.configurations.clone()),
            validated: Arc::new(self.validated.clone()),
            discoveries: Arc::new(self.discoveries.clone()),
            instances: Arc::new(self.instances.clone()),
            node_only: Arc::default(),
            uses: Some(self.uses.as_slice().into()),
            absences: self.absences.clone(),
            arrivals: self.arrivals.clone(),
        })
    }

    /// Plans and merges until nothing is left to do.
    fn settle(&mut self) -> Settled {
        let mut settled = Settled::default();
        for _ in 0..10 {
            let planned = self.plan();
            self.absences.clone_from(&planned.absences);
            self.arrivals.clone_from(&planned.arrivals);
            settled.wake_in = planned.wake_in;
            let steps = self.merge(&planned.reports);
            if steps.is_empty() {
                return settled;
            }
            for step in steps {
                self.carry_out(step, &mut settled);
            }
        }
        panic!("there is always something to do: {settled:?}");
    }

    fn merge(&self, reports: &Reports) -> Vec<Step> {
        let views: Vec<_> = (reports.of.iter()).map(|(of, r)| r.view(of)).collect();
        let alone = Alone {
            node: &NODE.into(),
            configurations: &self.configurations.objects,
            may_have: &|of| !self.configurations.is_complete || self.configurations.may_have(of),
        };
        let (steps, _) = alone.steps(
            &views,
            &self.instances,
            "2026-01-01T00:00:00Z".parse().unwrap(),
        );
        steps
    }

    fn carry_out(&mut self, step: Step, settled: &mut Settled) {
        match step {
            Step::Create(instance) => {
                let key = key_of_instance(&instance.metadata);
                self.instances.insert(key, Arc::from(instance));
                settled.created += 1;
            }
            Step::Change(key, _, change) => {
                let changed = changed(&self.instances[&key], *change).unwrap();
                self.instances.insert(key, Arc::new(changed));
                settled.changed += 1;
            }
            Step::Delete { key, is_orphan, .. } => {
                assert!(is_orphan || !is_held(&self.instances[&key]));
                self.instances.remove(&key);
                settled.deleted += 1;
            }
        }
    }

    fn only(&self) -> &Instance {
        assert_eq!(self.instances.len(), 1);
        self.instances.values().next().unwrap()
    }

    /// A container of this node holds the first slot of the only Instance, or of none.
    fn hold(&mut self, owner: Option<&str>) {
        let mut instance = self.only().clone();
        let name = instance.metadata.name.clone().unwrap();
        instance.spec.device_usage.clear();
        if let Some(owner) = owner {
            let slot = format!("{name}-0");
            instance.spec.device_usage.insert(slot, owner.to_owned());
        }
        self.instances
            .insert(instance_key(&name), Arc::new(instance));
    }

    /// The node leaves the only Instance, as a lost one does.
    fn leave(&mut self) {
        let only = self.instances.values_mut().next().unwrap();
        Arc::make_mut(only).spec.nodes.clear();
    }

    fn names(&self) -> Vec<&str> {
        self.instances.keys().map(|key| key.name.as_str()).collect()
    }

    fn problems(&self) -> Vec<String> {
        let reports = self.plan().reports.of;
        reports
            .into_values()
            .flat_map(|r| r.problems)
            .map(|p| p.reason)
            .collect()
    }
}

fn health(instance: &Instance) -> &str {
    let mut entries = instance.status.iter().flat_map(|status| &status.nodes);
    entries.next().map_or("Healthy", |entry| &entry.health)
}

proptest! {
    /// `settle` holds the property: in the end, there is nothing to do.
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
