//! The values of a Configuration's fields that it does not set. Pure.

/// The time for which slots of a lost node are kept if the Configuration does not say. Kubernetes evicts the Pods of a
/// node that is not ready after the same time.
pub const SLOT_RELEASE_SECONDS: i64 = 300;

pub(super) fn instances() -> bool {
    true
}

pub(super) fn capacity() -> i32 {
    1
}

pub(super) fn grace_period_seconds() -> i64 {
    60
}

pub(super) fn max_instances() -> i64 {
    1000
}

pub(super) fn slot_release_seconds() -> i64 {
    SLOT_RELEASE_SECONDS
}
