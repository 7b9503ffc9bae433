//! Looks below `/dev` for what the patterns of a Configuration match.
use super::{
    details::{Details, Part, Pattern},
    plan::{FoundPath, PathsLook},
};
use crate::model::container_devices::is_below_dev;
use rustix::io::Errno;
use std::{
    collections::BTreeMap,
    fs::{self, Metadata},
    io,
    path::{Path, PathBuf},
};

/// The most names and paths that one look of `paths` goes through. Beyond it: the discovery fails (`DiscoveryFailed`), and what
/// was found before stays.
const PATHS_MAX: usize = 8192;

/// Looks for all patterns. `dev` is the node's `/dev`, wherever it is mounted; `is_node` tells device nodes from other files.
/// An error if it cannot be told what is there: a look in part would declare the rest gone.
pub(super) fn look(
    dev: &Path,
    details: &Details,
    is_node: fn(&Metadata) -> bool,
) -> Result<PathsLook, String> {
    let real = fs::canonicalize(dev).map_err(|e| format!("{}: {e}", dev.display()))?;
    let mut scan = Scan {
        dev: real,
        is_node,
        names: BTreeMap::new(),
        left: PATHS_MAX,
        look: PathsLook::default(),
    };
    let groups = details.groups.iter();
    for pattern in groups.flat_map(|group| group.paths.iter().chain(&group.optional)) {
        if !scan.look.found.contains_key(&pattern.text) {
            let found = scan.matches(pattern)?;
            scan.look.found.insert(pattern.text.clone(), found);
        }
    }
    Ok(scan.look)
}

struct Scan {
    dev: PathBuf,
    is_node: fn(&Metadata) -> bool,
    /// The names in each folder that was read.
    names: BTreeMap<PathBuf, Vec<String>>,
    /// The names and paths that may still be gone through.
    left: usize,
    look: PathsLook,
}

impl Scan {
    fn matches(&mut self, pattern: &Pattern) -> Result<Vec<FoundPath>, String> {
        let mut paths = vec![PathBuf::new()];
        for part in &pattern.parts {
            let mut next = vec![];
            for path in paths {
                let folder = self.dev.join(&path);
                let metadata = there(&folder, fs::metadata(&folder))?;
                if !metadata.is_some_and(|metadata| metadata.is_dir()) {
                    continue;
                }
                self.look.folders.insert(folder);
                let before = next.len();
                match part {
                    Part::Name(name) => next.push(path.join(name)),
                    Part::Glob(glob) => {
                        let names = self.names(&path)?.iter();
                        let paths = names.filter(|name| glob.matches(name));
                        let paths = paths.map(|name| path.join(name));
                        // Everybody may write into some folders that container runtimes make: nothing there is offered.
                        next.extend(paths.filter(|path| on_node(path).is_some()));
                    }
                }
                self.spend(next.len() - before, &pattern.text)?;
            }
            paths = next;
        }
        let found = paths.iter().map(|path| self.found(path));
        found.filter_map(Result::transpose).collect()
    }

    fn found(&self, path: &Path) -> Result<Option<FoundPath>, String> {
        let full = self.dev.join(path);
        let Some(real) = there(&full, fs::canonicalize(&full))? else {
            return Ok(None);
        };
        let metadata = there(&real, fs::metadata(&real))?;
        let is_node = metadata.is_some_and(|metadata| (self.is_node)(&metadata));
        let node = real.strip_prefix(&self.dev).ok().filter(|_| is_node);
        Ok(on_node(path).map(|path| FoundPath {
            path,
            node: node.and_then(on_node),
        }))
    }

    /// Returns the names in a folder, sorted.
    fn names(&mut self, folder: &Path) -> Result<&[String], String> {
        if !self.names.contains_key(folder) {
            let full = self.dev.join(folder);
            let entries = there(&full, fs::read_dir(&full))?;
            let mut names = vec![];
            for entry in entries.into_iter().flatten() {
                self.spend(1, &format!("those of /dev/{}", folder.display()))?;
                let name = there(&full, entry)?.map(|entry| entry.file_name().into_string());
                names.extend(name.and_then(Result::ok));
            }
            names.sort();
            self.names.insert(folder.to_owned(), names);
        }
        Ok(&self.names[folder])
    }

    fn spend(&mut self, count: usize, patterns: &str) -> Result<(), String> {
        let left = self.left.checked_sub(count);
        self.left = left.ok_or_else(|| {
            format!("the patterns lead to more than {PATHS_MAX} names and paths: narrow {patterns}")
        })?;
        Ok(())
    }
}

/// Returns the path on the node of one below its `/dev`, if a device node of a container can be there.
fn on_node(path: &Path) -> Option<String> {
    let path = format!("/dev/{}", path.to_str()?);
    is_below_dev(&path).then_some(path)
}

/// Returns what was read of a path; `None` if it is not there.
fn there<T>(path: &Path, read: io::Result<T>) -> Result<Option<T>, String> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(e) => match Errno::from_io_error(&e) {
            Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Some(_) | None => Err(format!("{}: {e}", path.display())),
        },
    }
}

/// Returns whether a file is a device node.
pub(super) fn is_device_node(metadata: &Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    let kind = metadata.file_type();
    kind.is_char_device() || kind.is_block_device()
}
