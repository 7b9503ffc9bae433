//! Brokers without a control plane: a static Pod manifest for each Instance, in a folder that a kubelet reads.
mod admission;
mod plan;

use super::{Node, pod_resources};
use crate::{
    api::broker::SpecError, backoff::Backoff, files, folder_watch::FolderWatch,
    model::names::ObjectKey,
};
use admission::Kubelet;
use anyhow::Context as _;
use plan::{Action, Lacking, Plan, World, plan};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

const MANIFEST_MODE: u32 = 0o644;
/// Between looks at what the kubelet would give to a container, while a Pod waits to be written.
const FOR_A_DEVICE: Duration = Duration::from_millis(50);
/// Between looks while a Pod stands without its device.
const FOR_A_BROKER: Duration = Duration::from_secs(1);
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Keeps the manifests in `folder` as the Instances ask for.
pub(super) async fn run(
    node: Arc<Node>,
    folder: PathBuf,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (mut judged, mut discoveries) = (node.judged.subscribe(), node.discoveries.subscribe());
    let (mut instances, mut registered) = (node.store.instances(), node.registered.subscribe());
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    let mut memory = Memory::default();
    let mut files = FolderWatch::new(&folder);
    loop {
        judged.mark_unchanged();
        discoveries.mark_unchanged();
        instances.mark_unchanged();
        registered.mark_unchanged();
        let wait = match reconcile(&node, &folder, &mut memory).await {
            Ok(wait) => {
                backoff.reset();
                wait
            }
            Err(e) => {
                let wait = backoff.next_wait();
                warn!(retry_in = ?wait, "static Pods of brokers: {e:#}");
                wait
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            changed = judged.changed() => changed?,
            changed = discoveries.changed() => changed?,
            changed = instances.changed() => changed?,
            changed = registered.changed() => changed?,
            () = files.changed() => {}
            () = sleep(wait) => {}
        }
    }
}

/// What one look leaves for the next.
#[derive(Debug, Default)]
struct Memory {
    lacking: Lacking,
    broken: BTreeMap<ObjectKey, SpecError>,
}

/// Returns when to look again. The kubelet has a plugin's list a moment after it has opened the stream, and a Pod that
/// it admits before starts without the device; what became of those that stand is looked at now and then.
async fn reconcile(node: &Node, folder: &Path, memory: &mut Memory) -> anyhow::Result<Duration> {
    let existing = read(folder)?;
    let registered = (node.registered.borrow().iter())
        .map(|resource| (resource.clone(), BTreeSet::new()))
        .collect::<BTreeMap<_, _>>();
    let is_served = !registered.is_empty();
    let mut kubelet = Kubelet {
        allocatable: registered,
        ..Kubelet::default()
    };
    let mut plan = planned(node, &kubelet, (&existing, memory));
    let writes = plan.writes();
    if is_served && (writes > 0 || !existing.is_empty()) {
        kubelet.allocatable = pod_resources::healthy(node).await?;
        kubelet.held = pod_resources::held(node).await?;
        plan = planned(node, &kubelet, (&existing, memory));
    }
    let wait = if plan.writes() < writes {
        FOR_A_DEVICE
    } else if !plan.lacking.is_empty() {
        FOR_A_BROKER
    } else {
        Duration::MAX // the folder's watch returns every few seconds
    };
    report(&mut memory.broken, plan.broken);
    memory.lacking = plan.lacking;
    carry_out(folder, plan.actions)?;
    Ok(wait)
}

/// Says what is wrong once, not at each look.
fn report(before: &mut BTreeMap<ObjectKey, SpecError>, now: BTreeMap<ObjectKey, SpecError>) {
    for (configuration, error) in &now {
        if before.get(configuration) != Some(error) {
            warn!(%configuration, "no broker can be made: {error}");
        }
    }
    *before = now;
}

fn planned(
    node: &Node,
    kubelet: &Kubelet,
    (existing, memory): (&BTreeMap<String, serde_json::Value>, &Memory),
) -> Plan {
    plan(&World {
        node: &node.name,
        resource_prefix: &node.resource_prefix,
        judged: &node.judged.borrow().clone(),
        discoveries: &node.discoveries.borrow().clone(),
        instances: &node.store.instances().borrow().clone(),
        kubelet,
        existing,
        lacking: &memory.lacking,
        now: node.uptime(),
    })
}

fn carry_out(folder: &Path, actions: Vec<Action>) -> anyhow::Result<()> {
    for action in actions {
        match action {
            Action::Write { file, pod } => {
                write(folder, &file, &pod)?;
                info!(%file, "broker: static Pod written");
            }
            Action::Retry { file, pod } => {
                write(folder, &file, &pod)?;
                let attempt = plan::attempt(&pod);
                warn!(%file, attempt, "broker: the kubelet has not given the Pod its device: written anew");
            }
            Action::Remove { file } => {
                files::remove(&folder.join(&file))?;
                info!(%file, "broker: static Pod removed");
            }
        }
    }
    Ok(())
}

fn write(folder: &Path, file: &str, pod: &serde_json::Value) -> anyhow::Result<()> {
    let text = serde_saphyr::to_string(pod).with_context(|| file.to_owned())?;
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
            let text = fs::read_to_string(folder.join(&name)).unwrap_or_default();
            // One that cannot be read is written again.
            manifests.insert(name, serde_saphyr::from_str(&text).unwrap_or_default());
        }
    }
    Ok(manifests)
}
