//! Finds devices of the machine that udev rules select, as Akri's handler `udev` does.
//!
//! Each device that a rule selects becomes a device of this node, with its device node. Everything is read from sysfs
//! and from udev's database. Messages of the kernel and of udev only say where to look again, so nothing is polled. The
//! crate `udev` would need a library in C.
//!
//! This file connects the parts: `sysfs` and `monitor` read, `rules` and `plan` decide.
mod details;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod growth;
mod identity;
mod monitor;
mod parameters;
mod pattern;
mod plan;
mod record;
mod rules;
mod scan;
mod subsystems;
mod sysfs;
mod uevent;

pub use subsystems::{AllowedSubsystem, Subsystems};

use super::super::{
    interface::{
        DetailsError, Discovery, DiscoveryError, DiscoveryHandler, Properties, Reads, Task,
    },
    turns::Turns,
};
use crate::{
    discovery::publish::publish,
    model::device::{DeviceSet, Scope},
};
use details::Details;
use growth::Growth;
use monitor::{Events, Monitor};
use parameters::Parameters;
use petiole_base::waits::sleep_until_or_never;
use plan::Tree;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use sysfs::Sysfs;
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{Instant, sleep},
};
use uevent::Event;

/// The folder that contains this machine's `sys` and `run`.
pub const ROOT: &str = "/";
/// The pause between two looks. It bounds the cost of a storm of events.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// The pause after a look at all devices.
const AFTER_ALL: Duration = Duration::from_millis(250);

/// The most discoveries that read at the same time. Each takes a thread, and one may wait for a slow attribute.
const READS_AT_ONCE: usize = 4;

/// Finds devices of this machine.
#[derive(Debug)]
pub struct Udev {
    root: PathBuf,
    allowed: Subsystems,
    reads: Turns,
}

impl Udev {
    /// Creates the handler. `root` has the folders `sys` and `run/udev`; `allowed` are the subsystems whose devices may
    /// be offered.
    pub fn new(root: impl Into<PathBuf>, allowed: Subsystems) -> Self {
        Self {
            root: root.into(),
            allowed,
            reads: Turns::new(READS_AT_ONCE),
        }
    }

    fn parameters(
        &self,
        details: &str,
        properties: &Properties,
    ) -> Result<Parameters, DetailsError> {
        let details = Details::parse(details, properties)?;
        self.allowed.check_any()?;
        if details.has_vfio {
            self.allowed.check_vfio()?;
        }
        Ok(Parameters {
            details,
            allowed: self.allowed.clone(),
            sysfs: Sysfs::new(Path::new(&self.root)),
            reads: self.reads.clone(),
        })
    }
}

impl DiscoveryHandler for Udev {
    fn name(&self) -> &'static str {
        "udev"
    }

    fn usual_scope(&self) -> Scope {
        Scope::Node
    }

    fn reads(&self) -> Reads {
        Reads::Only(&[details::RESOURCE_PROPERTY, details::VFIO_PROPERTY])
    }

    fn prepare(&self, details: &str, properties: &Properties) -> Result<Discovery, DetailsError> {
        let parameters = Arc::new(self.parameters(details, properties)?);
        // A path of sysfs is valid on its own node only.
        Ok(Discovery::new(Scope::Node, async move |task: Task| {
            let monitor = Monitor::open().map_err(|e| {
                DiscoveryError(format!(
                    "the kernel's messages about devices (netlink) cannot be read: {e}"
                ))
            })?;
            follow(parameters, monitor, &task.found).await
        }))
    }
}

/// Looks at all devices once, and then where events require it.
async fn follow(
    parameters: Arc<Parameters>,
    mut events: impl Events,
    found: &watch::Sender<DeviceSet>,
) -> Result<(), DiscoveryError> {
    parameters
        .sysfs
        .check()
        .map_err(|e| DiscoveryError(e.to_string()))?;
    let (mut tree, mut growth) = (Tree::default(), Growth::default());
    let mut happened = vec![Event::Anything];
    loop {
        let pause = if happened.contains(&Event::Anything) {
            AFTER_ALL
        } else {
            BETWEEN_LOOKS
        };
        let now = Instant::now();
        let look = move |parameters: &Parameters| scan::again(parameters, tree, &happened, now);
        let mut devices;
        (tree, devices) = parameters.clone().read(look).await?;
        if parameters.details.group_recursive {
            growth.hold_back(&mut devices, tree.waits_until().is_some(), now);
        }
        publish(devices, found);
        sleep(pause).await;
        let until = tree.waits_until().into_iter().chain(growth.next()).min();
        happened = tokio::select! {
            events = events.next() => events.map_err(|e| DiscoveryError(e.to_string()))?,
            () = sleep_until_or_never(until) => vec![],
        };
    }
}

impl Parameters {
    /// Reads devices in a thread of its own, because some attributes are slow. Returns what is offered of them, too.
    async fn read(
        self: Arc<Self>,
        read: impl FnOnce(&Self) -> Tree + Send + 'static,
    ) -> Result<(Tree, DeviceSet), DiscoveryError> {
        let turn = self.reads.begin().await;
        let tree = spawn_blocking(move || {
            let _turn = turn;
            let tree = read(&self);
            let devices = plan::devices(&tree, &self.details, &self.allowed);
            (tree, devices)
        });
        tree.await.map_err(|e| DiscoveryError(e.to_string()))
    }
}

#[cfg(test)]
mod tests;
