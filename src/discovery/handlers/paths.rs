//! Finds device nodes by their paths: `/dev/kvm`, `/dev/dri/card0` with `/dev/dri/renderD128`, each `/dev/video[0-9]*`.
//!
//! A path need not be of a device that the kernel has announced: opening `/dev/fuse` or `/dev/net/tun` is what loads their drivers.
//! The handler reads names only, and opens no device. This file connects the parts: `scan` looks, and `plan` decides.
mod details;
mod plan;
mod scan;

use super::super::{
    external::HostPaths,
    interface::{DetailsError, Discovery, DiscoveryError, DiscoveryHandler, Properties, Task},
};
use crate::{
    discovery::publish::publish,
    folder_watch::Watch,
    model::device::{DeviceSet, Scope},
};
use details::Details;
use std::{collections::BTreeSet, fs::Metadata, path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{Instant, sleep},
};

/// The folder of this machine's device nodes.
pub const DEV: &str = "/dev";
/// The shortest pause between two looks. A look that took longer is followed by a pause as long as it took.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// The most folders that one discovery of `paths` watches. Beyond it: it looks every two seconds instead.
const FOLDERS_MAX: usize = 64;

/// Finds device nodes of this machine.
#[derive(Debug)]
pub struct Paths {
    dev: PathBuf,
    allowed: Arc<HostPaths>,
}

impl Paths {
    /// Creates the handler. `dev` is where the node's `/dev` is mounted; `allowed` are the paths that may be offered.
    pub fn new(dev: impl Into<PathBuf>, allowed: HostPaths) -> Self {
        Self {
            dev: dev.into(),
            allowed: Arc::new(allowed),
        }
    }
}

impl DiscoveryHandler for Paths {
    fn name(&self) -> &'static str {
        "paths"
    }

    fn usual_scope(&self) -> Scope {
        Scope::Node
    }

    fn prepare(&self, details: &str, _: &Properties) -> Result<Discovery, DetailsError> {
        let details = Details::parse(details)?;
        if self.allowed.is_empty() {
            let message = format!("no path is allowed on this node. {}", plan::REMEDY);
            return Err(DetailsError(message));
        }
        let discovery = PathsDiscovery {
            dev: self.dev.clone(),
            details: Arc::new(details),
            allowed: self.allowed.clone(),
            is_node: scan::is_device_node,
        };
        // A device node is one of its own node only.
        Ok(Discovery::new(Scope::Node, async move |task: Task| {
            discovery.follow(&task.found).await
        }))
    }
}

#[derive(Clone)]
struct PathsDiscovery {
    dev: PathBuf,
    details: Arc<Details>,
    allowed: Arc<HostPaths>,
    is_node: fn(&Metadata) -> bool,
}

impl PathsDiscovery {
    /// Looks at each change of a folder in which something could match.
    async fn follow(&self, found: &watch::Sender<DeviceSet>) -> Result<(), DiscoveryError> {
        let mut watch = Watch::for_names(FOLDERS_MAX);
        loop {
            let begun = Instant::now();
            let (devices, folders) = self.look().await?;
            let pause = begun.elapsed().max(BETWEEN_LOOKS);
            // What has appeared in a folder before it was watched is seen by one more look.
            let is_due = watch.follow(&folders);
            publish(devices, found);
            if !is_due {
                watch.changed().await;
            }
            sleep(pause).await;
        }
    }

    /// Returns the devices, and the folders in which others may appear.
    async fn look(&self) -> Result<(DeviceSet, BTreeSet<PathBuf>), DiscoveryError> {
        let this = self.clone();
        let look = spawn_blocking(move || this.look_now());
        let look = look.await.map_err(|e| DiscoveryError(e.to_string()))?;
        look.map_err(DiscoveryError)
    }

    fn look_now(&self) -> Result<(DeviceSet, BTreeSet<PathBuf>), String> {
        let look = scan::look(&self.dev, &self.details, self.is_node)?;
        let devices = plan::devices(&self.details, &look, &self.allowed)?;
        Ok((devices, look.folders))
    }
}

#[cfg(test)]
mod tests;
