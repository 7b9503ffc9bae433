//! Defines the flags of an agent about `containerDevices` of Configurations.
use crate::{discovery::external::AllowedPath, model::container_devices::ContainerRules};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct ContainerFlags {
    /// Paths in containers, each with all that is below it, at which Configurations may let device nodes appear besides those
    /// below /dev. With `hostUsers: false` such a path of the node itself may be mounted into the container, so name none that
    /// exists on nodes [default: none]
    #[arg(
        long,
        env = "PETIOLE_CONTAINER_PATHS",
        value_name = "PATH,...",
        value_delimiter = ','
    )]
    container_paths: Vec<AllowedPath>,
    /// Folder in which the container runtime looks for CDI files, usually /var/run/cdi. The agent writes a file for each
    /// device whose Configuration gives its nodes a mode or an owner. No other agent may have this folder [default:
    /// none; such Configurations are refused]
    #[arg(long, env = "PETIOLE_CDI_FOLDER", value_name = "DIR")]
    cdi_folder: Option<PathBuf>,
}

impl ContainerFlags {
    pub(super) fn rules(&self) -> ContainerRules {
        let paths = self.container_paths.iter();
        ContainerRules {
            paths: paths.map(|path| path.as_str().to_owned()).collect(),
            cdi_folder: self.cdi_folder.clone(),
        }
    }
}
