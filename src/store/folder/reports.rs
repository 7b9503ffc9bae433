//! Writes reports about Configurations: a status file for each, and an error file for each manifest that is not used as
//! it is.
use super::{
    disk::{FILE_MODE, file_name, manifest_names, read_yaml, unavailable, write_yaml},
    inner::{Inner, Written},
    plan::status_of,
};
use crate::{
    api::configuration::Configuration, files, model::typed_names::ConfigurationKey,
    store::interface::StoreError,
};
use anyhow::Context as _;
use k8s_openapi::jiff::Timestamp;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};
use tracing::{info, warn};

/// The end of the name of a file that says what is wrong with a manifest.
const ERROR: &str = ".error";

/// Returns the Configurations that an agent uses, with their status, from its state folder.
pub fn configurations(state: &Path) -> anyhow::Result<Vec<Configuration>> {
    let folder = state.join("configurations");
    let names = manifest_names(&folder)
        .with_context(|| format!("is {} the state folder of an agent?", state.display()))?;
    let read = |name: String| {
        let path = folder.join(name);
        read_yaml(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    names.into_iter().map(read).collect()
}

/// Returns a line for each problem of a manifest that an agent with this state folder has, which begins with the name of its file.
pub fn errors(state: &Path) -> anyhow::Result<String> {
    let mut lines = String::new();
    let mut files = fs::read_dir(state)?.collect::<Result<Vec<_>, _>>()?;
    files.sort_by_key(fs::DirEntry::file_name);
    for file in files {
        let name = file.file_name();
        if let Some(manifest) = name.to_string_lossy().strip_suffix(ERROR) {
            let text = fs::read_to_string(file.path())?;
            lines.extend(text.lines().map(|line| format!("{manifest}: {line}\n")));
        }
    }
    Ok(lines)
}

impl Inner {
    /// Updates `<file>.error` and the status files. Only changes are written.
    pub(super) fn write_reports(&self, written: &mut Written) -> Result<(), StoreError> {
        let mut problems = written.unreadable.clone();
        for (key, report) in &written.reports {
            if let Some(file) = written.known.files.get(key) {
                let of_file = problems.entry(file.clone()).or_default();
                of_file.extend(
                    report
                        .problems
                        .iter()
                        .map(|p| p.with_message(format!("{key}: {}", p.message))),
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
        self.write_errors(written, errors)?;
        self.write_statuses(written)
    }

    fn write_errors(
        &self,
        written: &mut Written,
        after: BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        let before = &written.errors;
        let path = |file: &str| self.settings.state.join(format!("{file}{ERROR}"));
        for (file, text) in &after {
            if before.get(file) != Some(text) {
                warn!(%file, "the manifest is not used as it stands: {}", text.trim_end());
                files::write_atomically(&path(file), text.as_bytes(), FILE_MODE)
                    .map_err(unavailable)?;
            }
        }
        for file in before.keys().filter(|file| !after.contains_key(*file)) {
            if written.known.files.values().any(|used| used == file) {
                info!(%file, "the manifest is used now")
            } else {
                info!(%file, "the manifest, which had a problem, is gone")
            }
            files::remove(&path(file)).map_err(unavailable)?;
        }
        written.errors = after;
        Ok(())
    }

    fn write_statuses(&self, written: &mut Written) -> Result<(), StoreError> {
        let path = |key: &ConfigurationKey| {
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

/// Removes the reports of an earlier run, because this run writes new ones.
pub(super) fn clear(state: &Path) -> anyhow::Result<()> {
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
