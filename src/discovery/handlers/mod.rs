//! The handlers built in. A new one is a folder here, a line in [`builtin`] and an example.
pub mod cdi;
pub mod debug_echo;
mod fields;
mod matcher;
pub mod zeroconf;

use super::DiscoveryHandler;

/// Every handler this binary has, for a user who may offer every kind of CDI device.
pub fn builtin() -> Vec<Box<dyn DiscoveryHandler>> {
    builtin_with(cdi::Kinds::All)
}

/// Every handler this binary has. Configurations may ask for `kinds` of CDI device only.
pub fn builtin_with(kinds: cdi::Kinds) -> Vec<Box<dyn DiscoveryHandler>> {
    vec![
        Box::new(zeroconf::Zeroconf::default()),
        Box::new(cdi::Cdi::new(cdi::FOLDERS, kinds)),
        Box::new(debug_echo::DebugEcho::new(debug_echo::AVAILABILITY_FILE)),
    ]
}
