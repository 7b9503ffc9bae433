//! The handlers built in. A new one is a folder here, a line in [`builtin`] and an example.
pub mod cdi;
pub mod debug_echo;
mod fields;
mod matcher;
pub mod zeroconf;

use super::DiscoveryHandler;

/// Every handler this binary has.
pub fn builtin() -> Vec<Box<dyn DiscoveryHandler>> {
    vec![
        Box::new(zeroconf::Zeroconf),
        Box::new(cdi::Cdi::new(cdi::FOLDERS)),
        Box::new(debug_echo::DebugEcho::new(debug_echo::AVAILABILITY_FILE)),
    ]
}
