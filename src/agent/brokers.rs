//! Brokers without a control plane: a static Pod manifest for each Instance, in a folder that a kubelet reads.
mod admission;
mod plan;

use super::{
    kubelet_records::RecordsReader,
    pod_resources,
    settings::{Clock, Settings},
    values::{KubeletFolder, PodList, ValidatedConfigurations},
};
use crate::{
    api::broker::SpecError,
    backoff::Backoff,
    discovery::session::Discoveries,
    files,
    folder_watch::FolderWatch,
    model::{resource_name::ResourceName, typed_names::ConfigurationKey},
    store::Instances,
    yaml,
};
use admission::Kubelet;
use anyhow::Context as _;
use plan::{Action, Lacking, Plan, World, plan};
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, time::sleep};
use tracing::{debug, info, warn};

const MANIFEST_MODE: u32 = 0o644;
/// The first wait between two looks at the kubelet's resources, while a Pod waits to be written.
const FIRST_LOOK: Duration = Duration::from_millis(50);
/// The longest such wait, and the wait while a Pod runs without its device.
const LAST_LOOK: Duration = Duration::from_secs(1);
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(5);
/// The number of failures before one is logged. A kubelet that restarts is back before that.
const LOGGED_AFTER: u32 = 3;

/// The inputs of the brokers.
#[derive(Clone)]
pub(super) struct Inputs {
    pub(super) settings: Arc<Settings>,
    pub(super) clock: Clock,
    pub(super) records: RecordsReader,
    pub(super) validated: watch::Receiver<Arc<ValidatedConfigurations>>,
    pub(super) discoveries: watch::Receiver<Arc<Discoveries>>,
    pub(super) instances: watch::Receiver<Arc<Instances>>,
    /// Our resources that are registered with the kubelet.
    pub(super) registered: watch::Receiver<BTreeSet<ResourceName>>,
    pub(super) kubelet_folder: watch::Receiver<KubeletFolder>,
}

/// Writes a static Pod for each Instance to `folder`, at each change of the inputs.
pub(super) async fn run(inputs: Inputs, folder: PathBuf) -> anyhow::Result<Infallible> {
    let Inputs {
        mut validated,
        mut discoveries,
        mut instances,
        mut registered,
        ..
    } = inputs.clone();
    let mut looking = Backoff::new(FIRST_LOOK, LAST_LOOK);
    let mut failing = Backoff::new(FIRST_RETRY, LAST_RETRY);
    let (mut memory, mut failures) = (LastRender::default(), 0);
    let mut files = FolderWatch::new(&folder);
    loop {
        validated.mark_unchanged();
        discoveries.mark_unchanged();
        instances.mark_unchanged();
        registered.mark_unchanged();
        let wait = match reconcile(&inputs, &folder, &mut memory).await {
            Ok(next) => {
                failing.reset();
                failures = 0;
                match next {
                    Next::Device => looking.next_wait(),
                    Next::Broker => LAST_LOOK,
                    Next::Change => Duration::MAX,
                }
            }
            Err(e) => {
                failures += 1;
                if failures == LOGGED_AFTER {
                    warn!("static Pods of brokers, tried again until it works: {e:#}");
                }
                debug!("static Pods of brokers: {e:#}");
                sleep(failing.next_wait()).await;
                continue;
            }
        };
        tokio::select! {
            changed = validated.changed() => { changed?; looking.reset(); }
            changed = discoveries.changed() => { changed?; looking.reset(); }
            changed = instances.changed() => { changed?; looking.reset(); }
            changed = registered.changed() => { changed?; looking.reset(); }
            // At a change, and every few seconds anyway: the kubelet's records are looked at then.
            () = files.changed() => {}
            () = sleep(wait) => {}
        }
    }
}

/// The state that one look leaves for the next.
#[derive(Debug, Default)]
struct LastRender {
    lacking: Lacking,
    broken: BTreeMap<ConfigurationKey, SpecError>,
}

/// The event that the task waits for.
enum Next {
    /// A device that a new Pod may have.
    Device,
    /// The device of a Pod that exists already.
    Broker,
    Change,
}

/// The kubelet has a plugin's list a moment after it has opened the stream, and a Pod that it admits before starts
/// without the device: it is asked before a Pod is written, and what became of those that stand.
async fn reconcile(
    inputs: &Inputs,
    folder: &Path,
    memory: &mut LastRender,
) -> anyhow::Result<Next> {
    let existing = read(folder)?;
    let registered = inputs.registered.borrow().clone();
    let is_served = !registered.is_empty();
    let mut kubelet = Kubelet {
        allocatable: (registered.into_iter())
            .map(|resource| (resource, BTreeSet::new()))
            .collect(),
        ..Kubelet::default()
    };
    let mut plan = planned(inputs, &kubelet, &existing, memory);
    // Whatever the kubelet says, and before anything that may fail.
    let (removals, others) = (plan.actions.drain(..)).partition(Action::is_removal);
    let removed = carry_out(folder, removals, memory);
    plan.actions = others;
    let writes = plan.writes();
    if is_served && (writes > 0 || !existing.is_empty()) {
        kubelet = Kubelet {
            allocatable: pod_resources::healthy(&inputs.settings).await?,
            held: held(&inputs.records).await?,
            age: (inputs.kubelet_folder.borrow().kubelet_age()).unwrap_or_default(),
        };
        plan = planned(inputs, &kubelet, &existing, memory);
        plan.actions.retain(|action| !action.is_removal());
    }
    let next = if plan.writes() < writes {
        Next::Device
    } else if !plan.lacking.is_empty() {
        Next::Broker
    } else {
        Next::Change
    };
    report(&mut memory.broken, plan.broken);
    memory.lacking = plan.lacking;
    let written = carry_out(folder, plan.actions, memory);
    removed.and(written).map(|()| next)
}

/// Returns what containers hold, by both of the kubelet's records. Where the checkpoint is behind, the looks for slots
/// have it written anew.
async fn held(records: &RecordsReader) -> anyhow::Result<PodList> {
    let records = records.read().await?;
    Ok(PodList {
        by_resource: records.held_by_resource(),
        ..records.list
    })
}

/// Says what is wrong once, not at each look.
fn report(
    before: &mut BTreeMap<ConfigurationKey, SpecError>,
    now: BTreeMap<ConfigurationKey, SpecError>,
) {
    for (configuration, error) in &now {
        if before.get(configuration) != Some(error) {
            warn!(%configuration, "no broker can be made: {error}");
        }
    }
    *before = now;
}

fn planned(
    inputs: &Inputs,
    kubelet: &Kubelet,
    existing: &BTreeMap<String, serde_json::Value>,
    memory: &LastRender,
) -> Plan {
    plan(&World {
        node: &inputs.settings.node_name,
        resource_prefixes: &inputs.settings.resource_prefixes,
        validated: &inputs.validated.borrow().clone(),
        discoveries: &inputs.discoveries.borrow().clone(),
        instances: &inputs.instances.borrow().clone(),
        kubelet,
        existing,
        lacking: &memory.lacking,
        now: inputs.clock.uptime(),
    })
}

/// All that can be carried out; the first error of what cannot.
fn carry_out(folder: &Path, actions: Vec<Action>, memory: &mut LastRender) -> anyhow::Result<()> {
    let mut outcome = Ok(());
    for action in actions {
        let done = match &action {
            Action::Write { file, pod } => write(folder, file, pod).map(|()| {
                info!(%file, "broker: static Pod written");
            }),
            Action::Retry { file, pod } => write(folder, file, pod).map(|()| {
                let attempt = plan::attempt(pod);
                warn!(%file, attempt, "broker: the kubelet has not given the Pod its device: written anew");
            }),
            Action::Remove { file } => (files::remove(&folder.join(file)))
                .map(|()| info!(%file, "broker: static Pod removed"))
                .map_err(Into::into),
        };
        if let Err(e) = done {
            // It counts as no try.
            memory.lacking.remove(action.file());
            outcome = outcome.and(Err(e));
        }
    }
    outcome
}

fn write(folder: &Path, file: &str, pod: &serde_json::Value) -> anyhow::Result<()> {
    let text = yaml::to_string(pod).with_context(|| file.to_owned())?;
    Ok(files::write_atomically(
        &folder.join(file),
        text.as_bytes(),
        MANIFEST_MODE,
    )?)
}

/// The manifests that an agent wrote; those of others are not read.
fn read(folder: &Path) -> anyhow::Result<BTreeMap<String, serde_json::Value>> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let mut manifests = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if plan::is_ours(&name) {
            let path = folder.join(&name);
            let text = match fs::read(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                text => text.with_context(|| path.display().to_string())?,
            };
            // A manifest that cannot be read is written again.
            let manifest = yaml::from_str(&String::from_utf8_lossy(&text));
            manifests.insert(name, manifest.unwrap_or_default());
        }
    }
    Ok(manifests)
}
