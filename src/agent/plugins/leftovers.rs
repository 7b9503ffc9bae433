//! Removes what an agent left behind when it was killed.
use super::plan;
use crate::{agent::settings::Settings, files, store::Store};
use std::fs;
use tracing::warn;

/// Removes the sockets that an agent left when it was killed, of every resource it had: one whose Configuration went
/// meanwhile gets no plugin that would.
pub(in crate::agent) fn remove_left_over_sockets(settings: &Settings, store: &dyn Store) {
    let Ok(entries) = fs::read_dir(&settings.plugin_folder) else {
        return; // no folder, no sockets
    };
    let sockets = (entries.filter_map(Result::ok))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let folder = settings.plugin_folder.as_os_str().len();
    for plugin in plan::resources(&store.earlier(), &settings.node_name).keys() {
        let stem = plan::socket_stem(plugin, folder);
        for name in stem
            .iter()
            .flat_map(|stem| plan::sockets_of(stem, &sockets))
        {
            if let Err(e) = files::remove(&settings.plugin_folder.join(name)) {
                warn!("a socket of an earlier agent stays: {e}");
            }
        }
    }
}
