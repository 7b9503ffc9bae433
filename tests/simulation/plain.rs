//! Keeps ResourceSlices, DeviceClasses and the Lease as the API server of `api_server.rs` does: as they are written, with a version that is
//! checked.
use super::{
    api_server::{ApiServer, Table, key, refusal},
    objects::Stored,
};
use crate::api::names;
use serde_json::Value;
use std::sync::Arc;

/// An object that the server does not understand.
pub(super) struct Plain(pub(super) Value);

impl Stored for Plain {
    fn json(&self) -> Value {
        self.0.clone()
    }
}

impl ApiServer {
    fn plain(&mut self, resource: &str) -> &mut Table<Plain> {
        match resource {
            "resourceslices" => &mut self.slices,
            "leases" => &mut self.leases,
            _ => &mut self.classes,
        }
    }

    /// Creates or replaces an object of which only the version is checked.
    pub(super) fn put_plain(
        &mut self,
        resource: &str,
        name: &str,
        mut object: Value,
    ) -> kube::Result<Value> {
        let (version, uid) = (self.next_version(), self.next_uid());
        let metadata = &mut object["metadata"];
        let generated = metadata["generateName"]
            .as_str()
            .map(|prefix| format!("{prefix}{uid}"));
        let given = (!name.is_empty()).then(|| name.to_owned());
        let name = given
            .or(generated)
            .or_else(|| metadata["name"].as_str().map(str::to_owned));
        let name = name.ok_or_else(|| refusal(422, "it has no name"))?;
        let table = self.plain(resource);
        let there = table
            .objects
            .get(&key(&name))
            .map(|there| there.0["metadata"].clone());
        let wanted = &metadata["resourceVersion"];
        if !wanted.is_null()
            && there
                .as_ref()
                .is_none_or(|there| there["resourceVersion"] != *wanted)
        {
            return Err(refusal(409, format!("{resource} {name} is another")));
        }
        metadata["name"] = name.as_str().into();
        metadata["uid"] =
            there.map_or_else(|| uid.to_string().into(), |there| there["uid"].clone());
        metadata["resourceVersion"] = version.to_string().into();
        let by = (version, names::CONTROLLER_MANAGER);
        table.put(key(&name), Some(Arc::new(Plain(object.clone()))), by);
        Ok(object)
    }

    pub(super) fn create_lease(&mut self, mut lease: Value) -> kube::Result<Value> {
        if !self.leases.objects.is_empty() {
            return Err(refusal(409, "the Lease already exists"));
        }
        lease["metadata"]["namespace"] = "petiole".into();
        self.put_plain("leases", "", lease)
    }

    /// Applies a merge patch of which only the version is checked.
    pub(super) fn patch_plain(
        &mut self,
        resource: &str,
        name: &str,
        patch: &Value,
    ) -> kube::Result<Value> {
        let there = self.plain(resource).objects.get(&key(name)).cloned();
        let there = there.ok_or_else(|| refusal(404, format!("{resource} {name} not found")))?;
        let mut object = there.0.clone();
        json_patch::merge(&mut object, patch);
        self.put_plain(resource, name, object)
    }

    pub(super) fn delete_plain(&mut self, resource: &str, name: &str) -> kube::Result<()> {
        let by = (self.next_version(), names::CONTROLLER_MANAGER);
        let table = self.plain(resource);
        if !table.objects.contains_key(&key(name)) {
            return Err(refusal(404, format!("{resource} {name} not found")));
        }
        table.put(key(name), None, by);
        Ok(())
    }
}
