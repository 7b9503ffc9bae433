//! Runs the parts of a kubelet that device plugins talk to, without a cluster: the plugin manager, the device manager,
//! and static Pods whose containers are plain processes.
//!
//! ```text
//! plugins ─ Register ─▶ plugin_manager ─▶ device_manager ◀─ allocate ─ pods ◀─ manifests
//!                                              │                        │
//!                                              └─ pod_resources, status_socket ─┘   (sockets for clients)
//! ```
//! # Scope
//! It is for trying out and testing any device plugin on one machine: a plugin observes the same calls, errors and restarts
//! as from the Go kubelet. Petiole's own tests, `petiole kubelet` and `petiole demo` use it for that.
//!
//! It will not get images, isolation, volumes, networks, probes, an API server, or scheduling. Mounts, device nodes and
//! CDI names are recorded in annotations of the Pod and not applied. Drivers for dynamic resource allocation are
//! rejected, and no CSI volume is mounted: these drivers are only registered, so that a plugin that is also a driver
//! finds what it expects. A feature is added only if a device plugin can observe that it is missing.
//!
//! # Use
//! [`start`] it with [`Settings`] in a runtime of Tokio, one or several in a process. Plugins and clients use its sockets;
//! [`client`] is one for the status socket. Each socket, file and error text that a plugin sees is where the Go kubelet has it,
//! below [`Settings::root_dir`] instead of `/var/lib/kubelet`.
//!
//! # Restarts
//! Containers end with their kubelet. The containers of a kubelet that was killed are ended by the next one on the same
//! folder. That kubelet starts them again with the recorded answers of their plugins: PreStartContainer is called,
//! Allocate is not.
#![warn(missing_docs)]
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
mod resource_name;
mod root_lock;
mod settings;
mod status_socket;
mod view;
mod waits;

pub use settings::{CallLimits, Settings};

use anyhow::Context as _;
use device_manager::manager::DeviceManager;
use drivers::{csi, dra};
use metrics::Metrics;
use petiole_base::{files, supervisor::Supervisor};
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

/// Starts the kubelet, and returns the future that ends with it: after `shutdown`, when the containers have ended. When this
/// function returns, the sockets are there, and they are served while the future is polled. If the future is dropped, its
/// containers are killed at once, and its sockets and the checkpoint stay, as if the kubelet were killed.
///
/// All state is in `settings.root_dir`: several kubelets can run in one process, and one after another on the same folder.
///
/// # Errors
/// The function fails if a folder cannot be made, belongs to another user, or is that of a running kubelet, and if the path of
/// a socket is longer than [`petiole_kubelet_api::uds::PATH_LIMIT`]. The future fails if a task of the kubelet has failed; the
/// other tasks are stopped then.
///
/// # Panics
/// The function panics outside of a runtime of Tokio.
///
/// # Tasks
/// The tasks share two tables. The device manager owns the inventory: `endpoint grace` and `device plugin streams` change
/// it, `checkpoint` reads it. `pods` and its workers change the table of Pods. `registration service` sends each call to
/// `plugin manager`. The two sockets that clients use only read.
pub fn start(
    settings: Settings,
    shutdown: CancellationToken,
) -> anyhow::Result<impl Future<Output = anyhow::Result<()>> + Send + use<>> {
    let settings = Arc::new(settings);
    let plugins = settings.root_dir.join("device-plugins");
    let registry = settings.root_dir.join("plugins_registry");
    for folder in [&plugins, &registry, &settings.manifests] {
        fs::create_dir_all(folder).map_err(|e| files::at(folder, &e))?;
    }
    // Anyone who can write to these folders can make the kubelet start processes.
    files::check_owner(&settings.root_dir)?;
    files::check_owner(&settings.manifests)?;
    let lock = RootLock::take(&settings.root_dir)?;
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
    Ok(async move {
        let _until_the_end = lock;
        supervisor.run(grace).await
    })
}

/// Runs the kubelet until `shutdown`: it is [`start`] for those who need not know when the sockets are there.
pub async fn run(settings: Settings, shutdown: CancellationToken) -> anyhow::Result<()> {
    start(settings, shutdown)?.await
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

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
