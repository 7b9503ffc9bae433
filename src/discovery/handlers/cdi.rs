//! Finds devices that CDI files describe, as vendors' tools write them:
//! <https://github.com/cncf-tags/container-device-interface>.
//!
//! Each device of the requested kind becomes a device of this node: its container gets `CDI_DEVICE`, `CDI_KIND`,
//! `CDI_NAME` and `CDI_ANNOTATION_…`, and its CDI name, which the container runtime resolves by the same files. A
//! device is offered only if the runtime would resolve it: files that the runtime rejects are rejected here too.
//!
//! This file connects the parts: `spec` reads a file, `plan` decides. The crate `container-device-interface` would add
//! more than two hundred crates. Tests compare the types in `schema` with the JSON schema of CDI.
mod details;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod kinds;
mod plan;
mod schema;
mod spec;

pub use kinds::{AllowedKind, Kinds};

use super::super::interface::{
    DetailsError, Discovery, DiscoveryError, DiscoveryHandler, Properties, Task,
};
use crate::{discovery::publish::publish, files, folder_watch::FolderWatch, model::device::Scope};
use details::Details;
use plan::File;
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use tokio::task::spawn_blocking;

/// The folders in which container runtimes look for CDI files. Files in the second folder win.
pub const FOLDERS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];
/// The largest CDI file, in bytes. The largest known files describe some hundred devices in a tenth of it. Beyond it:
/// the file is not used, and the problem names it (`DiscoveryIncomplete`).
const FILE_SIZE_MAX: u64 = 4 << 20;

/// Finds the devices of CDI files.
#[derive(Debug)]
pub struct Cdi {
    folders: [PathBuf; 2],
    kinds: Kinds,
}

impl Cdi {
    /// Creates the handler. `folders` are in the order of precedence, the last one wins; `kinds` are the kinds that may
    /// be offered.
    pub fn new(folders: [impl Into<PathBuf>; 2], kinds: Kinds) -> Self {
        Self {
            folders: folders.map(Into::into),
            kinds,
        }
    }
}

impl DiscoveryHandler for Cdi {
    fn name(&self) -> &'static str {
        "cdi"
    }

    fn prepare(&self, details: &str, _: &Properties) -> Result<Discovery, DetailsError> {
        let details = Details::parse(details)?;
        self.kinds.check(&details.kind)?;
        let folders = self.folders.clone();
        // A CDI name is valid on its own node only.
        Ok(Discovery::new(Scope::Node, |task| {
            follow(details, folders, task)
        }))
    }
}

/// Reads both folders completely at each change.
async fn follow(details: Details, folders: [PathBuf; 2], task: Task) -> Result<(), DiscoveryError> {
    let [mut first, mut second] = folders.each_ref().map(FolderWatch::new);
    let mut known: Option<Vec<File>> = None;
    loop {
        let folders = folders.clone();
        let files = spawn_blocking(move || read_all(&folders));
        let files = files.await.map_err(|e| DiscoveryError(e.to_string()))?;
        if known.as_ref() != Some(&files) {
            publish(plan::devices(&files, &details), &task.found);
            known = Some(files);
        }
        tokio::select! {
            () = first.changed() => {}
            () = second.changed() => {}
        }
    }
}

fn read_all(folders: &[PathBuf]) -> Vec<File> {
    let of_folder = |(n, folder): (usize, &PathBuf)| read_folder(n, folder);
    folders.iter().enumerate().flat_map(of_folder).collect()
}

/// Returns the files of a folder that container runtimes read: `*.json` and `*.yaml`, without sub-folders.
fn read_folder(precedence: usize, folder: &Path) -> Vec<File> {
    let file = |path: &Path, text| File {
        precedence,
        path: path.display().to_string(),
        text,
    };
    let entries: io::Result<Vec<_>> = fs::read_dir(folder).and_then(Iterator::collect);
    let mut paths: Vec<PathBuf> = match entries {
        Ok(entries) => entries.into_iter().map(|entry| entry.path()).collect(),
        // A folder that does not exist has no devices.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return vec![],
        Err(e) => return vec![file(folder, Err(e.to_string()))],
    };
    paths.retain(|path| {
        let extension = path.extension().unwrap_or_default();
        (extension == "json" || extension == "yaml") && !path.is_dir()
    });
    paths.sort();
    let read = |path: PathBuf| match files::read_text(&path, FILE_SIZE_MAX) {
        // The file was removed after the folder was listed.
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        text => Some(file(&path, text.map_err(|e| e.to_string()))),
    };
    paths.into_iter().filter_map(read).collect()
}
