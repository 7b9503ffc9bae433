//! Lists the built-in handlers. A new handler needs a folder here, a `pub mod`, a line in [`builtin_with`], its name in
//! `BUILT_IN_HANDLERS` of petiole-model, and an example.
mod allow_list;
pub mod cdi;
mod certificates;
pub mod debug_echo;
mod fields;
mod filter;
mod matcher;
pub mod mqtt;
mod neighbour_table;
mod neighbours;
mod only;
pub mod onvif;
pub mod opcua;
pub mod paths;
pub mod probe;
mod problems;
mod tcp;
pub mod udev;
pub mod zeroconf;

pub use allow_list::AllowList;
pub use only::KEY as ONLY;

use super::{external::HostPaths, interface::DiscoveryHandler};
use std::path::PathBuf;

/// What Configurations may offer of the machine itself, and whom they may have asked.
#[derive(Debug, Clone)]
pub struct Allowed {
    /// The allowed kinds of CDI device.
    pub kinds: cdi::Kinds,
    /// The allowed subsystems of the kernel.
    pub subsystems: udev::Subsystems,
    /// The allowed paths of device nodes.
    pub paths: HostPaths,
    /// The folder at which the `/dev` of the node is mounted.
    pub dev: PathBuf,
    /// The networks whose hosts may be probed.
    pub networks: probe::Networks,
}

impl Allowed {
    /// Allows everything: for a user who is root of the machine.
    pub fn all() -> Self {
        Self {
            kinds: cdi::Kinds::All,
            subsystems: udev::Subsystems::All,
            paths: HostPaths::all(),
            dev: paths::DEV.into(),
            networks: probe::Networks::ALL,
        }
    }
}

/// The handlers that may run as processes of their own. `cdi` may not: its devices are names of CDI devices, and Akri's protocol
/// has no field for these. `paths` reads nothing that others send.
pub const ISOLATABLE: [&str; 7] = [
    "zeroconf",
    "debugEcho",
    "udev",
    "onvif",
    "opcua",
    "mqtt",
    "probe",
];

/// Returns all handlers of this binary, for a user who may offer everything.
pub fn builtin() -> Vec<Box<dyn DiscoveryHandler>> {
    builtin_with(Allowed::all())
}

/// Returns all handlers of this binary. Configurations may offer and ask only what is `allowed`.
pub fn builtin_with(allowed: Allowed) -> Vec<Box<dyn DiscoveryHandler>> {
    let zeroconf = zeroconf::Zeroconf::default();
    vec![
        Box::new(opcua::Opcua::new(zeroconf.mdns())),
        Box::new(zeroconf),
        Box::new(cdi::Cdi::new(cdi::FOLDERS, allowed.kinds)),
        Box::new(udev::Udev::new(udev::ROOT, allowed.subsystems)),
        Box::new(paths::Paths::new(allowed.dev, allowed.paths)),
        Box::new(onvif::Onvif::default()),
        Box::new(mqtt::Mqtt::default()),
        Box::new(probe::Probe::new(allowed.networks)),
        Box::new(debug_echo::DebugEcho::new(debug_echo::AVAILABILITY_FILE)),
    ]
}
