//! Writes Instances: each change is one request, which is repeated with a newer Instance if the guard of its
//! patch did not hold.
use super::{
    Inner,
    plan::{self, Description, NameConflict, name_conflict},
};
use crate::{
    api::{
        instance::{HEALTHY, Instance},
        names,
        reason::Reason,
    },
    cluster::{
        code, events::about, is_conflict, is_not_found, is_unprocessable, reason, untracked,
    },
    model::instance_name::InstanceKey,
    store::{About, Health, InstanceChange, StoreError, instance_key, plan::in_use_by},
};
use json_patch::Patch as JsonPatch;
use kube::api::{DeleteParams, PatchParams, PostParams, Preconditions};
use std::sync::Arc;

/// The most attempts of a patch, because another writer may change the Instance between our read and our patch.
const TRIES: usize = 4;

/// The part of an object that a patch changes: the API server takes the status alone.
#[derive(Debug, Clone, Copy)]
enum Part {
    Object,
    Status,
}

impl Inner {
    pub(super) async fn apply_one(&self, change: &InstanceChange) -> Result<(), StoreError> {
        let key = change.key();
        let node = &self.settings.node_name;
        match change {
            InstanceChange::Create(instance) => self.create(&key, instance).await,
            InstanceChange::Join(_) => self
                .patch(&key, |i| Ok(plan::join(i, node)))
                .await
                .map(drop),
            InstanceChange::Leave(_) => self.leave(&key).await,
            InstanceChange::Describe {
                capacity,
                broker_properties,
                device_id,
                pin,
                connection,
                ..
            } => {
                let said = Description {
                    capacity: *capacity,
                    broker_properties,
                    device_id: device_id.as_ref(),
                    pin: pin.as_ref(),
                    connection: connection.as_ref(),
                };
                self.patch(&key, |i| Ok(plan::describe(i, &said)))
                    .await
                    .map(drop)
            }
            InstanceChange::Health { health, now, .. } => self.health(&key, health, now).await,
            InstanceChange::Delete {
                reason,
                even_in_use,
                ..
            } => {
                if !even_in_use {
                    self.check_unused(&key)?;
                }
                self.delete(&key, reason).await
            }
        }
    }

    async fn create(&self, key: &InstanceKey, instance: &Instance) -> Result<(), StoreError> {
        let params = PostParams {
            field_manager: Some(names::AGENT_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let new = plan::to_create(instance, &self.settings.node_name);
        match self.instance_api(key).create(&params, &new).await {
            // The health of the device is written next, as for every Instance without it, so the plugin need not wait
            // for it.
            Ok(created) => {
                self.change(|known| known.written(created));
                Ok(())
            }
            Err(e) if is_conflict(&e) => self.join_existing(key, &new).await,
            Err(e) => Err(unavailable(&e)),
        }
    }

    /// Joins an existing Instance. The controller has removed this node while it was offline, or the answer to an
    /// earlier creation was lost. It may also be the Instance of another device with the same name.
    async fn join_existing(&self, key: &InstanceKey, ours: &Instance) -> Result<(), StoreError> {
        let node = &self.settings.node_name;
        let there = self.read(key).await?;
        match name_conflict(&there, ours) {
            NameConflict::Same => {
                self.change(|known| known.read_to_join(there));
                self.patch(key, |i| Ok(plan::join(i, node))).await.map(drop)
            }
            NameConflict::Other => {
                self.change(|known| known.add_foreign(there));
                Err(StoreError::Exists(key.clone()))
            }
            NameConflict::Leaving => Err(StoreError::Unavailable(format!(
                "an Instance {key} is still being deleted"
            ))),
        }
    }

    /// Leaves an Instance. If a container holds a slot of it, the controller removes this node later. `spec` is written
    /// last, because a node that is no longer in it does not retry.
    async fn leave(&self, key: &InstanceKey) -> Result<(), StoreError> {
        let node = &self.settings.node_name;
        self.patch_status(key, |i| plan::unseen(i, node)).await?;
        let left = self.patch(key, |i| Ok(plan::leave(i, node))).await?;
        if left.spec.nodes.is_empty() && in_use_by(&left.spec).is_none() {
            let reason = "no node sees its device";
            self.check_unused(key)?;
            return self.delete(key, reason).await;
        }
        Ok(())
    }

    async fn health(
        &self,
        key: &InstanceKey,
        health: &Health,
        now: &str,
    ) -> Result<(), StoreError> {
        let node = &self.settings.node_name;
        let instance = self.stored(key)?;
        self.patch_status(key, |i| plan::health(i, node, health, now))
            .await?;
        self.tell_of_health(&instance, health);
        Ok(())
    }

    /// Writes one Event when a trouble begins, and one when the health changes without a trouble.
    fn tell_of_health(&self, instance: &Instance, health: &Health) {
        let node = &self.settings.node_name;
        let mut entries = instance.status.iter().flat_map(|status| &status.nodes);
        let before = entries.find(|entry| entry.name == *node);
        if let Some(trouble) = &health.trouble {
            let reason = trouble.reason.as_str();
            let is_known = before.is_some_and(|b| b.reason.as_deref() == Some(reason));
            if !is_known {
                let note = format!("node {node}: {}", trouble.message);
                self.events.warning(about(instance), reason, note);
            }
            return;
        }
        match (
            before.is_none_or(|b| b.health == HEALTHY),
            health.is_healthy,
        ) {
            (true, false) => {
                let note = format!("node {node} does not see the device any more");
                self.events
                    .warning(about(instance), Reason::DeviceGone.as_str(), note);
            }
            (false, true) => {
                let note = format!("node {node} sees the device again");
                self.events
                    .normal(about(instance), Reason::DeviceBack.as_str(), note);
            }
            (true, true) | (false, false) => {}
        }
    }

    async fn patch_status(
        &self,
        key: &InstanceKey,
        patch: impl Fn(&Instance) -> Option<JsonPatch>,
    ) -> Result<(), StoreError> {
        let mut reason = String::new();
        for _ in 0..TRIES {
            let Some(patch) = patch(&*self.stored(key)?) else {
                return Ok(());
            };
            match self.patch_once(key, patch, Part::Status).await? {
                Attempt::Written(_) => return Ok(()),
                Attempt::Stale(why) => reason = why,
            }
            self.refresh(key).await?;
        }
        Err(changing(key, &reason))
    }

    fn check_unused(&self, key: &InstanceKey) -> Result<(), StoreError> {
        let instance = self.stored(key)?;
        match in_use_by(&instance.spec) {
            Some(holders) => Err(StoreError::InUse {
                instance: key.clone(),
                holders,
            }),
            None => Ok(()),
        }
    }

    async fn delete(&self, key: &InstanceKey, reason: &'static str) -> Result<(), StoreError> {
        let instance = self.stored(key)?;
        let (uid, resource_version) = plan::deleted_as(&instance);
        let params = DeleteParams::default().preconditions(Preconditions {
            uid,
            resource_version,
        });
        match self.instance_api(key).delete(&key.name, &params).await {
            Ok(_) => {}
            Err(e) if is_not_found(&e) => {}
            Err(e) if is_conflict(&e) => {
                self.refresh(key).await?;
                let message = format!("Instance {key} changed meanwhile and is looked at again");
                return Err(StoreError::Unavailable(message));
            }
            Err(e) => return Err(unavailable(&e)),
        }
        self.change(|known| known.deleted(key));
        let configuration = instance.spec.configuration_key(&key.namespace);
        if let Some(object) = self.reference(&About::Configuration(configuration)) {
            let note = format!("Instance {} is deleted: {reason}", key.name);
            self.events
                .normal(object, Reason::InstanceDeleted.as_str(), note);
        }
        Ok(())
    }

    /// Patches the known Instance, and reads it again if the patch did not match. A patch that cannot be built is also
    /// retried once with a newer Instance.
    pub(super) async fn patch(
        &self,
        key: &InstanceKey,
        patch: impl Fn(&Instance) -> Result<JsonPatch, StoreError>,
    ) -> Result<Arc<Instance>, StoreError> {
        let (mut reason, mut is_refused) = (String::new(), false);
        for _ in 0..TRIES {
            match patch(&*self.stored(key)?) {
                Ok(patch) => match self.patch_once(key, patch, Part::Object).await? {
                    Attempt::Written(written) => return Ok(written),
                    Attempt::Stale(why) => reason = why,
                },
                Err(error) if is_refused => return Err(error),
                Err(_) => is_refused = true,
            }
            self.refresh(key).await?;
        }
        Err(changing(key, &reason))
    }

    /// Patches the object or its status once.
    async fn patch_once(
        &self,
        key: &InstanceKey,
        patch: JsonPatch,
        part: Part,
    ) -> Result<Attempt, StoreError> {
        let params = PatchParams {
            field_manager: Some(names::AGENT_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let (api, patch) = (self.instance_api(key), untracked(patch));
        let written = match part {
            Part::Status => api.patch_status(&key.name, &params, &patch).await,
            Part::Object => api.patch(&key.name, &params, &patch).await,
        };
        match written {
            Ok(written) => {
                self.change(|known| known.written(written.clone()));
                Ok(Attempt::Written(Arc::new(written)))
            }
            Err(e) if is_not_found(&e) => {
                self.change(|known| known.deleted(key));
                Err(StoreError::Gone(key.clone()))
            }
            Err(e) if is_unprocessable(&e) || is_conflict(&e) => Ok(Attempt::Stale(e.to_string())),
            Err(e) => Err(unavailable(&e)),
        }
    }

    async fn read(&self, key: &InstanceKey) -> Result<Instance, StoreError> {
        match self.instance_api(key).get(&key.name).await {
            Ok(instance) => Ok(instance),
            Err(e) if is_not_found(&e) => {
                self.change(|known| known.deleted(key));
                Err(StoreError::Gone(key.clone()))
            }
            Err(e) => Err(unavailable(&e)),
        }
    }

    async fn refresh(&self, key: &InstanceKey) -> Result<(), StoreError> {
        let instance = self.read(key).await?;
        debug_assert_eq!(instance_key(&instance.metadata), *key);
        self.change(|known| known.read(instance));
        Ok(())
    }

    pub(super) fn stored(&self, key: &InstanceKey) -> Result<Arc<Instance>, StoreError> {
        let stored = self.change(|known| known.stored(key));
        stored.ok_or_else(|| StoreError::Gone(key.clone()))
    }
}

/// The result of a patch.
enum Attempt {
    Written(Arc<Instance>),
    /// The patch does not match the present Instance.
    Stale(String),
}

fn changing(key: &InstanceKey, reason: &str) -> StoreError {
    StoreError::Refused(format!(
        "Instance {key} cannot be patched, after {TRIES} tries: {reason}"
    ))
}

/// Converts an error for the caller of the write.
fn unavailable(error: &kube::Error) -> StoreError {
    let said = reason(error);
    match code(error) {
        None => StoreError::Unavailable(format!("the API server cannot be reached: {said}")),
        Some(401 | 408 | 429 | 500..) => {
            StoreError::Unavailable(format!("the API server is not able to: {said}"))
        }
        Some(403) => StoreError::Refused(format!(
            "the API server refuses it, which RBAC or an admission policy decides: {said}"
        )),
        Some(_) => StoreError::Refused(format!("the API server refuses it: {said}")),
    }
}
