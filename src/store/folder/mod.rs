//! The store without a cluster: Configurations are the manifests in one folder, Instances manifests in another.
//!
//! `<state>/instances/<namespace>_<name>.yaml` are the Instances, `<state>/configurations/…` the status of each
//! Configuration, and `<state>/<file>.error` says why a manifest is not used. The state folder is the agent's alone.
mod plan;

use super::{
    About, Configurations, Exchange, InstanceChange, Instances, Report, Store, StoreError, is_same,
    key_of,
    manifest::{self, Unreadable},
    plan::{adopted, changed, exchanged, status_of},
};
use crate::{
    api::{
        configuration::{Configuration, ConfigurationStatus, Problem},
        instance::Instance,
    },
    files,
    folder_watch::FolderWatch,
    model::names::ObjectKey,
};
use anyhow::{Context as _, bail};
use futures::future::BoxFuture;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use plan::{File, Known, take_stock};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{sync::watch, task::spawn_blocking, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

const FILE_MODE: u32 = 0o644;

#[derive(Debug, Clone)]
pub struct Settings {
    pub node_name: String,
    /// Configurations, one or more to a `.yaml`, `.yml` or `.json` file.
    pub configurations: PathBuf,
    /// Instances and errors.
    pub state: PathBuf,
}

pub struct FolderStore {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    configurations: watch::Sender<Arc<Configurations>>,
    instances: watch::Sender<Arc<Instances>>,
    /// What is on the disk beside the Instances. Its lock is held over every change of the folder, so that changes
    /// to one Instance follow one another; never over an await.
    written: Mutex<Written>,
    started: Instant,
}

#[derive(Default)]
struct Written {
    known: Known,
    /// What is wrong with each file, as far as reading it tells.
    unreadable: BTreeMap<String, Vec<Problem>>,
    reports: BTreeMap<ObjectKey, Report>,
    errors: BTreeMap<String, String>,
    /// The status files, each with what it shows.
    statuses: BTreeMap<ObjectKey, (Arc<Configuration>, ConfigurationStatus)>,
}

impl FolderStore {
    /// Creates the folders and reads what is there.
    pub fn open(settings: Settings) -> anyhow::Result<Self> {
        for folder in [
            &settings.configurations,
            &settings.state,
            &settings.state.join("instances"),
            &settings.state.join("configurations"),
        ] {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot create the folder {}", folder.display()))?;
        }
        check_folders(&settings)?;
        clear_reports(&settings.state)?;
        let mut instances = read_instances(&settings.state.join("instances"))?;
        for instance in instances.values_mut() {
            *instance = Arc::new(adopted(instance, &settings.node_name));
        }
        let inner = Inner {
            configurations: watch::Sender::new(Arc::default()),
            instances: watch::Sender::new(Arc::new(instances)),
            written: Mutex::default(),
            started: Instant::now(),
            settings,
        };
        if let Err(e) = inner.read_configurations() {
            // It is tried again with the next look.
            warn!("the Configurations: {e:#}");
        }
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> T + Send + 'static,
    ) -> T {
        let inner = self.inner.clone();
        spawn_blocking(move || work(&inner))
            .await
            .expect("file work does not panic and is not cancelled")
    }
}

impl Store for FolderStore {
    fn configurations(&self) -> watch::Receiver<Arc<Configurations>> {
        self.inner.configurations.subscribe()
    }

    fn instances(&self) -> watch::Receiver<Arc<Instances>> {
        self.inner.instances.subscribe()
    }

    fn earlier(&self) -> Instances {
        Instances::clone(&self.inner.instances.borrow())
    }

    fn apply(&self, changes: Vec<InstanceChange>) -> BoxFuture<'_, Vec<Result<(), StoreError>>> {
        Box::pin(self.blocking(move |inner| inner.apply(&changes)))
    }

    fn exchange(&self, exchanges: Vec<Exchange>) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.blocking(move |inner| inner.exchange(&exchanges)))
    }

    fn report(
        &self,
        reports: BTreeMap<ObjectKey, Report>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.blocking(move |inner| {
            let mut written = inner.lock();
            written.reports = reports;
            inner.write_reports(&mut written)
        }))
    }

    /// The log has it.
    fn warn(&self, _: &About, _: &'static str, _: String) {}

    fn run(&self, shutdown: CancellationToken) -> BoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async move {
            let mut watch = FolderWatch::new(&self.inner.settings.configurations);
            // Read once more at first: what changed since the folder was opened woke nobody.
            loop {
                if let Err(e) = self.blocking(Inner::read_configurations).await {
                    // What was read last goes on; the watch looks again.
                    warn!("cannot read the Configurations: {e:#}");
                }
                let changed = shutdown.run_until_cancelled(watch.changed()).await;
                if changed.is_none() {
                    return Ok(());
                }
            }
        })
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Written> {
        // A panic while it was held leaves values that the next read replaces.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, changes: &[InstanceChange]) -> Vec<Result<(), StoreError>> {
        let _written = self.lock();
        let mut instances = Instances::clone(&self.instances.borrow());
        let outcomes = changes
            .iter()
            .map(|change| self.apply_one(&mut instances, change))
            .collect();
        self.publish(instances);
        outcomes
    }

    fn apply_one(
        &self,
        instances: &mut Instances,
        change: &InstanceChange,
    ) -> Result<(), StoreError> {
        let key = change.key();
        let after = match (instances.get(&key), change) {
            (None, InstanceChange::Create(instance)) => {
                let mut instance = Instance::clone(instance);
                instance.metadata.creation_timestamp = Some(Time(Timestamp::now()));
                Some(instance)
            }
            (Some(_), InstanceChange::Create(_)) => return Err(StoreError::Exists(key)),
            (None, InstanceChange::Delete { .. }) => None,
            (None, _) => return Err(StoreError::Gone(key)),
            (Some(instance), _) => changed(instance, change, &self.settings.node_name),
        };
        match after {
            Some(instance) => {
                self.write_instance(&key, &instance)?;
                instances.insert(key, Arc::new(instance));
            }
            None => {
                files::remove(&self.instance_path(&key)).map_err(unavailable)?;
                instances.remove(&key);
            }
        }
        Ok(())
    }

    fn exchange(&self, exchanges: &[Exchange]) -> Result<(), StoreError> {
        let _written = self.lock();
        let mut instances = Instances::clone(&self.instances.borrow());
        let mut by_instance: BTreeMap<&ObjectKey, Vec<&Exchange>> = BTreeMap::new();
        for exchange in exchanges {
            by_instance
                .entry(&exchange.change.key)
                .or_default()
                .push(exchange);
        }
        let mut outcome = Ok(());
        for (key, exchanges) in by_instance {
            outcome = outcome.and_then(|()| {
                let instance = instances
                    .get(key)
                    .ok_or_else(|| StoreError::Gone(key.clone()))?;
                let after = exchanged(instance, &exchanges)?;
                self.write_instance(key, &after)?;
                instances.insert(key.clone(), Arc::new(after));
                Ok(())
            });
        }
        self.publish(instances);
        outcome
    }

    fn publish(&self, instances: Instances) {
        self.instances.send_if_modified(|current| {
            let is_changed = !is_same(current, &instances);
            *current = Arc::new(instances);
            is_changed
        });
    }

    fn instance_path(&self, key: &ObjectKey) -> PathBuf {
        self.settings.state.join("instances").join(file_name(key))
    }

    fn write_instance(&self, key: &ObjectKey, instance: &Instance) -> Result<(), StoreError> {
        write_yaml(&self.instance_path(key), instance)
    }

    /// Reads the whole folder and publishes it if anything changed, whether or not its report can be written.
    fn read_configurations(&self) -> anyhow::Result<()> {
        let files = self.read_files()?;
        let mut written = self.lock();
        let stock = take_stock(files, &mut written.known, self.started.elapsed());
        self.configurations.send_if_modified(|current| {
            let now = stock.configurations;
            let is_changed = current.objects != now.objects
                || current.hidden != now.hidden
                || current.is_complete != now.is_complete;
            *current = Arc::new(now);
            is_changed
        });
        written.unreadable = stock.problems;
        Ok(self.write_reports(&mut written)?)
    }

    fn read_files(&self) -> anyhow::Result<Vec<File>> {
        let folder = &self.settings.configurations;
        let names =
            manifest_names(folder).with_context(|| format!("cannot list {}", folder.display()))?;
        let mut files = vec![];
        for name in names {
            let (configurations, unreadable) = match fs::read_to_string(folder.join(&name)) {
                Ok(text) => manifest::read_each(&text),
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => {
                    let problem = Problem::new("Unreadable", format!("it cannot be read: {e}"));
                    (vec![], vec![Unreadable { key: None, problem }])
                }
            };
            files.push(File {
                name,
                configurations,
                unreadable,
            });
        }
        Ok(files)
    }

    /// Brings `<file>.error` and the status files to what is known now; writes only what changed.
    fn write_reports(&self, written: &mut Written) -> Result<(), StoreError> {
        let mut problems = written.unreadable.clone();
        for (key, report) in &written.reports {
            if let Some(file) = written.known.files.get(key) {
                let of_file = problems.entry(file.clone()).or_default();
                of_file.extend(
                    report
                        .problems
                        .iter()
                        .map(|p| Problem::new(&p.reason, format!("{key}: {}", p.message))),
                );
            }
        }
        let errors: BTreeMap<String, String> = problems
            .into_iter()
            .filter(|(_, problems)| !problems.is_empty())
            .map(|(file, problems)| {
                let lines = problems
                    .iter()
                    .map(|p| format!("{}: {}\n", p.reason, p.message));
                (file, lines.collect())
            })
            .collect();
        self.write_errors(&mut written.errors, errors)?;
        self.write_statuses(written)
    }

    fn write_errors(
        &self,
        before: &mut BTreeMap<String, String>,
        after: BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        let path = |file: &str| self.settings.state.join(format!("{file}.error"));
        for (file, text) in &after {
            if before.get(file) != Some(text) {
                warn!(%file, "the manifest is not used as it stands: {}", text.trim_end());
                files::write_atomically(&path(file), text.as_bytes(), FILE_MODE)
                    .map_err(unavailable)?;
            }
        }
        for file in before.keys().filter(|file| !after.contains_key(*file)) {
            info!(%file, "the manifest is used now");
            files::remove(&path(file)).map_err(unavailable)?;
        }
        *before = after;
        Ok(())
    }

    fn write_statuses(&self, written: &mut Written) -> Result<(), StoreError> {
        let path = |key: &ObjectKey| {
            self.settings
                .state
                .join("configurations")
                .join(file_name(key))
        };
        let now = Timestamp::now().to_string();
        let configurations = self.configurations.borrow().clone();
        let mut statuses = BTreeMap::new();
        for (key, report) in &written.reports {
            let Some(configuration) = configurations.objects.get(key) else {
                continue;
            };
            let before = written.statuses.get(key);
            let earlier = before.map(|(_, status)| status);
            let after = status_of(report, &self.settings.node_name, earlier, &now);
            let shown = (configuration.clone(), after.clone());
            if before != Some(&shown) {
                let mut shown = Configuration::clone(configuration);
                shown.status = Some(after.clone());
                write_yaml(&path(key), &shown)?;
            }
            statuses.insert(key.clone(), shown);
        }
        let gone: BTreeSet<_> = written
            .statuses
            .keys()
            .filter(|key| !statuses.contains_key(*key))
            .collect();
        for key in gone {
            files::remove(&path(key)).map_err(unavailable)?;
        }
        written.statuses = statuses;
        Ok(())
    }
}

/// The manifests of a folder in the order of their names. Hidden files are editors' and our own half-written ones.
fn manifest_names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = vec![];
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let is_manifest = [".yaml", ".yml", ".json"]
            .iter()
            .any(|end| name.ends_with(end));
        if is_manifest && !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The Instances in an agent's state folder, by their names.
pub fn instances(state: &Path) -> anyhow::Result<Vec<Instance>> {
    let folder = state.join("instances");
    let instances = read_instances(&folder)
        .with_context(|| format!("is {} the state folder of an agent?", state.display()))?;
    Ok(instances.into_values().map(Arc::unwrap_or_clone).collect())
}

/// The Instances of an earlier life. One that cannot be read is left out: its device will be found again.
fn read_instances(folder: &Path) -> anyhow::Result<Instances> {
    let mut instances = Instances::new();
    let names =
        manifest_names(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for path in names.iter().map(|name| folder.join(name)) {
        let read = fs::read_to_string(&path)
            .map_err(anyhow::Error::from)
            .and_then(|text| Ok(serde_saphyr::from_str::<Instance>(&text)?));
        match read {
            Ok(instance) => {
                instances.insert(key_of(&instance.metadata), Arc::new(instance));
            }
            Err(e) => {
                warn!(path = %path.display(), "an Instance of an earlier life cannot be read and is left out: {e:#}")
            }
        }
    }
    Ok(instances)
}

/// Removes what an earlier life said of Configurations; this one says it anew.
fn clear_reports(state: &Path) -> anyhow::Result<()> {
    for (folder, ending) in [
        (state.to_owned(), "error"),
        (state.join("configurations"), "yaml"),
    ] {
        for entry in
            fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?
        {
            let path = entry?.path();
            if path.is_file() && path.extension().is_some_and(|end| end == ending) {
                files::remove(&path)?;
            }
        }
    }
    Ok(())
}

/// The two folders must be two: what the agent writes is not what it reads, and it clears what it wrote.
fn check_folders(settings: &Settings) -> anyhow::Result<()> {
    let state = fs::canonicalize(&settings.state)?;
    let configurations = fs::canonicalize(&settings.configurations)?;
    let taken = [
        state.clone(),
        state.join("instances"),
        state.join("configurations"),
    ];
    if taken.contains(&configurations) {
        bail!(
            "{} is the agent's own, in the state folder {}: keep the Configurations elsewhere",
            configurations.display(),
            state.display()
        );
    }
    Ok(())
}

/// A namespace and a name have no underscore, so that no two keys share a file.
fn file_name(key: &ObjectKey) -> String {
    format!("{}_{}.yaml", key.namespace, key.name)
}

fn write_yaml(path: &Path, object: &impl serde::Serialize) -> Result<(), StoreError> {
    let text = serde_saphyr::to_string(object)
        .map_err(|e| StoreError::Unavailable(format!("{}: {e}", path.display())))?;
    files::write_atomically(path, text.as_bytes(), FILE_MODE).map_err(unavailable)
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn unavailable(error: io::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}
