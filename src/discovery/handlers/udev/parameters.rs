//! Defines the parameters of one discovery.
use super::{super::super::turns::Turns, details::Details, subsystems::Subsystems, sysfs::Sysfs};

pub(super) struct Parameters {
    pub(super) details: Details,
    pub(super) allowed: Subsystems,
    pub(super) sysfs: Sysfs,
    /// The turns of all discoveries.
    pub(super) reads: Turns,
}
