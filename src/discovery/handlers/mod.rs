//! Lists the built-in handlers. A new handler needs a folder here, a line in [`builtin`] and an example.
pub mod cdi;
pub mod debug_echo;
mod fields;
mod glob;
mod matcher;
pub mod mqtt;
pub mod onvif;
pub mod opcua;
pub mod paths;
mod publish;
mod tcp;
pub mod udev;
pub mod zeroconf;

use super::{DiscoveryHandler, external::HostPaths};
use std::path::PathBuf;

/// The devices of the machine itself that Configurations may offer.
#[derive(Debug, Clone)]
pub struct Allowed {
    /// The allowed kinds of CDI device.
    pub kinds: cdi::Kinds,
    /// The allowed subsystems of the kernel.
    pub subsystems: udev::Subsystems,
    /// The allowed paths of device nodes.
    pub paths: HostPaths,
    /// Where the `/dev` of the node is mounted.
    pub dev: PathBuf,
}

impl Allowed {
    /// Allows everything: for a user who is root of the machine.
    pub fn all() -> Self {
        Self {
            kinds: cdi::Kinds::All,
            subsystems: udev::Subsystems::All,
            paths: HostPaths::all(),
            dev: paths::DEV.into(),
        }
    }
}

/// The handlers that may run as processes of their own. `cdi` may not: its devices are names of CDI devices, and Akri's protocol
/// has no field for these. `paths` reads nothing that others send.
pub const ISOLATABLE: [&str; 6] = ["zeroconf", "debugEcho", "udev", "onvif", "opcua", "mqtt"];

/// Returns all handlers of this binary, for a user who may offer everything.
pub fn builtin() -> Vec<Box<dyn DiscoveryHandler>> {
    builtin_with(Allowed::all())
}

/// Returns all handlers of this binary. Configurations may offer only the `allowed` devices.
pub fn builtin_with(allowed: Allowed) -> Vec<Box<dyn DiscoveryHandler>> {
    let zeroconf = zeroconf::Zeroconf::default();
    vec![
        Box::new(opcua::Opcua::new(zeroconf.mdns())),
        Box::new(zeroconf),
        Box::new(cdi::Cdi::new(cdi::FOLDERS, allowed.kinds)),
        Box::new(udev::Udev::new(udev::ROOT, allowed.subsystems)),
        Box::new(paths::Paths::new(allowed.dev, allowed.paths)),
        Box::new(onvif::Onvif),
        Box::new(mqtt::Mqtt::default()),
        Box::new(debug_echo::DebugEcho::new(debug_echo::AVAILABILITY_FILE)),
    ]
}
