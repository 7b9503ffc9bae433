//! Reads the folder of manifests: the Pods that it asks for, and the problems of files that cannot be read.
use super::manifest::{self, PodKey, StaticPod};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};
use tracing::warn;

/// The largest manifest of a static Pod, in bytes. A manifest is a page of text. Beyond it: it counts as unreadable.
const MANIFEST_LIMIT: u64 = 1024 * 1024;

/// The folder of manifests as it was read last.
#[derive(Debug)]
pub(super) struct ManifestFolder {
    path: PathBuf,
    node_name: String,
    /// The last readable manifest of each file, by file name. A file that is being written must not stop its Pod.
    pods: BTreeMap<String, StaticPod>,
    /// The file that counts for each Pod.
    used: BTreeMap<PodKey, String>,
    problems: Problems,
}

impl ManifestFolder {
    pub(super) fn new(path: &Path, node_name: &str) -> Self {
        Self {
            path: path.to_owned(),
            node_name: node_name.to_owned(),
            pods: BTreeMap::new(),
            used: BTreeMap::new(),
            problems: Problems::default(),
        }
    }

    /// Reads the folder again. A file that cannot be read keeps the Pod of its last readable manifest.
    pub(super) fn read(&mut self) {
        let files = match read_files(&self.path) {
            Ok(files) => files,
            Err(e) => {
                if self.problems.note(Place::Folder, &e.to_string()) {
                    let folder = self.path.display();
                    warn!(%folder, error = %e, "cannot read the folder of manifests; the pods stay as they are");
                }
                return;
            }
        };
        self.pods.retain(|file, _| files.contains_key(file));
        self.problems.retain(|place| match place {
            Place::Folder => false,
            Place::File(file) | Place::Copy(file) => files.contains_key(file),
        });
        for (file, text) in files {
            let parsed = text.map_err(|e| e.to_string()).and_then(|text| {
                manifest::parse(&text, &file, &self.node_name).map_err(|e| e.to_string())
            });
            let place = Place::File(file.clone());
            match parsed {
                Ok(pod) => {
                    self.problems.retain(|other| *other != place);
                    self.pods.insert(file, pod);
                }
                Err(error) => {
                    if self.problems.note(place, &error) {
                        warn!(%file, %error, "manifest left out");
                    }
                }
            }
        }
        self.choose();
    }

    /// Returns whether the folder and every file in it could be read.
    pub(super) fn is_readable(&self) -> bool {
        let mut places = self.problems.0.keys();
        places.all(|place| matches!(place, Place::Copy(_)))
    }

    /// Decides which file counts where several have one Pod: the one that was there first.
    fn choose(&mut self) {
        let pods = &self.pods;
        self.used
            .retain(|key, file| pods.get(file).is_some_and(|pod| pod.key == *key));
        for (file, pod) in pods {
            let used = self.used.entry(pod.key.clone());
            let used = used.or_insert_with(|| file.clone());
            let place = Place::Copy(file.clone());
            if used == file {
                self.problems.retain(|other| *other != place);
            } else if self.problems.note(place, used) {
                warn!(%file, pod = %pod.key, "manifest left out: the Pod is in {used} already, and that one is used");
            }
        }
    }

    /// Returns the Pod of each file, by file name.
    pub(super) fn pods(&self) -> &BTreeMap<String, StaticPod> {
        &self.pods
    }

    /// Returns the Pods to run.
    pub(super) fn desired(&self) -> BTreeMap<PodKey, &StaticPod> {
        let used = self.used.iter();
        used.filter_map(|(key, file)| Some((key.clone(), self.pods.get(file)?)))
            .collect()
    }
}

/// The problems that were logged, each with its place. The folder is read every few seconds, and each problem is logged
/// once.
#[derive(Debug, Default)]
struct Problems(BTreeMap<Place, String>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Folder,
    File(String),
    /// A file whose Pod another file has, too.
    Copy(String),
}

impl Problems {
    /// Remembers the problem. Returns whether it differs from the last one of this place.
    fn note(&mut self, place: Place, problem: &str) -> bool {
        let before = self.0.insert(place, problem.to_owned());
        before.as_deref() != Some(problem)
    }

    fn retain(&mut self, is_kept: impl Fn(&Place) -> bool) {
        self.0.retain(|place, _| is_kept(place));
    }
}

/// Returns the text of each file, by file name. Hidden files are left out: programs write into them before a rename.
fn read_files(folder: &Path) -> io::Result<BTreeMap<String, io::Result<String>>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') || !path.is_file() {
            continue;
        }
        let text = fs::metadata(&path).and_then(|metadata| match metadata.len() {
            0..=MANIFEST_LIMIT => fs::read_to_string(&path),
            _ => Err(io::Error::other(
                "the file has more than 1 MiB, the limit of a manifest",
            )),
        });
        files.insert(name.into_owned(), text);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_new_once_and_again_after_it_was_solved() {
        let file = || Place::File("a.yaml".to_owned());
        let mut problems = Problems::default();
        let seen = [
            (Place::Folder, "no", true),
            (Place::Folder, "no", false),
            (Place::Folder, "no more", true),
            (file(), "no more", true),
            (Place::Folder, "no more", false),
        ];
        for (place, problem, is_new) in seen {
            let said = format!("{place:?} {problem}");
            assert_eq!(problems.note(place, problem), is_new, "{said}");
        }
        problems.retain(|place| *place != Place::Folder);
        assert!(problems.note(Place::Folder, "no more"));
        assert!(!problems.note(file(), "no more"));
    }

    #[test]
    fn a_file_that_is_being_written_keeps_its_pod() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.yaml");
        let text =
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c}]}\n";
        fs::write(&file, text).unwrap();
        let mut folder = ManifestFolder::new(dir.path(), "n");
        folder.read();
        assert!(folder.is_readable());
        let before = folder.pods().clone();
        assert_eq!(before.len(), 1);

        fs::write(&file, &text[..20]).unwrap();
        folder.read();
        assert!(!folder.is_readable());
        assert_eq!(*folder.pods(), before);

        fs::remove_file(&file).unwrap();
        folder.read();
        assert!(folder.is_readable() && folder.pods().is_empty());
    }

    #[test]
    fn of_two_files_with_one_pod_the_one_that_was_there_first_counts() {
        let dir = tempfile::tempdir().unwrap();
        let text =
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c}]}\n";
        let write = |name: &str| fs::write(dir.path().join(name), text).unwrap();
        let mut folder = ManifestFolder::new(dir.path(), "n");
        write("try.yaml");
        folder.read();
        // It comes before the other by name.
        write("try-2.yaml");
        folder.read();
        let used = |folder: &ManifestFolder| Vec::from_iter(folder.used.values().cloned());
        assert_eq!(used(&folder), ["try.yaml"]);
        assert_eq!(folder.desired().len(), 1);
        assert!(folder.is_readable());

        fs::remove_file(dir.path().join("try.yaml")).unwrap();
        folder.read();
        assert_eq!(used(&folder), ["try-2.yaml"]);
        assert!(folder.problems.0.is_empty());
    }
}
