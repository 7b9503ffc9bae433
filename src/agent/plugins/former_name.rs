//! Slots that containers hold by a name that their resource had before: it had another prefix, or the Configuration named another.
//!
//! The kubelet takes a resource with another name for another resource, all of whose ids are free: it would give a
//! container a device that a running one has.
use super::{denied::Denied, inputs::Inputs};
use crate::{agent::kubelet_records::KubeletRecords, model::slot_table::Resource};

/// Refuses ids that a container holds by another name of the resource. Asks the kubelet only about those that are held; without
/// Instances it alone knows which are.
pub(super) async fn check(
    inputs: &Inputs,
    resource: &Resource,
    containers: &[Vec<String>],
) -> Result<(), Denied> {
    let Some(name) = inputs.validated.borrow().names.of(resource) else {
        return Ok(());
    };
    let is_without_instances = inputs.offer(resource).is_some();
    let held: Vec<&String> = {
        let slots = inputs.table.borrow();
        let ids = containers.iter().flatten();
        ids.filter(|id| is_without_instances || slots.held_as(resource, id).is_some())
            .collect()
    };
    let by_another = |records: KubeletRecords| {
        let by_resource = records.held_by_resource().into_iter();
        let mut others = by_resource.filter(|(other, _)| *other != name);
        others.find_map(|(other, ids)| {
            let id = held.iter().find(|id| ids.contains(**id))?.to_string();
            Some(Denied::FormerName {
                id,
                resource: other,
            })
        })
    };
    // A fresh look costs the kubelet a write: only for what the records have. Whoever cannot be asked says nothing against it:
    // the kubelet is right on its own node.
    if held.is_empty() || (inputs.records.read().await).map_or(true, |r| by_another(r).is_none()) {
        return Ok(());
    }
    let fresh = inputs.records.read_fresh().await;
    fresh.ok().and_then(by_another).map_or(Ok(()), Err)
}
