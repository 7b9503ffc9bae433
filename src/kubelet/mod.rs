//! Runs the parts of a kubelet that device plugins talk to, without a cluster: the plugin manager, the device manager,
//! and static Pods whose containers are plain processes.
//!
//! ```text
//! plugins ─ Register ─▶ plugin_manager ─▶ device_manager ◀─ allocate ─ pods ◀─ manifests
//!                                              │                        │
//!                                              └─ pod_resources, status_socket ─┘   (sockets for clients)
//! ```
//! # Scope
//! The kubelet is a second product in this crate. It is for trying out and testing any device plugin on one machine: a
//! plugin observes the same calls, errors and restarts as from the Go kubelet. Petiole's own tests and `petiole demo` use
//! it for that.
//!
//! It will not get images, isolation, volumes, networks, probes, an API server, or scheduling. Mounts, device nodes and
//! CDI names are recorded in annotations of the Pod and not applied. Drivers for dynamic resource allocation are
//! rejected, and no CSI volume is mounted: these drivers are only registered, so that a plugin that is also a driver
//! finds what it expects. A feature is added only if a device plugin can observe that it is missing.
//!
//! It imports no part of the agent, the controller, discovery or the stores, so it can become a crate of its own. Clients
//! use its sockets; [`client`] is one for the status socket.
//!
//! # Restarts
//! Containers end with their kubelet. The containers of a kubelet that was killed are ended by the next one on the same
//! folder. That kubelet starts them again with the recorded answers of their plugins: PreStartContainer is called,
//! Allocate is not.
pub mod client;
mod device_manager;
mod drivers;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod go_errors;
mod metrics;
mod plugin_manager;
mod pod_resources;
mod pods;
mod rate_limit;
mod resource_name;
mod root_lock;
mod settings;
mod status_socket;
mod view;
mod waits;

pub use settings::{CallLimits, Settings};

use crate::{files, supervisor::Supervisor};
use anyhow::Context as _;
use device_manager::manager::DeviceManager;
use drivers::{csi, dra};
use metrics::Metrics;
use plugin_manager::{
    manager::PluginManager,
    plugin::{CSI_PLUGIN, DEVICE_PLUGIN, DRA_PLUGIN, Handlers, PluginHandler},
    service,
};
use pods::{manager::PodManager, table::Pods};
use root_lock::RootLock;
use std::{fs, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// The time that a stop may take beyond `stop_grace` before tasks are aborted.
const STOP_MARGIN: Duration = Duration::from_secs(5);

/// Runs the kubelet until `shutdown`, then ends the containers. All state is in `settings.root_dir`: several kubelets can
/// run in one process, and one after another on the same folder.
///
/// The tasks share two tables. The device manager owns the inventory: `endpoint grace` and `device plugin streams` change
/// it, `checkpoint` reads it. `pods` and its workers change the table of Pods. `registration service` sends each call to
/// `plugin manager`. The two sockets that clients use only read.
pub async fn run(settings: Settings, shutdown: CancellationToken) -> anyhow::Result<()> {
    let settings = Arc::new(settings);
    let plugins = settings.root_dir.join("device-plugins");
    let registry = settings.root_dir.join("plugins_registry");
    for folder in [&plugins, &registry, &settings.manifests] {
        fs::create_dir_all(folder).map_err(|e| files::at(folder, &e))?;
    }
    // Anyone who can write to these folders can make the kubelet start processes.
    files::check_owner(&settings.root_dir)?;
    files::check_owner(&settings.manifests)?;
    let _until_the_end = RootLock::take(&settings.root_dir)?;
    // The order is the Go kubelet's: the checkpoint is read before the folder is emptied and before plugins can
    // register.
    let metrics = Metrics::default();
    let (devices, device_tasks) = DeviceManager::start(&plugins, &settings, metrics.clone());
    let drivers = csi::Drivers::new(settings.call_limits.node_info);
    let handlers = handlers(&devices, &drivers);
    let (plugin_manager, requests) = PluginManager::new(handlers, registry, metrics.clone());
    let plugins_shown = status_socket::Plugins {
        devices: devices.clone(),
        drivers,
        report: plugin_manager.report(),
        metrics,
    };
    let pods = Pods::new();
    let pod_manager = PodManager::new(settings.clone(), devices.clone(), pods.clone());
    service::prepare(&plugins)?;

    let mut supervisor = Supervisor::new(shutdown.clone());
    device_tasks.spawn_into(&mut supervisor);
    supervisor.spawn("plugin manager", |stop| plugin_manager.run(stop));
    let registration = service::serve(&plugins, requests, shutdown.child_token())
        .context("registration service")?;
    supervisor.spawn("registration service", |_| registration);
    let folder = settings.root_dir.join("pod-resources");
    let resources = pod_resources::serve(
        &folder,
        devices.clone(),
        pods.clone(),
        shutdown.child_token(),
    );
    let resources = resources.context("pod resources API")?;
    supervisor.spawn("pod resources API", |_| resources);
    let status = status_socket::serve(
        settings.clone(),
        plugins_shown,
        pods,
        shutdown.child_token(),
    );
    let status = status.context("status socket")?;
    supervisor.spawn("status socket", |_| status);
    supervisor.spawn("pods", |stop| pod_manager.run(stop));
    info!(node = %settings.node_name, root = %settings.root_dir.display(), "kubelet started");
    let grace = settings.stop_grace + STOP_MARGIN;
    supervisor.run(grace).await
}

fn handlers(devices: &DeviceManager, drivers: &csi::Drivers) -> Handlers {
    let device_plugins: Arc<dyn PluginHandler> = Arc::new(devices.clone());
    let csi_drivers: Arc<dyn PluginHandler> = Arc::new(drivers.clone());
    let dra_drivers: Arc<dyn PluginHandler> = Arc::new(dra::NotSupported);
    Handlers::from([
        (DEVICE_PLUGIN, device_plugins),
        (CSI_PLUGIN, csi_drivers),
        (DRA_PLUGIN, dra_drivers),
    ])
}
