//! Gives `fuzz/` access to the private parsers of this handler. Nothing else uses this file.
use super::{
    details::Details,
    plan::{self, Tree},
    record::{Chain, Record},
    subsystems::Subsystems,
    uevent,
};
use crate::model::device::DeviceSet;
use std::{collections::BTreeMap, sync::Arc};

/// The most device nodes of a device without VFIO. Each of them has one more property.
pub const NODES_MAX: usize = plan::NODES_MAX;

/// Returns whether a netlink message is about a device.
pub fn is_event(message: &[u8]) -> bool {
    uevent::parse(message).is_some()
}

/// Returns the devices that rules select from a tree. Each text is a path, the `uevent` file and the entry in udev's
/// database. The path decides whether a device is below another one. Returns `None` if the handler rejects the details.
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
