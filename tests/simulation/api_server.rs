//! Simulates an API server in memory, with the semantics of the real one for the requests of Petiole.
//!
//! Every write gets a resourceVersion, also a delete; a write that changes nothing gets none. JSON patches are atomic,
//! and a `test` for `null` succeeds if the key is absent. A delete checks its uid and resourceVersion. `spec.nodes` is
//! a set. Every change is kept in a log, which the watches of `network.rs` read; compacted entries give `410 Gone`.
//! It does not model admission, finalizers, namespaces, managedFields, and the rest of the schema.
use super::{
    objects::{Change, Node, Pod},
    patches::patched,
    plain::Plain,
};
use crate::{
    api::{
        configuration::Configuration,
        instance::Instance,
        names,
        node_devices::{NodeDevices, NodeDevicesSpec},
    },
    controller::world::NodeState,
    model::{names::ObjectKey, typed_names::ConfigurationKey},
    store::key_of,
};
use json_patch::Patch;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::{
    api::Preconditions,
    core::{Status, response::reason::NOT_FOUND},
};
use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use tokio::sync::watch;

pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// Returns the error of a server that refuses a request.
pub(super) fn refusal(code: u16, message: impl Into<String>) -> kube::Error {
    let reason = if code == 404 { NOT_FOUND } else { "Simulated" };
    let mut status = Status::failure(&message.into(), reason);
    status.code = code;
    kube::Error::Api(status.boxed())
}

/// A change of an object, which was created, deleted or modified.
pub(super) struct Entry<T> {
    pub(super) before: Option<Arc<T>>,
    pub(super) after: Option<Arc<T>>,
    pub(super) version: u64,
    /// The author of the change.
    pub(super) by: String,
    /// The change as the watches show it.
    pub(super) shown: OnceCell<Change>,
}

/// The objects of a kind, and the log of their changes.
pub(super) struct Table<T> {
    pub(super) objects: BTreeMap<ObjectKey, Arc<T>>,
    pub(super) log: Vec<Entry<T>>,
    /// The number of entries that were compacted.
    pub(super) compacted: usize,
    /// The length of the log.
    pub(super) changed: watch::Sender<usize>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            log: vec![],
            compacted: 0,
            changed: watch::Sender::new(0),
        }
    }
}

impl<T> Table<T> {
    pub(super) fn put(
        &mut self,
        key: ObjectKey,
        after: Option<Arc<T>>,
        (version, by): (u64, &str),
    ) {
        let before = match &after {
            Some(object) => self.objects.insert(key, object.clone()),
            None => self.objects.remove(&key),
        };
        self.log.push(Entry {
            before,
            after,
            version,
            by: by.to_owned(),
            shown: OnceCell::new(),
        });
        self.changed.send_replace(self.log.len());
    }
}

#[derive(Default)]
pub(super) struct ApiServer {
    version: u64,
    uid: u64,
    pub(super) instances: Table<Instance>,
    pub(super) nodes: Table<Node>,
    pub(super) node_devices: Table<NodeDevices>,
    pub(super) pods: Table<Pod>,
    pub(super) configurations: Table<Configuration>,
    pub(super) slices: Table<Plain>,
    pub(super) classes: Table<Plain>,
    pub(super) leases: Table<Plain>,
    /// Jobs, Services, and whatever else there is none of.
    pub(super) others: Table<Pod>,
}

impl ApiServer {
    /// Returns the version of the last change.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    pub(super) fn next_uid(&mut self) -> u64 {
        self.uid += 1;
        self.uid
    }

    pub(super) fn get(&self, name: &str) -> kube::Result<Arc<Instance>> {
        let there = self.instances.objects.get(&key(name)).cloned();
        there.ok_or_else(|| refusal(404, format!("instances {name:?} not found")))
    }

    pub(super) fn create(
        &mut self,
        instance: &Instance,
        now: Timestamp,
    ) -> kube::Result<Arc<Instance>> {
        let key = key_of(&instance.metadata);
        if self.instances.objects.contains_key(&key) {
            return Err(refusal(409, format!("instances {key} already exists")));
        }
        let mut instance = instance.clone();
        instance.metadata.uid = Some(format!("uid-{}", self.next_uid()));
        instance.metadata.creation_timestamp = Some(Time(now));
        instance.status = None;
        Ok(self.store(instance, names::CONTROLLER_MANAGER))
    }

    fn store(&mut self, mut instance: Instance, by: &str) -> Arc<Instance> {
        let key = key_of(&instance.metadata);
        let version = self.next_version();
        instance.metadata.resource_version = Some(version.to_string());
        // Go leaves out empty maps.
        let metadata = &mut instance.metadata;
        metadata.labels.take_if(|labels| labels.is_empty());
        metadata.annotations.take_if(|all| all.is_empty());
        let instance = Arc::new(instance);
        let stored = Some(instance.clone());
        self.instances.put(key, stored, (version, by));
        instance
    }

    /// Patches the object, or its status where `is_status`.
    pub(super) fn patch(
        &mut self,
        name: &str,
        (patch, is_status): (&Patch, bool),
        by: &str,
    ) -> kube::Result<Arc<Instance>> {
        let before = self.get(name)?;
        let mut after = patched(&*before, patch)?;
        if is_status {
            after.metadata = before.metadata.clone();
            after.spec = before.spec.clone();
        } else {
            after.status.clone_from(&before.status)
        }
        after.metadata.managed_fields = None;
        let nodes: BTreeSet<_> = after.spec.nodes.iter().collect();
        if nodes.len() < after.spec.nodes.len() {
            return Err(refusal(422, "spec.nodes: Duplicate value"));
        }
        if after.metadata.uid != before.metadata.uid {
            return Err(refusal(422, "metadata.uid: field is immutable"));
        }
        if after == *before {
            Ok(before)
        } else {
            Ok(self.store(after, by))
        }
    }

    fn put_node_devices(
        &mut self,
        name: &str,
        (uid, spec): (Option<String>, &NodeDevicesSpec),
        by: &str,
    ) -> NodeDevices {
        let version = self.next_version();
        let mut object = NodeDevices::new(name, spec.clone());
        object.metadata.uid = uid;
        object.metadata.resource_version = Some(version.to_string());
        let stored = Some(Arc::new(object.clone()));
        self.node_devices.put(key(name), stored, (version, by));
        object
    }

    pub(super) fn create_node_devices(
        &mut self,
        name: &str,
        spec: &NodeDevicesSpec,
        by: &str,
    ) -> kube::Result<NodeDevices> {
        if self.node_devices.objects.contains_key(&key(name)) {
            return Err(refusal(409, format!("nodedevices {name:?} already exists")));
        }
        let uid = Some(format!("uid-{}", self.next_uid()));
        Ok(self.put_node_devices(name, (uid, spec), by))
    }

    /// Applies a merge patch of the whole list.
    pub(super) fn patch_node_devices(
        &mut self,
        name: &str,
        spec: &NodeDevicesSpec,
        by: &str,
    ) -> kube::Result<NodeDevices> {
        let there = self.node_devices.objects.get(&key(name)).cloned();
        let there = there.ok_or_else(|| refusal(404, format!("nodedevices {name:?} not found")))?;
        if there.spec == *spec {
            Ok(NodeDevices::clone(&there))
        } else {
            Ok(self.put_node_devices(name, (there.metadata.uid.clone(), spec), by))
        }
    }

    pub(super) fn delete_node_devices(
        &mut self,
        name: &str,
        uid: Option<&str>,
    ) -> kube::Result<()> {
        let there = self.node_devices.objects.get(&key(name));
        let there = there.ok_or_else(|| refusal(404, format!("nodedevices {name:?} not found")))?;
        if uid.is_some() && uid != there.metadata.uid.as_deref() {
            return Err(refusal(409, "the precondition does not hold"));
        }
        let by = (self.next_version(), names::CONTROLLER_MANAGER);
        self.node_devices.put(key(name), None, by);
        Ok(())
    }

    pub(super) fn delete(&mut self, name: &str, preconditions: &Preconditions) -> kube::Result<()> {
        let metadata = &self.get(name)?.metadata;
        let differs =
            |wanted: &Option<String>, there: &Option<String>| wanted.is_some() && wanted != there;
        if differs(&preconditions.uid, &metadata.uid)
            || differs(&preconditions.resource_version, &metadata.resource_version)
        {
            return Err(refusal(409, "the precondition does not hold"));
        }
        let by = (self.next_version(), names::CONTROLLER_MANAGER);
        self.instances.put(key(name), None, by);
        Ok(())
    }

    pub(super) fn put_node(&mut self, name: &str, state: Option<NodeState>) {
        let version = self.next_version();
        let node = state.map(|state| {
            Arc::new(Node {
                name: name.to_owned(),
                version,
                state,
            })
        });
        self.nodes.put(key(name), node, (version, "kubernetes"));
    }

    pub(super) fn put_pod(&mut self, name: &str, pod: Option<Pod>) {
        let version = self.next_version();
        let pod = pod.map(|pod| Arc::new(Pod { version, ..pod }));
        self.pods.put(key(name), pod, (version, "kubernetes"));
    }

    pub(super) fn put_configuration(
        &mut self,
        mut configuration: Configuration,
    ) -> Arc<Configuration> {
        let (key, version) = (key_of(&configuration.metadata), self.next_version());
        configuration.metadata.resource_version = Some(version.to_string());
        let configuration = Arc::new(configuration);
        let by = (version, names::CONTROLLER_MANAGER);
        (self.configurations).put(key, Some(configuration.clone()), by);
        configuration
    }

    /// Patches the status.
    pub(super) fn patch_configuration(
        &mut self,
        key: &ConfigurationKey,
        patch: &Patch,
    ) -> kube::Result<Arc<Configuration>> {
        let before = self.configurations.objects.get(&key.untyped()).cloned();
        let before = before.ok_or_else(|| refusal(404, "not found"))?;
        let after = patched(&*before, patch)?;
        if after == *before {
            return Ok(before);
        }
        Ok(self.put_configuration(after))
    }

    pub(super) fn create_pod(&mut self, mut pod: Pod) -> kube::Result<Arc<Pod>> {
        if self.pods.objects.contains_key(&key(&pod.name)) {
            return Err(refusal(409, format!("pods {:?} already exists", pod.name)));
        }
        pod.uid = self.next_uid();
        let name = pod.name.clone();
        self.put_pod(&name, Some(pod));
        Ok(self.pods.objects[&key(&name)].clone())
    }

    /// Deletes a Pod. Its kubelet ends it; a Pod that has ended, or has no node, is removed at once.
    pub(super) fn delete_pod(
        &mut self,
        name: &str,
        (uid, version): (&str, Option<&str>),
    ) -> kube::Result<()> {
        let there = self.pods.objects.get(&key(name));
        let there = there.ok_or_else(|| refusal(404, format!("pods {name:?} not found")))?;
        let is_other = version.is_some_and(|version| there.version.to_string() != version);
        if there.uid.to_string() != uid || is_other {
            return Err(refusal(409, "the precondition does not hold"));
        }
        let mut pod = Pod::clone(there);
        pod.is_deleting = true;
        let is_over = pod.is_idle();
        self.put_pod(name, Some(pod).filter(|_| !is_over));
        Ok(())
    }

    pub(super) fn pod(&self, name: &str, uid: u64) -> Option<Pod> {
        let pod = self.pods.objects.get(&key(name))?;
        (pod.uid == uid).then(|| Pod::clone(pod))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::patch::{add, remove, test};
    use serde_json::{Value, json};

    #[test]
    fn a_patch_is_atomic_and_its_tests_hold_for_what_is_not_there() {
        let mut server = ApiServer::default();
        let clock = Timestamp::from_second(0).unwrap();
        let mut cam = Instance::new("cam-1", Default::default());
        cam.metadata.namespace = Some("default".to_owned());
        let made = server.create(&cam, clock).unwrap();
        let again = server.create(&cam, clock).unwrap_err();
        assert_eq!(crate::cluster::code(&again), Some(409));

        let slot = ["spec", "deviceUsage", "cam-1-0"];
        let claim = |owner: &str| Patch(vec![test(&slot, Value::Null), add(&slot, json!(owner))]);
        let claimed = server.patch("cam-1", (&claim("a"), false), "a").unwrap();
        let refused = server
            .patch("cam-1", (&claim("b"), false), "b")
            .unwrap_err();
        assert_eq!(crate::cluster::code(&refused), Some(422));
        assert_eq!(claimed.spec.device_usage["cam-1-0"], "a");

        let half = Patch(vec![remove(&slot), remove(&["spec", "deviceUsage", "x"])]);
        server.patch("cam-1", (&half, false), "a").unwrap_err();
        assert_eq!(server.get("cam-1").unwrap(), claimed);

        let old = Preconditions {
            uid: made.metadata.uid.clone(),
            resource_version: made.metadata.resource_version.clone(),
        };
        server.delete("cam-1", &old).unwrap_err();
        assert_eq!(server.instances.log.len(), 2);
    }
}
