//! Removes what an agent left behind when it was killed.
use super::plan;
use crate::{agent::settings::Settings, files, store::Store};
use std::{collections::BTreeSet, fs, path::PathBuf};
use tracing::warn;

/// The sockets that an agent leaves when it is killed, of every resource that it had: one whose Configuration went meanwhile gets
/// no plugin that would remove them.
pub(in crate::agent) struct LeftOver {
    folder: PathBuf,
    stems: Vec<String>,
}

impl LeftOver {
    /// Reads the resources of the last agent from the store, which forgets them when it runs.
    pub(in crate::agent) fn of(settings: &Settings, store: &dyn Store) -> Self {
        let folder = settings.plugin_folder.clone();
        let length = folder.as_os_str().len();
        let node = &settings.node_name;
        let plugins = plan::resources(&store.earlier(), node, &BTreeSet::new()).into_keys();
        Self {
            stems: plugins
                .filter_map(|plugin| plan::socket_stem(&plugin, length))
                .collect(),
            folder,
        }
    }

    pub(in crate::agent) fn remove(self) {
        let Ok(entries) = fs::read_dir(&self.folder) else {
            return; // no folder, no sockets
        };
        let sockets = (entries.filter_map(Result::ok))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        for name in (self.stems.iter()).flat_map(|stem| plan::sockets_of(stem, &sockets)) {
            if let Err(e) = files::remove(&self.folder.join(name)) {
                warn!("a socket of an earlier agent stays: {e}");
            }
        }
    }
}
