//! Which static Pods there should be, and what is in them. Pure.
use crate::{
    agent::{
        configurations::{AcceptedConfiguration, Judged},
        plan_inputs::{Sight, sight},
    },
    api::{
        broker::{self, SpecError, Subject},
        names,
    },
    discovery::session::Discoveries,
    model::names::ObjectKey,
    store::Instances,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const FILE_START: &str = "petiole-";

pub(super) struct World<'a> {
    pub(super) node: &'a str,
    pub(super) resource_prefix: &'a str,
    pub(super) judged: &'a Judged,
    pub(super) discoveries: &'a Discoveries,
    pub(super) instances: &'a Instances,
    /// The resources that the kubelet would give to a container now, by their whole names.
    pub(super) allocatable: &'a BTreeSet<String>,
    /// Our manifests as they stand, by file name.
    pub(super) existing: &'a BTreeMap<String, Value>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Action {
    Write { file: String, pod: Value },
    Remove { file: String },
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) actions: Vec<Action>,
    /// Configurations that no Pod can be made of. What runs of them goes on.
    pub(super) broken: BTreeMap<ObjectKey, SpecError>,
}

pub(super) fn is_ours(file: &str) -> bool {
    file.starts_with(FILE_START) && file.ends_with(".yaml")
}

/// A new Pod waits until the kubelet knows its resource: it would start one without the device. One whose device is
/// gone stays until its Instance goes, and one whose device is reached differently now is replaced.
pub(super) fn plan(world: &World<'_>) -> Plan {
    let mut actions = vec![];
    let mut broken = BTreeMap::new();
    let mut wanted = BTreeSet::new();
    for (key, instance) in world.instances {
        let configuration = ObjectKey::new(&key.namespace, &instance.spec.configuration_name);
        let file = format!("{FILE_START}{}_{}.yaml", key.namespace, key.name);
        let Some(accepted) = world.judged.accepted.get(&configuration) else {
            // Refused as it stands, or not judged yet: what runs goes on. One that is deleted takes its Instances along.
            wanted.insert(file);
            continue;
        };
        let Some(spec) = pod_spec(accepted) else {
            continue;
        };
        let existing = world.existing.get(&file);
        wanted.insert(file.clone());
        let resource = format!("{}/{}", world.resource_prefix, key.name);
        if let Sight::Seen(device) = sight(instance, world.discoveries) {
            let subject = Subject {
                key,
                instance,
                resource_prefix: world.resource_prefix,
            };
            match pod(world, subject, (spec, &device.connection_digest())) {
                Ok(pod) if existing != Some(&pod) && world.allocatable.contains(&resource) => {
                    actions.push(Action::Write { file, pod });
                }
                Ok(_) => {}
                Err(e) => drop(broken.insert(configuration, e)),
            }
        }
    }
    let removed = world.existing.keys().filter(|file| !wanted.contains(*file));
    actions.extend(removed.map(|file| Action::Remove { file: file.clone() }));
    Plan { actions, broken }
}

fn pod_spec(accepted: &AcceptedConfiguration) -> Option<&Value> {
    let spec = accepted.configuration.spec.broker_spec.as_ref()?;
    spec.broker_pod_spec.as_ref()
}

fn pod(
    world: &World<'_>,
    subject: Subject<'_>,
    (spec, told): (&Value, &str),
) -> Result<Value, SpecError> {
    let mut pod = broker::static_pod(subject, world.node, spec)?;
    // Changes when the device must be reached differently: another Pod then.
    pod["metadata"]["annotations"] = json!({ (names::TOLD_CONNECTION): told });
    Ok(pod)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::instance::{Instance, InstanceSpec},
        discovery::{plan::SessionSpec, session::Sighting},
        model::device::{Device, DeviceSet, Scope},
        store::manifest,
    };
    use std::sync::Arc;

    const CONFIGURATION: &str = "
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: cam}
spec:
  discoveryHandler: {name: echo}
  brokerSpec:
    brokerPodSpec:
      unknownToUs: kept
      initContainers: [{name: init, resources: {requests: {'{{PLACEHOLDER}}': 1}}}]
      containers: [{name: main, resources: {limits: {'{{PLACEHOLDER}}': 1, cpu: 100m}}}]
";

    struct Fixture {
        judged: Judged,
        discoveries: Discoveries,
        instances: Instances,
        allocatable: BTreeSet<String>,
        existing: BTreeMap<String, Value>,
    }

    impl Fixture {
        fn new() -> Self {
            let configuration = Arc::new(manifest::read(CONFIGURATION).unwrap().remove(0));
            let key = ObjectKey::new("default", "cam");
            let session = SessionSpec {
                handler: "echo".to_owned(),
                details: String::new(),
            };
            let accepted = AcceptedConfiguration {
                configuration,
                session,
                scope: Scope::Shared,
            };
            let mut fixture = Self {
                judged: Judged::default(),
                discoveries: Discoveries::new(),
                instances: Instances::new(),
                allocatable: BTreeSet::from(["akri.sh/cam-1".to_owned()]),
                existing: BTreeMap::new(),
            };
            fixture.judged.accepted.insert(key.clone(), accepted);
            fixture.see([Device::new("d")]);
            let spec = InstanceSpec {
                configuration_name: "cam".to_owned(),
                shared: true,
                nodes: vec!["n".to_owned()],
                ..InstanceSpec::default()
            };
            let mut instance = Instance::new("cam-1", spec);
            instance.metadata.annotations = Some(BTreeMap::from([(
                names::DEVICE_ID.to_owned(),
                "d".to_owned(),
            )]));
            fixture
                .instances
                .insert(ObjectKey::new("default", "cam-1"), Arc::new(instance));
            fixture
        }

        fn see(&mut self, devices: impl IntoIterator<Item = Device>) {
            let sighting = Sighting {
                set: Arc::new(DeviceSet::complete(devices)),
                ..Sighting::default()
            };
            self.discoveries
                .insert(ObjectKey::new("default", "cam"), sighting);
        }

        fn plan(&self) -> Vec<Action> {
            self.whole_plan().actions
        }

        fn whole_plan(&self) -> Plan {
            plan(&World {
                node: "n",
                resource_prefix: "akri.sh",
                judged: &self.judged,
                discoveries: &self.discoveries,
                instances: &self.instances,
                allocatable: &self.allocatable,
                existing: &self.existing,
            })
        }

        fn carry_out(&mut self) {
            for action in self.plan() {
                match action {
                    Action::Write { file, pod } => drop(self.existing.insert(file, pod)),
                    Action::Remove { file } => drop(self.existing.remove(&file)),
                }
            }
        }
    }

    #[test]
    fn the_placeholder_becomes_the_resource_and_all_else_is_kept() {
        let mut fixture = Fixture::new();
        fixture.carry_out();
        let pod = &fixture.existing["petiole-default_cam-1.yaml"];
        assert_eq!(pod["metadata"]["name"], "n-cam-1-pod");
        assert_eq!(pod["metadata"]["labels"]["akri.sh/target-node"], "n");
        assert_eq!(pod["spec"]["unknownToUs"], "kept");
        assert_eq!(
            pod["spec"]["containers"][0]["resources"]["limits"],
            json!({"akri.sh/cam-1": 1, "cpu": "100m"})
        );
        assert_eq!(
            pod["spec"]["initContainers"][0]["resources"]["requests"],
            json!({"akri.sh/cam-1": 1})
        );
        assert_eq!(fixture.plan(), vec![]);
    }

    #[test]
    fn no_pod_is_written_before_the_kubelet_knows_its_resource_and_none_goes_when_it_forgets() {
        let mut fixture = Fixture::new();
        let allocatable = std::mem::take(&mut fixture.allocatable);
        assert_eq!(fixture.plan(), vec![]);
        fixture.allocatable = allocatable;
        fixture.carry_out();
        fixture.allocatable.clear();
        assert_eq!(fixture.plan(), vec![]);
    }

    #[test]
    fn the_pod_of_a_device_that_is_gone_stays_until_its_instance_goes() {
        let mut fixture = Fixture::new();
        fixture.carry_out();
        fixture.see([]);
        assert_eq!(fixture.plan(), vec![]);
        fixture.instances.clear();
        assert_eq!(
            fixture.plan(),
            [Action::Remove {
                file: "petiole-default_cam-1.yaml".to_owned()
            }]
        );
    }

    #[test]
    fn the_pod_of_a_configuration_that_is_not_accepted_stays() {
        let mut fixture = Fixture::new();
        fixture.carry_out();
        fixture.judged.accepted.clear();
        assert_eq!(fixture.plan(), vec![]);
    }

    #[test]
    fn a_spec_that_nothing_can_be_made_of_is_named_and_what_runs_of_it_goes_on() {
        let mut fixture = Fixture::new();
        fixture.carry_out();
        let key = ObjectKey::new("default", "cam");
        let accepted = fixture.judged.accepted.get_mut(&key).unwrap();
        let configuration = Arc::make_mut(&mut accepted.configuration);
        let spec = configuration.spec.broker_spec.as_mut().unwrap();
        spec.broker_pod_spec = Some(json!({"containers": "none"}));
        let Plan { actions, broken } = fixture.whole_plan();
        assert_eq!(actions, vec![]);
        assert_eq!(broken[&key].path, "brokerPodSpec.containers");
    }

    #[test]
    fn a_device_that_moved_gets_another_pod_and_one_that_says_more_does_not() {
        let mut fixture = Fixture::new();
        let mut device = Device::new("d");
        device
            .properties
            .insert("ADDR".to_owned(), "10.0.0.1".to_owned());
        device.connection.insert("ADDR".to_owned());
        fixture.see([device.clone()]);
        fixture.carry_out();
        device.properties.insert("PAGES".to_owned(), "3".to_owned());
        fixture.see([device.clone()]);
        assert_eq!(fixture.plan(), vec![]);
        device
            .properties
            .insert("ADDR".to_owned(), "10.0.0.2".to_owned());
        fixture.see([device]);
        assert_eq!(fixture.plan().len(), 1);
    }
}
