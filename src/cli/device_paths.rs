//! Defines the flags of an agent about Configurations of the handler `paths`.
use crate::discovery::{
    external::{AllowedPath, HostPaths},
    handlers::paths::DEV,
};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct PathFlags {
    /// Device nodes, such as `/dev/kvm` or `/dev/ttyUSB*`, each path with all that is below it, that Configurations of paths may offer;
    /// `/dev` means all
    #[cfg_attr(feature = "people", doc = "[default: none; all with --standalone]")]
    #[cfg_attr(not(feature = "people"), doc = "[default: none]")]
    #[arg(
        long,
        env = "PETIOLE_DEVICE_PATHS",
        value_name = "PATH,...",
        value_delimiter = ','
    )]
    device_paths: Option<Vec<AllowedPath>>,
    #[command(flatten)]
    pub(super) dev: DevFlag,
}

#[derive(Debug, Args)]
pub(super) struct DevFlag {
    /// Folder at which the node's /dev is seen
    #[arg(
        long = "dev-dir",
        env = "PETIOLE_DEV_DIR",
        value_name = "DIR",
        default_value = DEV,
        hide_short_help = true
    )]
    pub(super) dir: PathBuf,
}

impl PathFlags {
    /// Returns the paths that may be offered. Only root of this machine can write manifests into a folder; in a cluster other
    /// users can create Configurations.
    pub(super) fn allowed(&self, is_standalone: bool) -> HostPaths {
        match &self.device_paths {
            Some(paths) => paths.iter().cloned().collect(),
            None if is_standalone => HostPaths::all(),
            None => HostPaths::from_iter([]),
        }
    }
}
