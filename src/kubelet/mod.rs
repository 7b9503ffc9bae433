//! `petiole kubelet`: the kubelet's device manager, with static Pods as plain processes.
//!
//! A second implementation of the protocol that device plugins speak: plugins are tested with it without a cluster, and
//! newcomers see the whole way of a device. It is no node: nothing is isolated, and mounts and device nodes are
//! recorded, not applied.
//!
//! | socket | what it serves |
//! |---|---|
//! | `device-plugins/kubelet.sock` | `v1beta1.Registration` |
//! | `pod-resources/kubelet.sock` | `v1.PodResourcesLister` |
//! | `kubelet-api.sock` | HTTP: `/node`, `/pods`, `/plugins`, `/logs/…` as JSON (`api.rs`; [`client`] reads it) |
mod api;
mod checkpoint;
pub mod client;
mod device_manager;
mod plugin_manager;
mod pod_resources;
mod pods;

use crate::{files, supervisor::Supervisor};
use anyhow::Context as _;
use device_manager::DeviceManager;
use std::{
    fs,
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// How long tasks may take to end after a signal: containers have 30 s by default, and are killed then.
const GRACE: Duration = Duration::from_secs(35);
/// Registrations that wait to be looked at.
const COMMANDS_WAITING: usize = 1024;

#[derive(Debug, Clone)]
pub struct Settings {
    pub node_name: String,
    /// The kubelet's own folder: sockets, checkpoint, logs.
    pub root_dir: PathBuf,
    /// Static Pods.
    pub manifests: PathBuf,
    /// How long the resources of a plugin that is gone stay in capacity; 5 min in the real kubelet.
    pub endpoint_grace: Duration,
    /// The wait before a container's first restart; 10 s in the real kubelet.
    pub first_restart: Duration,
}

impl Settings {
    pub fn plugin_folder(&self) -> PathBuf {
        self.root_dir.join("device-plugins")
    }

    pub fn pod_resources_socket(&self) -> PathBuf {
        self.root_dir.join("pod-resources/kubelet.sock")
    }

    pub fn api_socket(&self) -> PathBuf {
        api_socket(&self.root_dir)
    }
}

/// Where the kubelet with this root folder answers about itself.
pub fn api_socket(root_dir: &Path) -> PathBuf {
    root_dir.join("kubelet-api.sock")
}

/// Runs a kubelet until `shutdown`. Containers end with it; what they hold is in the checkpoint.
pub async fn run(settings: Settings, shutdown: CancellationToken) -> anyhow::Result<()> {
    let plugin_folder = settings.plugin_folder();
    let pod_resources = settings.pod_resources_socket();
    let parents = [
        Some(plugin_folder.as_path()),
        pod_resources.parent(),
        Some(&settings.manifests),
    ];
    for folder in parents.into_iter().flatten() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let (devices, registered) = DeviceManager::new(device_manager::Settings {
        folder: plugin_folder.clone(),
        grace: settings.endpoint_grace,
    });
    remove_sockets(&plugin_folder)?;

    let pods = watch::Sender::default();
    let (commands, commanded) = mpsc::channel(COMMANDS_WAITING);
    let context = Arc::new(pods::Context {
        settings: pods::Settings {
            manifests: settings.manifests.clone(),
            logs: settings.root_dir.join("logs"),
            first_restart: settings.first_restart,
        },
        devices: devices.clone(),
        pods: pods.clone(),
    });
    let api = api::Api::new(settings.node_name.clone(), context.clone());
    let (api_socket, folder) = (settings.api_socket(), Arc::new(plugin_folder));
    let (handler, listed) = (devices.clone(), devices.clone());
    let mut tasks = Supervisor::new(shutdown);
    tasks.spawn("device manager", |stop| devices.run(registered, stop));
    tasks.spawn("plugin manager", |stop| {
        plugin_manager::run(handler, commanded, stop)
    });
    tasks.spawn("registration", |stop| {
        plugin_manager::serve(folder, commands, stop)
    });
    tasks.spawn("pod resources", |stop| {
        pod_resources::serve(pod_resources, listed, pods.subscribe(), stop)
    });
    tasks.spawn("API", |stop| api.serve(api_socket, stop));
    tasks.spawn("pods", |stop| pods::run(context, stop));
    tasks.run(GRACE).await
}

/// As the kubelet does at its start: every socket in the folder itself is of plugins that must register anew.
fn remove_sockets(folder: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_socket() {
            files::remove(&entry.path())?;
        }
    }
    Ok(())
}
