//! Keeps the CDI files that give device nodes a mode and an owner: one for each Instance that a container of this node holds.
//!
//! An Allocate call writes the file of its device before it claims a slot, and PreStartContainer writes it again, because the
//! folder is usually empty after a start of the machine. The loop here removes the files that no container needs, and writes
//! those that are missing.
mod plan;

use super::{
    claims_settings::Claims,
    device_state::{DeviceState, device_state},
    settings::Clock,
    slots::SharedTable,
    values::ValidatedConfigurations,
};
use crate::{
    discovery::session::Discoveries,
    files,
    model::{
        container_nodes::{NamedDevice, cdi_file},
        instance_name::{InstanceKey, InstanceName},
        limits,
        slot_table::Use,
    },
    store::{Instances, Store},
};
use plan::{Action, Existing, KnownContainers};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Anybody may read the files: container runtimes do.
const MODE: u32 = 0o644;
/// The least time between two looks.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// The time after which the files are looked at though nothing has changed.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The CDI files of this agent, in a folder that others use too.
#[derive(Clone)]
pub(super) struct CdiFiles {
    folder: Option<PathBuf>,
    /// Two writers of one file would use one temporary file. The lock is never held over an await.
    writing: Arc<Mutex<()>>,
}

/// The inputs that say which files are needed.
pub(super) struct Inputs {
    pub(super) clock: Clock,
    pub(super) claims: Option<Claims>,
    pub(super) store: Arc<dyn Store>,
    pub(super) table: SharedTable,
    pub(super) validated: watch::Receiver<Arc<ValidatedConfigurations>>,
    pub(super) discoveries: watch::Receiver<Arc<Discoveries>>,
    /// What containers use by the kubelet's records; `None` while they cannot be trusted.
    pub(super) uses: watch::Receiver<Option<Arc<[Use]>>>,
}

impl CdiFiles {
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self {
            folder,
            writing: Arc::default(),
        }
    }

    /// Writes the files of these Instances, whether they are there or not: a file that was just written is not removed.
    pub(super) async fn write(&self, texts: BTreeMap<InstanceName, String>) -> Result<(), String> {
        if texts.is_empty() {
            return Ok(());
        }
        let missing = "no folder for CDI files is set: set cdi.write of the chart (--cdi-folder)";
        let folder = self.folder.clone().ok_or(missing)?;
        let writing = self.writing.clone();
        let written = spawn_blocking(move || {
            let _lock = writing.lock().unwrap_or_else(PoisonError::into_inner);
            let written = texts
                .iter()
                .map(|(name, text)| write(&folder, &plan::file_name(name)?, text));
            all_of(written)
        });
        written.await.map_err(|e| e.to_string())?
    }

    /// Looks at the files of the folder, and executes what the plan says about them. What is `known` is asked for under the
    /// lock: so it is not older than what a claim has written.
    fn reconcile(
        &self,
        folder: &Path,
        known: impl FnOnce() -> KnownContainers,
    ) -> Result<(), String> {
        let _lock = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let existing = read(folder).map_err(|e| files::at(folder, &e).to_string())?;
        let actions = plan::plan(&known(), &existing).into_iter();
        all_of(actions.map(|action| match action {
            Action::Write { file, text } => write(folder, &file, &text),
            Action::Remove { file } => {
                files::remove(&folder.join(&file)).map_err(|e| e.to_string())?;
                info!(file, "no container needs this CDI file any more: removed");
                Ok(())
            }
        }))
    }
}

/// Does everything, whatever fails. Returns the first error.
fn all_of(outcomes: impl Iterator<Item = Result<(), String>>) -> Result<(), String> {
    let errors: Vec<String> = outcomes.filter_map(Result::err).collect();
    match errors.split_first() {
        None => Ok(()),
        Some((first, [])) => Err(first.clone()),
        Some((first, more)) => Err(format!("{first} (and {} more errors)", more.len())),
    }
}

/// Looks at the files at each change of the inputs until `shutdown`.
pub(super) async fn run(
    cdi_files: CdiFiles,
    inputs: Inputs,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let Some(folder) = cdi_files.folder.clone() else {
        return Ok(());
    };
    let mut slots = inputs.table.subscribe();
    let (mut validated, mut discoveries) = (inputs.validated.clone(), inputs.discoveries.clone());
    let mut uses = inputs.uses.clone();
    let inputs = Arc::new(inputs);
    let mut trouble = Ok(());
    let mut first_known = None;
    while !shutdown.is_cancelled() {
        slots.mark_unchanged();
        validated.mark_unchanged();
        discoveries.mark_unchanged();
        uses.mark_unchanged();
        let now = inputs.clock.uptime();
        first_known = first_known.or_else(|| are_known(&inputs).then_some(now));
        let since = first_known.map(|first| now.saturating_sub(first));
        let (files, folder, asked) = (cdi_files.clone(), folder.clone(), inputs.clone());
        let look = spawn_blocking(move || files.reconcile(&folder, || known(&asked, since)));
        let outcome = look.await?;
        if let Err(why) = outcome.as_ref()
            && outcome != trouble
        {
            warn!("CDI files cannot be kept: {why}");
        }
        trouble = outcome;
        let changed = async {
            tokio::select! {
                changed = slots.changed() => changed,
                changed = validated.changed() => changed,
                changed = discoveries.changed() => changed,
                changed = uses.changed() => changed,
            }
        };
        let waiting = async {
            timeout(LOOK_AGAIN, changed).await.unwrap_or(Ok(()))?;
            sleep(BETWEEN_LOOKS).await;
            anyhow::Ok(())
        };
        shutdown.run_until_cancelled(waiting).await.transpose()?;
    }
    Ok(())
}

/// Returns whether it is known what containers hold, and which Configurations and Instances there are.
fn are_known(inputs: &Inputs) -> bool {
    inputs.uses.borrow().is_some() && inputs.store.configurations().borrow().is_complete
}

/// Returns what is known now. The text of a file is not known while the device is not seen, or its Configuration not accepted.
fn known(inputs: &Inputs, since: Option<Duration>) -> KnownContainers {
    let uses = inputs.uses.borrow().clone();
    let claimed = inputs.claims.as_ref().map(Claims::instances);
    let claimed = claimed.transpose();
    let since = since.filter(|_| uses.is_some() && claimed.is_ok() && are_known(inputs));
    let instances = inputs.store.instances().borrow().clone();
    let held = inputs.table.borrow().held();
    let validated = inputs.validated.borrow().clone();
    let discoveries = inputs.discoveries.borrow().clone();
    let needed = held.into_iter().filter_map(|held| {
        let file = plan::file_name(&held.key.name).ok()?;
        Some((file, text(&held.key, &instances, &validated, &discoveries)))
    });
    KnownContainers {
        needed: needed.collect(),
        uses: uses.unwrap_or_default(),
        claimed: claimed.ok().flatten().unwrap_or_default(),
        since,
    }
}

/// Returns the text of the file of an Instance.
fn text(
    key: &InstanceKey,
    instances: &Instances,
    validated: &ValidatedConfigurations,
    discoveries: &Discoveries,
) -> Option<String> {
    let instance = instances.get(key)?;
    let DeviceState::Seen(device) = device_state(instance, discoveries) else {
        return None;
    };
    let configuration = instance.spec.configuration_key(&key.namespace);
    let accepted = validated.accepted.get(&configuration)?;
    let wish = accepted.configuration.spec.container_devices.as_ref()?;
    let instance = &key.name;
    cdi_file(NamedDevice { instance, device }, wish)
}

fn write(folder: &Path, file: &str, text: &str) -> Result<(), String> {
    let path = folder.join(file);
    let there = files::read_text(&path, limits::CDI_FILE_BYTES_MAX as u64);
    let is_free = match &there {
        Ok(text) => plan::is_ours(text),
        Err(e) => e.kind() == io::ErrorKind::NotFound,
    };
    if !is_free {
        return Err(format!(
            "{} is a file of somebody else: remove it, or give it another name",
            path.display()
        ));
    }
    replace(&path, text)
}

/// Writes a CDI file, whatever is there.
pub(super) fn replace(path: &Path, text: &str) -> Result<(), String> {
    if text.len() > limits::CDI_FILE_BYTES_MAX {
        return Err(format!(
            "{}: it would have {} bytes; {} are the most",
            path.display(),
            text.len(),
            limits::CDI_FILE_BYTES_MAX
        ));
    }
    let folder = path.parent().unwrap_or(path);
    let written = fs::create_dir_all(folder).map_err(|e| files::at(folder, &e));
    let written = written.and_then(|()| files::write_atomically(path, text.as_bytes(), MODE));
    written.map_err(|e| e.to_string())
}

/// Returns the files of a folder that have names like ours.
fn read(folder: &Path) -> io::Result<BTreeMap<String, Existing>> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        entries => entries?,
    };
    let mut existing = BTreeMap::new();
    for entry in entries {
        let entry = entry?;
        let Some(file) = entry.file_name().to_str().map(str::to_owned) else {
            continue;
        };
        if plan::is_like_ours(&file) {
            let written = entry.metadata().and_then(|metadata| metadata.modified());
            let text = files::read_text(&entry.path(), limits::CDI_FILE_BYTES_MAX as u64);
            // A file that seems to be of the future is young: the machine's clock was set.
            let age = written.ok().and_then(|at| at.elapsed().ok());
            existing.insert(
                file,
                Existing {
                    text: text.ok(),
                    age: age.unwrap_or_default(),
                },
            );
        }
    }
    Ok(existing)
}

#[cfg(test)]
mod tests;
