//! Brokers without a control plane: a static Pod manifest for each Instance, in a folder that a kubelet reads.
mod plan;

use super::{Node, pod_resources};
use crate::{api::broker::SpecError, backoff::Backoff, files, model::names::ObjectKey};
use anyhow::Context as _;
use plan::{Action, Plan, World, plan};
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
/// Between looks at what the kubelet would give to a container.
const KUBELET_LOOK: Duration = Duration::from_millis(50);
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
    let mut broken = BTreeMap::new();
    loop {
        judged.mark_unchanged();
        discoveries.mark_unchanged();
        instances.mark_unchanged();
        registered.mark_unchanged();
        let wait = match reconcile(&node, &folder, &mut broken).await {
            Ok(is_done) => {
                backoff.reset();
                if is_done { Duration::MAX } else { KUBELET_LOOK }
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
            () = sleep(wait) => {}
        }
    }
}

/// Whether nothing waits for the kubelet. It has a plugin's list a moment after it has opened the stream, and a Pod
/// that it admits before starts without the device.
async fn reconcile(
    node: &Node,
    folder: &Path,
    broken: &mut BTreeMap<ObjectKey, SpecError>,
) -> anyhow::Result<bool> {
    let existing = read(folder)?;
    let registered = node.registered.borrow().clone();
    let Plan {
        mut actions,
        broken: now_broken,
    } = planned(node, &registered, &existing);
    report(broken, now_broken);
    let mut is_done = true;
    if actions
        .iter()
        .any(|action| matches!(action, Action::Write { .. }))
    {
        let allocatable = pod_resources::healthy(node).await?.into_keys().collect();
        let ready = planned(node, &allocatable, &existing).actions;
        is_done = ready.len() >= actions.len();
        actions = ready;
    }
    carry_out(folder, actions)?;
    Ok(is_done)
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
    allocatable: &BTreeSet<String>,
    existing: &BTreeMap<String, serde_json::Value>,
) -> Plan {
    plan(&World {
        node: &node.name,
        resource_prefix: &node.resource_prefix,
        judged: &node.judged.borrow().clone(),
        discoveries: &node.discoveries.borrow().clone(),
        instances: &node.store.instances().borrow().clone(),
        allocatable,
        existing,
    })
}

fn carry_out(folder: &Path, actions: Vec<Action>) -> anyhow::Result<()> {
    for action in actions {
        match action {
            Action::Write { file, pod } => {
                let text = serde_saphyr::to_string(&pod).with_context(|| file.clone())?;
                files::write_atomically(&folder.join(&file), text.as_bytes(), MANIFEST_MODE)?;
                info!(%file, "broker: static Pod written");
            }
            Action::Remove { file } => {
                files::remove(&folder.join(&file))?;
                info!(%file, "broker: static Pod removed");
            }
        }
    }
    Ok(())
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
