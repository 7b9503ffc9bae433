use super::*;
use crate::{
    agent::values::{AcceptedConfiguration, Selection, ValidatedConfigurations},
    api::instance::{Instance, InstanceSpec},
    discovery::{SessionSpec, session::DiscoveryState},
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
    validated: ValidatedConfigurations,
    discoveries: Discoveries,
    instances: Instances,
    kubelet: Kubelet,
    existing: BTreeMap<String, Value>,
    lacking: Lacking,
    now: Duration,
}

impl Fixture {
    fn new() -> Self {
        let configuration = Arc::new(manifest::read(CONFIGURATION).unwrap().remove(0));
        let key = ConfigurationKey::new("default", "cam");
        let session = SessionSpec {
            handler: "echo".to_owned(),
            details: String::new(),
            ..SessionSpec::default()
        };
        let accepted = AcceptedConfiguration {
            configuration,
            session,
            selection: Selection::Selected,
            scope: Scope::Shared,
            resource_name: None,
        };
        let mut fixture = Self {
            validated: ValidatedConfigurations::default(),
            discoveries: Discoveries::new(),
            instances: Instances::new(),
            kubelet: Kubelet {
                age: Duration::from_secs(3600),
                ..Kubelet::default()
            },
            existing: BTreeMap::new(),
            lacking: Lacking::new(),
            now: Duration::ZERO,
        };
        let slots = BTreeSet::from(["cam-1-0".to_owned()]);
        (fixture.kubelet.allocatable).insert("akri.sh/cam-1".parse().unwrap(), slots);
        fixture.validated.accepted.insert(key.clone(), accepted);
        fixture.see([Device::new("d")]);
        let spec = InstanceSpec {
            configuration_name: "cam".into(),
            shared: true,
            nodes: vec!["n".into()],
            ..InstanceSpec::default()
        };
        let mut instance = Instance::new("cam-1", spec);
        instance.metadata.annotations = Some(BTreeMap::from([(
            names::DEVICE_ID.to_owned(),
            "d".to_owned(),
        )]));
        fixture
            .instances
            .insert(InstanceKey::new("default", "cam-1"), Arc::new(instance));
        fixture
    }

    fn see(&mut self, devices: impl IntoIterator<Item = Device>) {
        let discovery = DiscoveryState {
            set: Arc::new(DeviceSet::complete(devices)),
            ..DiscoveryState::default()
        };
        self.discoveries
            .insert(ConfigurationKey::new("default", "cam"), discovery);
    }

    fn plan(&self) -> Vec<Action> {
        self.whole_plan().actions
    }

    fn whole_plan(&self) -> Plan {
        plan(&World {
            node: "n",
            resource_prefixes: &"akri.sh,pflex.io".parse().unwrap(),
            validated: &self.validated,
            discoveries: &self.discoveries,
            instances: &self.instances,
            kubelet: &self.kubelet,
            existing: &self.existing,
            lacking: &self.lacking,
            now: self.now,
        })
    }

    fn carry_out(&mut self) {
        let plan = self.whole_plan();
        self.lacking = plan.lacking;
        for action in plan.actions {
            match action {
                Action::Write { file, pod } | Action::Retry { file, pod } => {
                    drop(self.existing.insert(file, pod))
                }
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
    let kubelet = std::mem::take(&mut fixture.kubelet);
    assert_eq!(fixture.plan(), vec![]);
    fixture.kubelet = kubelet;
    fixture.carry_out();
    fixture.kubelet = Kubelet::default();
    assert_eq!(fixture.plan(), vec![]);
}

#[test]
fn no_pod_is_written_before_the_kubelet_knows_all_that_it_asks_for() {
    let mut fixture = Fixture::new();
    let text = CONFIGURATION.replace("cpu: 100m", "cpu: 100m, pflex.io/block: 1");
    let configuration = Arc::new(manifest::read(&text).unwrap().remove(0));
    let key = ConfigurationKey::new("default", "cam");
    fixture
        .validated
        .accepted
        .get_mut(&key)
        .unwrap()
        .configuration = configuration;
    assert_eq!(fixture.plan(), []);
    let ids = BTreeSet::from(["block-0".to_owned()]);
    (fixture.kubelet.allocatable).insert("pflex.io/block".parse().unwrap(), ids);
    assert_eq!(fixture.plan().len(), 1);
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
    fixture.validated.accepted.clear();
    assert_eq!(fixture.plan(), vec![]);
}

#[test]
fn a_spec_that_nothing_can_be_made_of_is_named_and_what_runs_of_it_goes_on() {
    let mut fixture = Fixture::new();
    fixture.carry_out();
    let key = ConfigurationKey::new("default", "cam");
    let accepted = fixture.validated.accepted.get_mut(&key).unwrap();
    let configuration = Arc::make_mut(&mut accepted.configuration);
    let spec = configuration.spec.broker_spec.as_mut().unwrap();
    spec.broker_pod_spec = Some(json!({"containers": "none"}));
    let Plan {
        actions, broken, ..
    } = fixture.whole_plan();
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

#[test]
fn a_pod_that_the_kubelet_took_without_its_device_is_written_as_another_one() {
    const FILE: &str = "petiole-default_cam-1.yaml";
    let mut fixture = Fixture::new();
    fixture.carry_out();
    let first = fixture.existing[FILE].clone();
    for (second, expected) in [(0, 1), (4, 1), (5, 2), (14, 2), (15, 3)] {
        fixture.now = Duration::from_secs(second);
        fixture.carry_out();
        assert_eq!(attempt(&fixture.existing[FILE]), expected, "at {second} s");
    }
    let mut third = fixture.existing[FILE].clone();
    let annotations = third["metadata"]["annotations"].as_object_mut().unwrap();
    assert_eq!(annotations.remove(names::ATTEMPT), Some(json!("3")));
    assert_eq!(third, first);
    // An agent that begins anew leaves it as it is.
    fixture.lacking.clear();
    assert_eq!(fixture.plan(), vec![]);
}

#[test]
fn only_what_an_agent_rendered_is_taken_away() {
    let mut fixture = Fixture::new();
    fixture.carry_out();
    let ours = fixture.existing["petiole-default_cam-1.yaml"].clone();
    fixture.instances.clear();
    fixture.existing = BTreeMap::from([
        (
            "petiole-default_theirs.yaml".to_owned(),
            json!({"kind": "Pod"}),
        ),
        ("petiole-default_broken.yaml".to_owned(), Value::Null),
        ("petiole-default_cam-2.yaml".to_owned(), ours),
    ]);
    let files = ["petiole-default_broken.yaml", "petiole-default_cam-2.yaml"];
    let removed = files.map(|file| Action::Remove {
        file: file.to_owned(),
    });
    assert_eq!(fixture.plan(), removed);
    for name in [
        "petiole-agent.yaml",
        "petiole-_x.yaml",
        "petiole-x_.yaml",
        "a_b.yaml",
        "petiole-a_b.yml",
    ] {
        assert!(!is_ours(name), "{name}");
    }
}

#[test]
fn a_job_is_said_to_be_nothing_for_a_lone_kubelet() {
    let mut fixture = Fixture::new();
    let key = ConfigurationKey::new("default", "cam");
    let accepted = fixture.validated.accepted.get_mut(&key).unwrap();
    let configuration = Arc::make_mut(&mut accepted.configuration);
    let spec = configuration.spec.broker_spec.as_mut().unwrap();
    spec.broker_job_spec = Some(json!({"template": {}}));
    spec.broker_pod_spec = None;
    let Plan {
        actions, broken, ..
    } = fixture.whole_plan();
    assert_eq!(actions, vec![]);
    assert_eq!(broken[&key].path, "brokerJobSpec");
}

#[test]
fn a_pod_goes_when_its_instance_is_kept_for_its_slots_alone() {
    let mut fixture = Fixture::new();
    fixture.carry_out();
    assert_eq!(fixture.existing.len(), 1);
    fixture.see([]);
    fixture.carry_out();
    assert_eq!(
        fixture.existing.len(),
        1,
        "within the grace period it stays"
    );
    for instance in fixture.instances.values_mut() {
        Arc::make_mut(instance).spec.nodes.clear();
    }
    fixture.carry_out();
    assert_eq!(fixture.existing.len(), 0);
}
