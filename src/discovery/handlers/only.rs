//! Reads `only`, the ids of the devices that count: `petiole discover --mark` writes it. Pure.
use super::fields::{Fields, strings};
use crate::model::device::DeviceSet;
use std::collections::BTreeSet;

/// The key in `discoveryDetails`.
pub const KEY: &str = "only";

/// The ids of the devices that count; `None` if all do.
#[derive(Debug, Clone, Default)]
pub(super) struct Only(Option<BTreeSet<String>>);

impl Only {
    pub(super) fn take(fields: &mut Fields) -> Result<Self, String> {
        let Some(value) = fields.take(KEY) else {
            return Ok(Self::default());
        };
        let ids = strings(KEY, Some(value))?;
        if ids.is_empty() {
            return Err(format!(
                "`{KEY}` is an empty list, and no device could count: leave it out to take all"
            ));
        }
        Ok(Self(Some(ids.into_iter().collect())))
    }

    pub(super) fn takes_all(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn takes(&self, id: &str) -> bool {
        let ids = self.0.as_ref();
        ids.is_none_or(|ids| ids.contains(id))
    }

    /// Returns a set without the devices that do not count.
    pub(super) fn of(&self, mut set: DeviceSet) -> DeviceSet {
        if let Some(ids) = &self.0 {
            set.devices.retain(|id, _| ids.contains(id.as_str()));
        }
        set
    }
}
