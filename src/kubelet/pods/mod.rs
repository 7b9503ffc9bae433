//! Static Pods: manifests of a folder in, processes and their states out.
//!
//! One worker a Pod admits it, runs its containers, and writes what happens into the table of Pods, which everyone
//! else reads. A Pod that has ended, or was refused, stays in the table until its manifest goes or changes.
mod expand;
pub(crate) mod logs;
pub(crate) mod manifest;
mod orphans;
pub(crate) mod plan;
mod process;
pub(crate) mod record;
pub(crate) mod status;
mod worker;

use super::{Settings, device_manager::DeviceManager};
use crate::folder_watch::FolderWatch;
use jiff::Timestamp;
use manifest::{PodKey, StaticPod};
use plan::{Action, Running, plan};
use record::PodRecord;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, time::Instant};
use tokio_util::{sync::CancellationToken, task::JoinMap};
use tracing::{info, warn};
use worker::Worker;

/// A manifest is a page of text.
const MANIFEST_LIMIT: u64 = 1024 * 1024;

/// All Pods of this kubelet; all clones are one table.
#[derive(Clone)]
pub(crate) struct Pods {
    table: Arc<watch::Sender<BTreeMap<PodKey, PodRecord>>>,
}

impl Pods {
    pub(crate) fn new() -> Self {
        Self {
            table: Arc::new(watch::Sender::new(BTreeMap::new())),
        }
    }

    pub(crate) fn table(&self) -> watch::Ref<'_, BTreeMap<PodKey, PodRecord>> {
        self.table.borrow()
    }

    fn update(&self, key: &PodKey, change: impl FnOnce(&mut PodRecord)) {
        self.table.send_modify(|table| {
            if let Some(record) = table.get_mut(key) {
                change(record);
                record.update_phase();
            }
        });
    }
}

/// By file: what is wrong with it. The folder is looked at every few seconds, and each problem is said once.
#[derive(Debug, Default)]
struct Problems(BTreeMap<String, String>);

/// A manifest that was being written, or a disk that was away, can be read by then.
const READABLE_BY: Duration = Duration::from_secs(60);

/// No file has this name.
const THE_FOLDER: &str = "";

impl Problems {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether it is another problem than before.
    fn is_news(&mut self, file: &str, problem: &str) -> bool {
        let before = self.0.insert(file.to_owned(), problem.to_owned());
        before.as_deref() != Some(problem)
    }

    fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.0.retain(|file, _| is_kept(file));
    }
}

/// Keeps the Pods of the manifest folder running.
pub(crate) struct PodManager {
    settings: Arc<Settings>,
    devices: DeviceManager,
    pods: Pods,
    /// By file: the last manifest in it that could be read, and what is wrong with the one that is there.
    manifests: BTreeMap<String, StaticPod>,
    problems: Problems,
    watch: FolderWatch,
    /// Of the Pods that were started.
    stops: BTreeMap<PodKey, CancellationToken>,
    workers: JoinMap<PodKey, ()>,
}

impl PodManager {
    /// Fills the table at once: who asks this kubelet before its first Pod has started, and that may take a while
    /// after one that was killed, is to see who holds what.
    pub(crate) fn new(settings: Arc<Settings>, devices: DeviceManager, pods: Pods) -> Self {
        let mut manager = Self {
            watch: FolderWatch::new(&settings.manifests),
            settings,
            devices,
            pods,
            manifests: BTreeMap::new(),
            problems: Problems::default(),
            stops: BTreeMap::new(),
            workers: JoinMap::new(),
        };
        manager.read_manifests();
        manager.show_all();
        manager
    }

    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let root = self.settings.root_dir.clone();
        orphans::end_all(&root, self.settings.stop_grace).await;
        // What has changed meanwhile has not run yet.
        self.read_manifests();
        self.show_all();
        let begun = Instant::now();
        let mut has_forgotten = false;
        loop {
            // One whose manifest cannot be read just now is a Pod too.
            if !has_forgotten && (self.problems.is_empty() || begun.elapsed() > READABLE_BY) {
                self.forget_others();
                has_forgotten = true;
            }
            self.reconcile();
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = self.watch.changed() => self.read_manifests(),
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

    /// Of an earlier life: what Pods held and printed that are no more.
    fn forget_others(&self) {
        let mut known: BTreeSet<String> = self.manifests.values().map(|p| p.uid.clone()).collect();
        known.extend(
            self.pods
                .table()
                .values()
                .map(|record| record.pod.uid.clone()),
        );
        self.devices.retain_pods(|uid| known.contains(uid));
        if self.problems.is_empty() {
            let keys = self.manifests.values().map(|pod| &pod.key);
            logs::retain(&self.settings.root_dir, keys);
        }
    }

    /// The Pods of the manifests; of two files with one Pod the first by name counts.
    fn desired(&self) -> BTreeMap<PodKey, &StaticPod> {
        let mut desired = BTreeMap::new();
        for pod in self.manifests.values() {
            desired.entry(pod.key.clone()).or_insert(pod);
        }
        desired
    }

    /// Before any has started.
    fn show_all(&self) {
        let now = Timestamp::now();
        let pods = self.desired().into_iter();
        let records = pods.map(|(key, pod)| (key, PodRecord::new(pod.clone(), now)));
        self.pods.table.send_replace(records.collect());
    }

    fn reconcile(&mut self) {
        while self.act() {}
    }

    /// Returns whether a Pod that had ended by itself made room for its successor.
    fn act(&mut self) -> bool {
        let mut has_made_room = false;
        let by_key = self.desired();
        let desired = by_key
            .iter()
            .map(|(key, pod)| (key.clone(), pod.uid.clone()));
        let running: BTreeMap<PodKey, Running> = {
            let table = self.pods.table();
            let started = table.iter();
            let started = started.filter(|(key, _)| self.stops.contains_key(key));
            let running = started.map(|(key, record)| {
                let (uid, is_stopping) = (record.pod.uid.clone(), record.is_terminating);
                (key.clone(), Running { uid, is_stopping })
            });
            running.collect()
        };
        let actions = plan(&desired.collect(), &running).into_iter();
        let actions = actions.map(|action| match action {
            Action::Start(key) => (key.clone(), by_key.get(&key).map(|pod| (*pod).clone())),
            Action::Stop(key) => (key, None),
        });
        for (key, pod) in actions.collect::<Vec<_>>() {
            match pod {
                Some(pod) => self.start(key, pod),
                None => has_made_room |= self.stop(&key),
            }
        }
        has_made_room
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

    /// Returns whether it is gone already, having ended by itself before.
    fn stop(&mut self, key: &PodKey) -> bool {
        self.pods.update(key, |record| record.is_terminating = true);
        if let Some(stop) = self.stops.get(key) {
            stop.cancel();
        }
        let has_ended = !self.workers.contains_key(key);
        if has_ended {
            self.forget_if_stopped(key);
        }
        has_ended
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

    fn read_manifests(&mut self) {
        let files = match read_folder(&self.settings.manifests) {
            Ok(files) => files,
            Err(e) => {
                if self.problems.is_news(THE_FOLDER, &e.to_string()) {
                    let folder = self.settings.manifests.display();
                    warn!(%folder, error = %e, "cannot read manifests: the pods stay as they are");
                }
                return;
            }
        };
        self.manifests.retain(|file, _| files.contains_key(file));
        self.problems.retain(|file| files.contains_key(file));
        for (file, text) in files {
            let parsed = text.map_err(|e| e.to_string()).and_then(|text| {
                manifest::parse(&text, &file, &self.settings.node_name).map_err(|e| e.to_string())
            });
            match parsed {
                Ok(pod) => {
                    self.problems.retain(|other| other != file);
                    self.manifests.insert(file, pod);
                }
                // A file that is being written must not stop the Pod that it was.
                Err(error) if self.problems.is_news(&file, &error) => {
                    warn!(%file, %error, "manifest left out");
                }
                Err(_) => {}
            }
        }
    }
}

/// The text of each file; hidden files are someone's unfinished work.
fn read_folder(folder: &Path) -> io::Result<BTreeMap<String, io::Result<String>>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') || !path.is_file() {
            continue;
        }
        let text = fs::metadata(&path).and_then(|metadata| match metadata.len() {
            0..=MANIFEST_LIMIT => fs::read_to_string(&path),
            _ => Err(io::Error::other("more than 1 MiB is no manifest")),
        });
        files.insert(name.into_owned(), text);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_news_once_and_again_after_it_was_solved() {
        let mut problems = Problems::default();
        let seen = [
            (THE_FOLDER, "no", true),
            (THE_FOLDER, "no", false),
            (THE_FOLDER, "no more", true),
            ("a.yaml", "no more", true),
            (THE_FOLDER, "no more", false),
        ];
        for (file, problem, is_news) in seen {
            assert_eq!(problems.is_news(file, problem), is_news, "{file} {problem}");
        }
        problems.retain(|file| file != THE_FOLDER);
        assert!(problems.is_news(THE_FOLDER, "no more"));
        assert!(!problems.is_news("a.yaml", "no more"));
    }
}
