//! A kubelet's device manager that stands alone: device plugins cannot tell it from the real one, its Pods are static
//! manifests, and their containers are plain processes.
//!
//! ```text
//! plugins ─ Register ─▶ plugin_manager ─▶ device_manager ◀─ allocate ─ pods ◀─ manifests
//!                                              │                        │
//!                                              └── pod_resources, api ──┘   (sockets that others read)
//! ```
//! There is no isolation: mounts, device nodes and CDI names are recorded in annotations of the Pod, not applied.
//! Containers end with their kubelet, those of one that was killed with the start of the next; that one starts them again
//! with what their plugins answered before (PreStartContainer is called, Allocate is not).
mod api;
pub mod client;
mod csi;
mod device_manager;
mod dra;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod metrics;
mod plugin_manager;
mod pod_resources;
mod pods;
mod rate_limit;
mod texts;
mod view;

use crate::{files, supervisor::Supervisor};
use anyhow::{Context as _, bail};
use device_manager::DeviceManager;
use metrics::Metrics;
use plugin_manager::{
    CSI_PLUGIN, DEVICE_PLUGIN, DRA_PLUGIN, Handlers, PluginHandler, PluginManager, service,
};
use pods::{PodManager, Pods};
use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How long the Pods get to end beyond their own grace when the kubelet stops.
const STOP_MARGIN: Duration = Duration::from_secs(5);
/// How long calls that are under way get when the kubelet stops.
const LAST_CALLS: Duration = Duration::from_millis(200);

#[derive(Debug, Clone)]
pub struct Settings {
    /// Holds `device-plugins`, `plugins_registry`, `pod-resources`, `logs`, `containers`, `kubelet-api.sock` and
    /// `kubelet.lock`, which one kubelet has at a time.
    pub root_dir: PathBuf,
    pub manifests: PathBuf,
    pub node_name: String,
    /// How long the devices of a plugin that went away still count as capacity.
    pub endpoint_grace: Duration,
    /// The wait before a container is started for the second time; doubled each time up to 5 minutes. The kubelet
    /// waits 10 s; containers that are processes start faster.
    pub restart_backoff: Duration,
    /// How long all Pods together may take to end when the kubelet stops.
    pub stop_grace: Duration,
    pub call_limits: CallLimits,
}

/// How long plugins may take to answer.
#[derive(Debug, Clone, Copy)]
pub struct CallLimits {
    pub options: Duration,
    /// Allocate and GetPreferredAllocation: the kubelet waits for ever, and with it every other Pod of the node.
    pub allocate: Duration,
    pub pre_start: Duration,
    /// NodeGetInfo: a driver may have to ask its storage.
    pub node_info: Duration,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            options: Duration::from_secs(10),
            allocate: Duration::from_secs(30),
            // The kubelet's own, as the next one.
            pre_start: Duration::from_secs(30),
            node_info: Duration::from_secs(120),
        }
    }
}

impl Settings {
    /// As a real kubelet has it, apart from the shorter back-off.
    pub fn new(
        root_dir: impl Into<PathBuf>,
        manifests: impl Into<PathBuf>,
        node_name: impl Into<String>,
    ) -> Self {
        Self {
            root_dir: root_dir.into(),
            manifests: manifests.into(),
            node_name: node_name.into(),
            endpoint_grace: Duration::from_secs(300),
            restart_backoff: Duration::from_secs(1),
            stop_grace: Duration::from_secs(30),
            call_limits: CallLimits::default(),
        }
    }
}

/// Runs until `shutdown`, then ends the containers. All state is in `settings.root_dir`: several kubelets can run in
/// one process, and one after another on the same folder.
pub async fn run(settings: Settings, shutdown: CancellationToken) -> anyhow::Result<()> {
    let settings = Arc::new(settings);
    let plugins = settings.root_dir.join("device-plugins");
    let registry = settings.root_dir.join("plugins_registry");
    for folder in [&plugins, &registry, &settings.manifests] {
        fs::create_dir_all(folder).map_err(|e| files::at(folder, &e))?;
    }
    // Whoever can write there has processes started.
    files::check_owner(&settings.root_dir)?;
    files::check_owner(&settings.manifests)?;
    let _until_the_end = RootLock::take(&settings.root_dir)?;
    // The kubelet's order: what was is read before the folder is swept and anyone can register.
    let metrics = Metrics::default();
    let (devices, device_tasks) = DeviceManager::start(&plugins, &settings, metrics.clone());
    let drivers = csi::Drivers::new(settings.call_limits.node_info);
    let handlers = handlers(&devices, &drivers);
    let (plugin_manager, requests) = PluginManager::new(handlers, registry, metrics.clone());
    let plugins_shown = api::Plugins {
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
    let api = api::serve(
        settings.clone(),
        plugins_shown,
        pods,
        shutdown.child_token(),
    );
    let api = api.context("status socket")?;
    supervisor.spawn("status socket", |_| api);
    supervisor.spawn("pods", |stop| pod_manager.run(stop));
    info!(node = %settings.node_name, root = %settings.root_dir.display(), "kubelet is up");
    let grace = settings.stop_grace + STOP_MARGIN;
    supervisor.run(grace).await
}

/// The root folder is this kubelet's. Two on one folder would remove each other's sockets and end each other's
/// containers. However its process ends, the lock ends with it.
struct RootLock(File);

impl RootLock {
    fn take(root: &Path) -> anyhow::Result<Self> {
        let path = root.join("kubelet.lock");
        let at = |e| files::at(&path, &e);
        let file = File::create(&path).map_err(at)?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => {
                bail!("root folder {}: another kubelet has it", root.display())
            }
            Err(TryLockError::Error(e)) => Err(at(e).into()),
        }
    }
}

impl Drop for RootLock {
    /// A process that is being started has a copy of the file until its exec (flock(2)): closing ours is not enough.
    fn drop(&mut self) {
        if let Err(e) = self.0.unlock() {
            warn!("kubelet.lock cannot be unlocked: {e}");
        }
    }
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

/// Runs a gRPC server until it is told to stop; connections that stay open do not keep it.
async fn until_stopped(
    server: impl Future<Output = Result<(), tonic::transport::Error>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    tokio::select! {
        served = server => Ok(served?),
        () = async { shutdown.cancelled().await; sleep(LAST_CALLS).await } => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_folder_has_one_kubelet_and_is_free_when_that_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let lock = RootLock::take(folder.path()).unwrap();
        assert!(RootLock::take(folder.path()).is_err());
        // As a process has it between its fork and its exec.
        let _inherited = lock.0.try_clone().unwrap();
        drop(lock);
        RootLock::take(folder.path()).unwrap();
    }
}
