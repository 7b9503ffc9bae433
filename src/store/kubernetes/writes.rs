//! Patches Instances: a patch is one request, which is repeated with a newer Instance if its guard did not hold.
use super::Inner;
use crate::{
    api::{instance::Instance, names},
    cluster::{code, instance_key, is_conflict, is_not_found, is_unprocessable, reason, untracked},
    model::{instance_name::InstanceKey, status_code::is_busy},
    store::interface::StoreError,
};
use json_patch::Patch as JsonPatch;
use kube::api::PatchParams;
use std::sync::Arc;

/// The most attempts of a patch, because another writer may change the Instance between our read and our patch.
const TRIES: usize = 4;

impl Inner {
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
                Ok(patch) => match self.patch_once(key, patch).await? {
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

    async fn patch_once(&self, key: &InstanceKey, patch: JsonPatch) -> Result<Attempt, StoreError> {
        let params = PatchParams {
            field_manager: Some(names::AGENT_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let api = self.instance_api(key);
        let written = api.patch(&key.name, &params, &untracked(patch)).await;
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
        Some(code) if is_busy(code) => {
            StoreError::Unavailable(format!("the API server is not able to: {said}"))
        }
        Some(403) => StoreError::Refused(format!(
            "the API server refuses it, which RBAC or an admission policy decides: {said}"
        )),
        Some(_) => StoreError::Refused(format!("the API server refuses it: {said}")),
    }
}
