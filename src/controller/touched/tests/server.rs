//! The API server, as far as the plans of the controller go.
use crate::{
    controller::{
        brokers::{memory::Outcome, plan as brokers},
        nodes::plan as nodes,
        services::plan as services,
        status::plan as status,
        world::{BrokerJob, BrokerPod, Meta, OwnedService, World},
    },
    store::instance_key,
};
use json_patch::{Patch, PatchOperation};
use k8s_openapi::api::core::v1::ServiceSpec;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// A world in which every write succeeds. An object that is written is another object.
#[derive(Default)]
pub(super) struct Server {
    pub(super) world: World,
    uids: u32,
}

fn patched<T: Serialize + DeserializeOwned>(object: &T, patch: &Patch) -> Arc<T> {
    let mut value = serde_json::to_value(object).unwrap();
    let mut patch = patch.clone();
    // A test for `null` holds of what is not there, and fails in this crate.
    (patch.0).retain(|o| !matches!(o, PatchOperation::Test(test) if test.value.is_null()));
    json_patch::patch(&mut value, &patch).unwrap();
    Arc::new(serde_json::from_value(value).unwrap())
}

fn strings(value: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(value.clone()).unwrap_or_default()
}

impl Server {
    pub(super) fn uid(&mut self) -> String {
        self.uids += 1;
        format!("new-{}", self.uids)
    }

    fn meta(&mut self, made: &Value) -> Meta {
        let owner = &made["metadata"]["ownerReferences"][0]["uid"];
        Meta {
            uid: self.uid(),
            labels: strings(&made["metadata"]["labels"]),
            annotations: strings(&made["metadata"]["annotations"]),
            owner: owner.as_str().map(str::to_owned),
            ..Meta::default()
        }
    }

    pub(super) fn nodes(&mut self, action: &nodes::Action) {
        let uid = self.uid();
        let world = &mut self.world;
        match action {
            nodes::Action::Change(change) => {
                let instance = world.instances.get_mut(&change.key).unwrap();
                for patch in [&change.patch, &change.status].into_iter().flatten() {
                    *instance = patched(instance.as_ref(), patch);
                }
            }
            nodes::Action::Create(instance) => {
                let mut made = (**instance).clone();
                made.metadata.uid = Some(uid);
                let key = instance_key(&made.metadata);
                assert!(world.instances.insert(key, Arc::new(made)).is_none());
            }
            nodes::Action::Delete { key, .. } => drop(world.instances.remove(key)),
            nodes::Action::DeleteNodeDevices { node, .. } => drop(world.node_devices.remove(node)),
            nodes::Action::Strip { key, patch } => {
                let configuration = world.configurations.get_mut(key).unwrap();
                *configuration = patched(configuration.as_ref(), patch);
            }
        }
    }

    pub(super) fn brokers(&mut self, action: &brokers::Action) -> Outcome {
        match action {
            brokers::Action::CreatePod { broker, pod, .. } => {
                if self.world.pods.contains_key(&broker.key) {
                    return Outcome::Conflict;
                }
                let made = BrokerPod {
                    meta: self.meta(pod),
                    phase: "Pending".to_owned(),
                    ..BrokerPod::default()
                };
                let uid = made.meta.uid.clone();
                self.world.pods.insert(broker.key.clone(), Arc::new(made));
                return Outcome::Done(Some(uid));
            }
            brokers::Action::DeletePod { key, .. }
            | brokers::Action::ReplacePod { key, .. }
            | brokers::Action::MovePod {
                broker: brokers::Broker { key, .. },
                ..
            } => drop(self.world.pods.remove(key)),
            brokers::Action::TryPod { .. } => {}
            brokers::Action::CreateJob { broker, job, .. } => {
                if self.world.jobs.contains_key(&broker.key) {
                    return Outcome::Conflict;
                }
                let made = BrokerJob {
                    meta: self.meta(job),
                    failure: None,
                };
                let uid = made.meta.uid.clone();
                self.world.jobs.insert(broker.key.clone(), Arc::new(made));
                return Outcome::Done(Some(uid));
            }
            brokers::Action::DeleteJob { key, .. } => drop(self.world.jobs.remove(key)),
            brokers::Action::Remember {
                instance,
                generation,
                ..
            } => {
                let instance = self.world.instances.get_mut(instance).unwrap();
                let mut now = (**instance).clone();
                let status = now.status.get_or_insert_default();
                status.broker_generation = Some(*generation);
                *instance = Arc::new(now);
            }
        }
        Outcome::Done(None)
    }

    pub(super) fn services(&mut self, action: &services::Action) {
        match action {
            services::Action::Apply(apply) => {
                let mut meta = self.meta(&apply.manifest);
                if let Some(uid) = &apply.uid {
                    meta.uid.clone_from(uid);
                }
                let spec = ServiceSpec {
                    selector: Some(strings(&apply.manifest["spec"]["selector"])),
                    ..ServiceSpec::default()
                };
                let made = OwnedService { meta, spec };
                self.world
                    .services
                    .insert(apply.key.clone(), Arc::new(made));
            }
            services::Action::Delete { key, .. } => drop(self.world.services.remove(key)),
            services::Action::Report(..) => {}
        }
    }

    pub(super) fn status(&mut self, action: &status::Action) {
        let status::Object::Configuration(key) = &action.object else {
            panic!("there are no reports about brokers");
        };
        let configuration = self.world.configurations.get_mut(key).unwrap();
        *configuration = patched(configuration.as_ref(), &action.patch);
    }
}

/// Gives an object of a map to `change`, as another object.
pub(super) fn change<K: Ord, T: Clone>(
    objects: &mut BTreeMap<K, Arc<T>>,
    n: usize,
    change: impl FnOnce(&mut T),
) {
    let count = objects.len().max(1);
    if let Some(object) = objects.values_mut().nth(n % count) {
        let mut now = (**object).clone();
        change(&mut now);
        *object = Arc::new(now);
    }
}

pub(super) fn remove<K: Clone + Ord, T>(objects: &mut BTreeMap<K, Arc<T>>, n: usize) {
    let key = objects.keys().nth(n % objects.len().max(1)).cloned();
    if let Some(key) = key {
        objects.remove(&key);
    }
}
