//! The checkpoint of the device manager, which a kubelet writes and the agent reads too. An input is such a file; a wrong
//! checksum is set right, or it would stop every input there is.
use petiole::{
    agent::fuzzing::uses,
    model::{
        instance_name::{InstanceKey, InstanceName},
        slot_table::{ObservedSlots, Precedence, SlotTable},
    },
};
use petiole_kubelet::fuzzing::checkpoint_again;
use petiole_kubelet_api::checkpoint::{self, Data, Entry};
use std::collections::BTreeMap;

const PREFIX: &str = "akri.sh";

pub fn run(bytes: &[u8]) {
    let Ok(data) = checkpoint::parse(bytes) else {
        assert!(checkpoint_again(bytes).is_none());
        return;
    };
    let (mut entries, mut json) = (vec![], serde_json::Deserializer::from_slice(bytes));
    checkpoint::each_entry(&mut json, &mut |entry| entries.push(entry)).expect("it was read whole");
    assert_eq!(entries, data.pod_device_entries.clone().unwrap_or_default());
    let written = checkpoint::written(data.clone());
    let verified = checkpoint::verified(&written).expect("its checksum is right");
    assert_eq!(verified, data, "what was written is not what is read");
    let ours = checkpoint_again(&written).expect("its checksum is right");
    let again = checkpoint_again(&ours).expect("what we write can be read");
    assert_eq!(ours, again, "what was read is not what was written");
    check_uses(data);
}

/// Checks the uses that the agent reads from it.
fn check_uses(data: Data) {
    let ids: usize = data
        .pod_device_entries
        .iter()
        .flatten()
        .map(|entry| entry.ids().count())
        .sum();
    let names = data
        .pod_device_entries
        .iter()
        .flatten()
        .filter_map(instance)
        .collect::<Vec<_>>();
    let uses = uses(data, &PREFIX.parse().unwrap());
    assert!(uses.iter().all(|one| !one.ids.is_empty()));
    assert!(uses.iter().map(|one| one.ids.len()).sum::<usize>() <= ids);
    let mut table = SlotTable::new("node-a");
    table.observe(names);
    let adoptions = table.adoptions(&uses);
    for change in &adoptions.changes {
        assert!(table.is_free(&change.slot), "{} is not free", change.slot);
    }
}

/// An Instance that the resource may be of.
fn instance(entry: &Entry) -> Option<ObservedSlots> {
    let name = entry
        .resource_name
        .strip_prefix(PREFIX)?
        .strip_prefix('/')?;
    Some(ObservedSlots {
        key: InstanceKey::new("default", name),
        precedence: Precedence::default(),
        configuration: (InstanceName::from(name).configuration()).unwrap_or_default(),
        capacity: 2,
        users_max: 2,
        is_offered: true,
        is_by_claims: false,
        is_own: false,
        told: BTreeMap::new(),
        usage: BTreeMap::new(),
    })
}
