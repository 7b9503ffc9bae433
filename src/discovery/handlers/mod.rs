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

/// A YAML error as one line, for conditions, Events and logs: the place and what is wrong, without the picture.
fn yaml_error(error: serde_saphyr::Error) -> String {
    let error = error.without_snippet().to_string();
    error.strip_prefix("error: ").unwrap_or(&error).to_owned()
}
