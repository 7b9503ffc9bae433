//! Changes the owners of slots: one patch for each Instance, which is repeated with a newer Instance if its guard did not hold.
use super::{inner::Inner, plan};
use crate::{
    api::{instance::Instance, names},
    cluster::{
        code, instance_key, is_conflict, is_not_found, is_unprocessable, patched_by, reason,
        untracked,
    },
    model::{instance_name::InstanceKey, slot_table::SlotChange, status_code::is_busy},
    store::{interface::StoreError, plan::exchanged},
};
use json_patch::Patch as JsonPatch;
use std::sync::Arc;

/// The most attempts of a patch, because another writer may change the Instance between our read and our patch.
const TRIES: usize = 4;

impl Inner {
    /// Exchanges slots of one Instance, all or none. An exchange that the known Instance does not allow is tried once with a newer one.
    pub(super) async fn exchange(
        &self,
        key: &InstanceKey,
        changes: Vec<&SlotChange>,
    ) -> Result<(), StoreError> {
        let (mut reason, mut is_refused) = (String::new(), false);
        for _ in 0..TRIES {
            let known = self.stored(key)?;
            match exchanged(&known, &changes) {
                Ok(_) => match self.patch(&known, plan::exchange(&known, &changes)).await? {
                    Attempt::Written => return Ok(()),
                    Attempt::Stale(why) => reason = why,
                },
                Err(error) if is_refused => return Err(error),
                Err(_) => is_refused = true,
            }
            self.refresh(&known).await?;
        }
        Err(StoreError::Refused(format!(
            "Instance {key} cannot be patched, after {TRIES} tries: {reason}"
        )))
    }

    async fn patch(&self, known: &Instance, patch: JsonPatch) -> Result<Attempt, StoreError> {
        let key = instance_key(&known.metadata);
        let (api, params) = (self.instance_api(&key), patched_by(names::AGENT_MANAGER));
        let written = api.patch(&key.name, &params, &untracked(patch)).await;
        match written {
            Ok(written) => {
                self.change(|known| known.written(written));
                Ok(Attempt::Written)
            }
            Err(e) if is_not_found(&e) => {
                self.change(|all| all.deleted(known));
                Err(StoreError::Gone(key))
            }
            Err(e) if is_unprocessable(&e) || is_conflict(&e) => Ok(Attempt::Stale(e.to_string())),
            Err(e) => Err(unavailable(&e)),
        }
    }

    async fn refresh(&self, known: &Instance) -> Result<(), StoreError> {
        let key = instance_key(&known.metadata);
        match self.instance_api(&key).get(&key.name).await {
            Ok(instance) => {
                debug_assert_eq!(instance_key(&instance.metadata), key);
                self.change(|all| all.read(instance));
                Ok(())
            }
            Err(e) if is_not_found(&e) => {
                self.change(|all| all.deleted(known));
                Err(StoreError::Gone(key))
            }
            Err(e) => Err(unavailable(&e)),
        }
    }

    pub(super) fn stored(&self, key: &InstanceKey) -> Result<Arc<Instance>, StoreError> {
        let stored = self.change(|known| known.stored(key));
        stored.ok_or_else(|| StoreError::Gone(key.clone()))
    }
}

/// The result of a patch.
enum Attempt {
    Written,
    /// The patch does not match the present Instance.
    Stale(String),
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
