//! Static Pods: manifests in a folder, their containers as plain processes.
//!
//! A folder is read whole at each change; each Pod is a task that lives from its manifest's appearance to its end.
mod manifest;
mod plan;
mod pod;
mod process;
mod status;

pub(super) use status::{Now, PodState, Pods};

use super::device_manager::DeviceManager;
use crate::folder_watch::FolderWatch;
use manifest::StaticPod;
use plan::{Action, plan};
use pod::PodRun;
use status::Reporter;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::JoinMap};
use tracing::{info, warn};

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) manifests: PathBuf,
    /// Containers' output goes to `<logs>/<namespace>_<pod>/<container>.log`.
    pub(super) logs: PathBuf,
    /// The wait before a container's first restart.
    pub(super) first_restart: Duration,
}

/// What every Pod's task shares.
pub(super) struct Context {
    pub(super) settings: Settings,
    pub(super) devices: Arc<DeviceManager>,
    pub(super) pods: watch::Sender<Pods>,
}

impl Context {
    pub(super) fn log_of(&self, namespace: &str, pod: &str, container: &str) -> PathBuf {
        self.settings
            .logs
            .join(format!("{namespace}_{pod}"))
            .join(format!("{container}.log"))
    }

    /// Frees the devices of Pods that are over.
    fn release_ended(&self) {
        let pods = self.pods.borrow().clone();
        let active = pods
            .values()
            .filter(|state| !state.phase.is_over())
            .map(|state| state.pod.uid.clone());
        self.devices.retain_pods(&active.collect());
    }
}

struct Running {
    uid: String,
    stop: CancellationToken,
}

/// Runs the Pods of the folder until `shutdown`; then ends them.
pub(super) async fn run(context: Arc<Context>, shutdown: CancellationToken) -> anyhow::Result<()> {
    let folder = context.settings.manifests.clone();
    let mut watch = FolderWatch::new(&folder);
    let mut refused = BTreeMap::new();
    let mut running: BTreeMap<String, Running> = BTreeMap::new();
    let mut tasks = JoinMap::new();
    let mut desired = read(&folder, &mut refused);
    // What a checkpoint holds for Pods whose manifests went while no kubelet ran.
    context
        .devices
        .retain_pods(&desired.values().map(|pod| pod.uid.clone()).collect());
    loop {
        let uids = desired
            .iter()
            .map(|(key, pod)| (key.clone(), pod.uid.clone()))
            .collect();
        let running_uids = running
            .iter()
            .map(|(key, r)| (key.clone(), r.uid.clone()))
            .collect();
        for action in plan(&uids, &running_uids) {
            match action {
                Action::Stop(key) => running[&key].stop.cancel(),
                Action::Start(key) => {
                    let pod = desired[&key].clone();
                    let stop = shutdown.child_token();
                    let run = PodRun {
                        context: context.clone(),
                        reporter: Reporter::new(context.pods.clone(), pod.clone()),
                        stop: stop.clone(),
                        pod: pod.clone(),
                    };
                    info!(pod = %key, "static Pod added");
                    tasks.spawn(key.clone(), run.run());
                    running.insert(
                        key,
                        Running {
                            uid: pod.uid.clone(),
                            stop,
                        },
                    );
                }
            }
        }
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = watch.changed() => desired = read(&folder, &mut refused),
            Some((key, ended)) = tasks.join_next() => {
                if let Err(e) = ended {
                    warn!(pod = %key, "the Pod's task ended: {e}");
                }
                info!(pod = %key, "static Pod removed");
                running.remove(&key);
            }
        }
    }
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// The Pods of the manifests, by `namespace/name`. One bad manifest is said to be so once, and left out.
fn read(folder: &Path, refused: &mut BTreeMap<String, String>) -> BTreeMap<String, Arc<StaticPod>> {
    let mut pods = BTreeMap::new();
    let mut refusals = BTreeMap::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries.filter_map(Result::ok).collect(),
        Err(e) => {
            refusals.insert(folder.display().to_string(), e.to_string());
            vec![]
        }
    };
    let mut names: Vec<String> = entries
        .iter()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let is_manifest = |name: &&String| {
        !name.starts_with('.')
            && [".yaml", ".yml", ".json"]
                .iter()
                .any(|end| name.ends_with(end))
    };
    for name in names.iter().filter(is_manifest) {
        let read = fs::read_to_string(folder.join(name)).map_err(|e| e.to_string());
        match read.and_then(|text| manifest::read(&text)) {
            Ok(pod) if pods.contains_key(&pod.key()) => {
                refusals.insert(
                    name.clone(),
                    format!("{} is in another manifest already", pod.key()),
                );
            }
            Ok(pod) => drop(pods.insert(pod.key(), Arc::new(pod))),
            Err(refusal) => drop(refusals.insert(name.clone(), refusal)),
        }
    }
    for (name, refusal) in &refusals {
        if refused.get(name) != Some(refusal) {
            warn!(manifest = %name, "left out: {refusal}");
        }
    }
    *refused = refusals;
    pods
}
