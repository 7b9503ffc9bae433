//! The handlers built in. A new one is a folder here, a line in [`builtin`] and an example.
use super::DiscoveryHandler;

/// Every handler this binary has.
pub fn builtin() -> Vec<Box<dyn DiscoveryHandler>> {
    vec![]
}
