//! The door through which `fuzz/` reaches what the agent makes of a checkpoint: nothing else uses it.
use super::plan::{self, Checkpoint, KubeletRecords};
use crate::{
    agent::values::{PodList, Prepared},
    model::{resource_name::ResourcePrefixes, slot_table::Use},
};
use petiole_kubelet_api::checkpoint::Data;

/// Returns the uses of the resources with these prefixes, by a checkpoint that the kubelet has just written.
pub fn uses(data: Data, prefixes: &ResourcePrefixes) -> Vec<Use> {
    let records = KubeletRecords {
        list: PodList::default(),
        checkpoint: Checkpoint::Read {
            entries: (data.pod_device_entries.iter().flatten())
                .filter_map(|entry| plan::entry(entry, prefixes))
                .collect(),
            is_fresh: true,
        },
        claims: Prepared::default(),
    };
    records.uses()
}
