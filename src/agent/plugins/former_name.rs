//! Slots that containers hold by a name their Configuration's resource had before.
//!
//! The kubelet takes a resource with another name for another resource, all of whose ids are free: it would give a
//! container a device that a running one has.
use super::{denied::Denied, inputs::Inputs};
use crate::model::slot_table::Resource;

/// Refuses ids that a container holds by another name of the resource. Asks the kubelet only about those that are held.
pub(super) async fn check(
    inputs: &Inputs,
    resource: &Resource,
    containers: &[Vec<String>],
) -> Result<(), Denied> {
    let name = inputs.validated.borrow().names.of(resource);
    let (Resource::Configuration(_), Some(name)) = (resource, name) else {
        return Ok(());
    };
    let held: Vec<&String> = {
        let slots = inputs.table.borrow();
        let ids = containers.iter().flatten();
        ids.filter(|id| slots.held_as(resource, id).is_some())
            .collect()
    };
    if held.is_empty() {
        return Ok(());
    }
    // Whoever cannot be asked says nothing against it: the kubelet is right on its own node.
    let Ok(records) = inputs.records.read_fresh().await else {
        return Ok(());
    };
    for (other, ids) in records
        .held_by_resource()
        .iter()
        .filter(|(other, _)| **other != name)
    {
        if let Some(id) = held.iter().find(|id| ids.contains(**id)) {
            return Err(Denied::former_name(id, other));
        }
    }
    Ok(())
}
