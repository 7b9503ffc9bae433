//! Starts and stops Pods as the manifests say, and removes the remains of Pods that are gone.
use super::{
    logs,
    manifest::{PodKey, StaticPod},
    manifest_folder::ManifestFolder,
    orphans,
    plan::{Action, Running, plan},
    record::PodRecord,
    table::Pods,
    worker::Worker,
};
use crate::{device_manager::manager::DeviceManager, settings::Settings};
use jiff::Timestamp;
use petiole_base::folder_watch::FolderWatch;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::JoinMap};
use tracing::info;

/// The time after which the remains of unknown Pods are removed although a manifest cannot be read. A manifest that was
/// being written, or a disk that was not mounted, is readable by then.
const UNREADABLE_MANIFEST_GRACE: Duration = Duration::from_secs(60);

/// Keeps the Pods of the manifest folder running.
pub(crate) struct PodManager {
    settings: Arc<Settings>,
    devices: DeviceManager,
    pods: Pods,
    manifests: ManifestFolder,
    watch: FolderWatch,
    /// The stop signals of the Pods that were started.
    stops: BTreeMap<PodKey, CancellationToken>,
    workers: JoinMap<PodKey, ()>,
}

impl PodManager {
    /// Reads the manifests and fills the table at once. After a kubelet that was killed it may take a while until the
    /// first Pod starts, and clients must see the holders of devices before that.
    pub(crate) fn new(settings: Arc<Settings>, devices: DeviceManager, pods: Pods) -> Self {
        let mut manager = Self {
            watch: FolderWatch::new(&settings.manifests),
            manifests: ManifestFolder::new(&settings.manifests, &settings.node_name),
            settings,
            devices,
            pods,
            stops: BTreeMap::new(),
            workers: JoinMap::new(),
        };
        manager.manifests.read();
        manager.show_all();
        manager
    }

    /// Runs the Pods until `shutdown`, then stops them. It reads the manifest folder and its watch, and it is the only
    /// task that adds Pods to the table or removes them; the worker of a Pod changes its record.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let root = self.settings.root_dir.clone();
        orphans::end_all(&root, self.settings.stop_grace).await;
        // A Pod whose manifest has changed since `new` has not run, so its record is simply replaced.
        self.manifests.read();
        self.show_all();
        let begun = Instant::now();
        let mut is_cleaned_up = false;
        loop {
            // An unreadable manifest may be that of a Pod that has devices and logs.
            let is_due =
                self.manifests.is_readable() || begun.elapsed() > UNREADABLE_MANIFEST_GRACE;
            if !is_cleaned_up && is_due {
                self.remove_remains();
                is_cleaned_up = true;
            }
            self.reconcile();
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = self.watch.changed() => self.manifests.read(),
                Some((key, ended)) = self.workers.join_next() => {
                    ended?;
                    self.forget_if_stopped(&key);
                }
            }
        }
        self.stops.values().for_each(CancellationToken::cancel);
        while self.workers.join_next().await.is_some() {}
        Ok(())
    }

    /// Frees the devices, and removes the logs, of Pods that an earlier kubelet ran and that no longer exist.
    fn remove_remains(&self) {
        let manifests = self.manifests.pods().values();
        let mut known: BTreeSet<String> = manifests.map(|pod| pod.uid.clone()).collect();
        known.extend(
            self.pods
                .table()
                .values()
                .map(|record| record.pod.uid.clone()),
        );
        self.devices.retain_pods(|uid| known.contains(uid));
        if self.manifests.is_readable() {
            let keys = self.manifests.pods().values().map(|pod| &pod.key);
            logs::retain(&self.settings.root_dir, keys);
        }
    }

    /// Replaces the table by the Pods of the manifests, before any of them has started.
    fn show_all(&self) {
        let now = Timestamp::now();
        let pods = self.manifests.desired().into_iter();
        let records = pods.map(|(key, pod)| (key, PodRecord::new(pod.clone(), now)));
        self.pods.table.send_replace(records.collect());
    }

    /// Carries out plans until the plan is empty, or waits for a Pod to end.
    fn reconcile(&mut self) {
        while self.act() == Progress::PodRemoved {}
    }

    fn act(&mut self) -> Progress {
        let mut progress = Progress::Done;
        let by_key = self.manifests.desired();
        let desired = by_key
            .iter()
            .map(|(key, pod)| (key.clone(), pod.uid.clone()));
        let actions = plan(&desired.collect(), &self.running()).into_iter();
        let actions = actions.map(|action| match action {
            Action::Start(key) => (key.clone(), by_key.get(&key).map(|pod| (*pod).clone())),
            Action::Stop(key) => (key, None),
        });
        for (key, pod) in actions.collect::<Vec<_>>() {
            match pod {
                Some(pod) => self.start(key, pod),
                None if self.stop(&key) == Stop::Finished => progress = Progress::PodRemoved,
                None => {}
            }
        }
        progress
    }

    /// Returns the Pods that were started and are still in the table.
    fn running(&self) -> BTreeMap<PodKey, Running> {
        let table = self.pods.table();
        let started = table.iter();
        let started = started.filter(|(key, _)| self.stops.contains_key(key));
        let running = started.map(|(key, record)| {
            let (uid, is_stopping) = (record.pod.uid.clone(), record.is_terminating);
            (key.clone(), Running { uid, is_stopping })
        });
        running.collect()
    }

    fn start(&mut self, key: PodKey, pod: StaticPod) {
        let stop = CancellationToken::new();
        self.stops.insert(key.clone(), stop.clone());
        let record = PodRecord::new(pod.clone(), Timestamp::now());
        self.pods.table.send_modify(|table| {
            table.insert(key.clone(), record);
        });
        let worker = Worker {
            settings: self.settings.clone(),
            devices: self.devices.clone(),
            pods: self.pods.clone(),
            pod: Arc::new(pod),
            stop,
        };
        info!(pod = %key, "pod started");
        self.workers.spawn(key, worker.run());
    }

    fn stop(&mut self, key: &PodKey) -> Stop {
        self.pods.update(key, |record| record.is_terminating = true);
        if let Some(stop) = self.stops.get(key) {
            stop.cancel();
        }
        if self.workers.contains_key(key) {
            return Stop::Begun;
        }
        self.forget_if_stopped(key);
        Stop::Finished
    }

    fn forget_if_stopped(&mut self, key: &PodKey) {
        let removed = self.pods.table.send_if_modified(|table| {
            let is_stopped = table.get(key).is_some_and(|record| record.is_terminating);
            is_stopped && table.remove(key).is_some()
        });
        if removed {
            self.stops.remove(key);
            logs::remove(&self.settings.root_dir, key);
            info!(pod = %key, "pod stopped");
        }
    }
}

/// The result of one plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Done,
    /// A Pod that had ended by itself was removed. Its successor can start, so a new plan is due.
    PodRemoved,
}

/// The progress of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// The worker is still ending the containers.
    Begun,
    /// The Pod had ended by itself before.
    Finished,
}
