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

#[cfg(test)]
mod tests {
    use super::{super::fields::Handler, *};
    use crate::model::device::Device;

    fn only(yaml: &str) -> Result<Only, String> {
        let handler = Handler {
            name: "test",
            example: "a: b",
        };
        Only::take(&mut Fields::read(handler, yaml)?)
    }

    #[test]
    fn all_devices_count_or_those_that_are_named() {
        let set = || DeviceSet::complete(["a", "b", "c"].map(Device::new));
        let count = |yaml: &str| only(yaml).unwrap().of(set()).devices.len();
        assert_eq!(
            (count(""), count("only: a"), count("only: [a, c, z]")),
            (3, 1, 2)
        );
        assert!(only("").unwrap().takes("z") && !only("only: a").unwrap().takes("z"));
        let refused = only("only: []").unwrap_err();
        assert!(refused.contains("`only` is an empty list"), "{refused}");
    }
}
