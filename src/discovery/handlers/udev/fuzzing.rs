//! The doors through which `fuzz/` reaches this handler: nothing else uses them.
use super::{
    details::Details,
    plan::{self, Tree},
    record::{Chain, Record},
    subsystems::Subsystems,
    uevent,
};
use crate::model::device::DeviceSet;
use std::{collections::BTreeMap, sync::Arc};

/// The most device nodes of a device without VFIO, and the properties beside one for each.
pub const NODES_MAX: usize = plan::NODES_MAX;

/// Whether a message of netlink is about something.
pub fn is_event(message: &[u8]) -> bool {
    uevent::parse(message).is_some()
}

/// The devices that rules take of some, each a path, its `uevent` file and its entry in udev's database, each below the
/// one before or not, as its path says. `None` where the handler refuses the details.
pub fn devices(details: &str, texts: &[(&str, &str, &str)]) -> Option<DeviceSet> {
    let details = Details::parse(details, &BTreeMap::new()).ok()?;
    let mut records: BTreeMap<String, Arc<Record>> = BTreeMap::new();
    for (devpath, uevent, entry) in texts {
        let mut record = Record::default();
        record.read_uevent(uevent);
        record.subsystem = record.properties.get("SUBSYSTEM").cloned();
        record.read_database(entry);
        record.attributes = record.properties.clone();
        records.insert(format!("/devices/{devpath}"), Arc::new(record));
    }
    let mut tree = Tree::default();
    for (devpath, record) in &records {
        let ancestors = super::record::parents(devpath)
            .filter_map(|path| Some((path.to_owned(), records.get(path)?.clone())))
            .collect();
        let chain = Chain::new(devpath.clone(), record.clone(), ancestors);
        if details.take(&chain) {
            tree.taken.insert(devpath.clone(), chain);
        }
    }
    Some(plan::devices(&tree, &details, &Subsystems::All))
}
