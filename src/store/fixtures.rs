//! Values that the tests of several modules share.
use crate::model::{
    instance_name::InstanceKey,
    slot::{SlotId, SlotOwner},
    slot_table::SlotChange,
};

/// Returns an exchange of the first slot of `default/cam-1` between nodes.
pub(super) fn exchange_of(from: Option<&str>, to: Option<&str>) -> SlotChange {
    let owner = |o: &str| SlotOwner::Node(o.into());
    SlotChange {
        key: InstanceKey::new("default", "cam-1"),
        slot: SlotId::new("cam-1", 0),
        from: from.map(owner),
        to: to.map(owner),
        connection_digest: Some("digest".to_owned()),
    }
}
