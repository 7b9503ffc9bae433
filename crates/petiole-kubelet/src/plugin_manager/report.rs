//! Records the outcome of each registration: the registered plugins, and the rejected ones with the reason. Pure.
use super::{plan::Key, plugin::PluginInfo};
use std::{collections::BTreeMap, path::PathBuf};

/// The number of rejected calls that are remembered. It is bounded, because a plugin may retry for ever, each time with
/// another name.
const REFUSALS: usize = 64;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Report {
    entries: BTreeMap<Key, Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The type that the plugin reports; empty if it could not be asked.
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) endpoint: PathBuf,
    /// The error, if the plugin is not registered.
    pub(crate) refused: Option<String>,
    generation: u64,
}

impl Entry {
    /// Returns what is said of a plugin; with an error it is rejected.
    pub(super) fn new(kind: &str, plugin: &PluginInfo, refused: Option<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            name: plugin.name.clone(),
            endpoint: plugin.endpoint.clone(),
            refused,
            generation: plugin.generation,
        }
    }
}

impl Report {
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Records a registered plugin, and drops older rejections of the same type and name.
    pub(crate) fn registered(&mut self, key: &Key, kind: &str, plugin: &PluginInfo) {
        self.entries.retain(|_, entry| {
            entry.refused.is_none() || entry.kind != kind || entry.name != plugin.name
        });
        let entry = Entry::new(kind, plugin, None);
        self.entries.insert(key.clone(), entry);
    }

    /// Records a rejected plugin, and drops the oldest rejected call beyond the bound.
    pub(crate) fn refused(&mut self, key: &Key, refused: Entry) {
        self.entries.insert(key.clone(), refused);
        let calls = self
            .entries
            .iter()
            .filter(|(key, entry)| key.resource.is_some() && entry.refused.is_some());
        let oldest = calls.clone().min_by_key(|(_, entry)| entry.generation);
        if let Some(oldest) = oldest.map(|(key, _)| key.clone())
            && calls.count() > REFUSALS
        {
            self.entries.remove(&oldest);
        }
    }

    pub(crate) fn forget(&mut self, key: &Key) {
        self.entries.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin_manager::plan::Source;

    fn key(socket: &str, resource: Option<&str>) -> Key {
        Key {
            socket: socket.into(),
            resource: resource.map(str::to_owned),
        }
    }

    fn plugin(name: &str, endpoint: &str, generation: u64) -> PluginInfo {
        PluginInfo {
            name: name.to_owned(),
            endpoint: endpoint.into(),
            versions: vec![],
            generation,
            source: Source::Service,
        }
    }

    fn refused(name: &str, generation: u64) -> Entry {
        let plugin = plugin(name, "a.sock", generation);
        Entry::new("DevicePlugin", &plugin, Some("no".to_owned()))
    }

    #[test]
    fn a_plugin_that_registers_in_the_end_is_no_longer_refused() {
        let mut report = Report::default();
        report.refused(&key("a.sock", Some("x.y/a")), refused("x.y/a", 1));
        report.refused(&key("b.sock", Some("x.y/b")), refused("x.y/b", 2));
        let plugin = plugin("x.y/a", "other.sock", 3);
        report.registered(&key("other.sock", Some("x.y/a")), "DevicePlugin", &plugin);
        let refused = report.entries().filter(|entry| entry.refused.is_some());
        let refused: Vec<_> = refused.map(|entry| entry.name.as_str()).collect();
        assert_eq!(refused, ["x.y/b"]);
        assert_eq!(report.entries().count(), 2);
    }

    #[test]
    fn of_endless_refusals_the_last_are_kept_and_sockets_in_the_folder_always() {
        let mut report = Report::default();
        report.refused(&key("reg.sock", None), refused("in the folder", 0));
        for generation in 1..=200 {
            let name = format!("x.y/{generation}");
            report.refused(&key("a.sock", Some(&name)), refused(&name, generation));
        }
        let kept: Vec<u64> = report.entries().map(|entry| entry.generation).collect();
        assert_eq!(kept.len(), REFUSALS + 1);
        assert!(kept.contains(&0) && kept.contains(&200) && !kept.contains(&136));
    }
}
