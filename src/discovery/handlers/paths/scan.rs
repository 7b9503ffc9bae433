//! Looks below `/dev` for what the patterns of a Configuration match.
use super::{
    details::{Details, Part, Pattern},
    plan::{Found, Look},
};
use std::{
    collections::BTreeMap,
    fs::{self, Metadata},
    io,
    path::{Path, PathBuf},
};

/// The most names of folders that one look of `paths` reads. Beyond it: the others are not read, and the Configuration says so
/// (`DiscoveryIncomplete`).
const NAMES_MAX: usize = 4096;
/// The most matches of all patterns of a Configuration of `paths`. Beyond it: the others are left out (`DiscoveryIncomplete`).
const MATCHES_MAX: usize = 4096;

/// Looks for all patterns. `dev` is the node's `/dev`, wherever it is mounted; `is_node` tells device nodes from other files.
pub(super) fn look(
    dev: &Path,
    details: &Details,
    is_node: fn(&Metadata) -> bool,
) -> io::Result<Look> {
    let mut scan = Scan {
        dev: fs::canonicalize(dev)?,
        is_node,
        names: BTreeMap::new(),
        left: NAMES_MAX,
        look: Look::default(),
    };
    let groups = details.groups.iter();
    let patterns = groups.flat_map(|group| group.paths.iter().chain(&group.optional));
    let mut left = MATCHES_MAX;
    for pattern in patterns {
        if scan.look.found.contains_key(&pattern.text) {
            continue;
        }
        let mut found = scan.matches(pattern);
        if found.len() > left {
            found.truncate(left);
            (scan.look.problems).push(format!(
                "the patterns match more than {MATCHES_MAX} paths, and the others are left out: narrow {}",
                pattern.text
            ));
        }
        left -= found.len();
        scan.look.found.insert(pattern.text.clone(), found);
    }
    Ok(scan.look)
}

struct Scan {
    dev: PathBuf,
    is_node: fn(&Metadata) -> bool,
    /// The names in each folder that was read.
    names: BTreeMap<PathBuf, Vec<String>>,
    /// The names that may still be read.
    left: usize,
    look: Look,
}

impl Scan {
    fn matches(&mut self, pattern: &Pattern) -> Vec<Found> {
        let mut paths = vec![PathBuf::new()];
        for part in &pattern.parts {
            let mut next = vec![];
            for path in paths {
                if !self.dev.join(&path).is_dir() {
                    continue;
                }
                self.look.folders.insert(self.dev.join(&path));
                match part {
                    Part::Name(name) => next.push(path.join(name)),
                    Part::Glob(glob) => {
                        let names = self.names(&path).iter();
                        let names = names.filter(|name| glob.matches(name));
                        next.extend(names.map(|name| path.join(name)));
                    }
                }
            }
            paths = next;
        }
        paths.iter().filter_map(|path| self.found(path)).collect()
    }

    fn found(&self, path: &Path) -> Option<Found> {
        let real = fs::canonicalize(self.dev.join(path)).ok()?;
        let is_node = fs::metadata(&real).is_ok_and(|metadata| (self.is_node)(&metadata));
        let on_node = |path: &Path| Some(Path::new("/dev").join(path).to_str()?.to_owned());
        let node = real.strip_prefix(&self.dev).ok().filter(|_| is_node);
        Some(Found {
            path: on_node(path)?,
            node: node.and_then(on_node),
        })
    }

    /// Returns the names in a folder, sorted. One that cannot be read has none.
    fn names(&mut self, folder: &Path) -> &[String] {
        let names = self.names.entry(folder.to_owned());
        names.or_insert_with(|| {
            let entries = fs::read_dir(self.dev.join(folder)).into_iter().flatten();
            let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            let mut names: Vec<String> = names.take(self.left + 1).collect();
            if names.len() > self.left {
                names.pop();
                if self.look.problems.is_empty() {
                    self.look.problems.push(format!(
                        "the folders of the patterns have more than {NAMES_MAX} names, and the others are not read: narrow the patterns of /dev/{}",
                        folder.display()
                    ));
                }
            }
            self.left -= names.len();
            names.sort();
            names
        })
    }
}

/// Returns whether a file is a device node.
pub(super) fn is_device_node(metadata: &Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    let kind = metadata.file_type();
    kind.is_char_device() || kind.is_block_device()
}
