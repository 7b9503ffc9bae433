//! Stores the output of containers: one file each, in a folder of their Pod, rotated by size. The limits are the Go
//! kubelet's.
use super::manifest::PodKey;
use petiole_base::files;
use std::{
    collections::BTreeSet,
    convert::Infallible,
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{task::spawn_blocking, time::sleep};
use tracing::warn;

/// The size of a container's log in bytes: the kubelet's `containerLogMaxSize`. Beyond it: it is rotated.
const SIZE_LIMIT: u64 = 10 * 1024 * 1024;
/// The most files of a container's log, including the current one: the kubelet's `containerLogMaxFiles`. Beyond it:
/// the oldest is removed.
const FILES_MAX: usize = 5;
/// The interval between two checks of a log: the kubelet's `containerLogMonitorInterval`.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Opens the log of a container that starts, and rotates it first if it is too long.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let at = |e: io::Error| files::at(path, &e);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(at)?;
    }
    if is_too_long(path) {
        rotate_older(path)?;
        fs::rename(path, rotated(path, 1)).map_err(at)?;
    }
    // The file is opened for appending, so that writes continue at its beginning after it was truncated.
    let mut options = File::options();
    options.create(true).append(true).open(path).map_err(at)
}

/// Rotates the log of a running container whenever it is too long.
pub(super) async fn keep_rotated(path: &Path) -> Infallible {
    let mut last_error: Option<String> = None;
    loop {
        sleep(CHECK_INTERVAL).await;
        let log = path.to_owned();
        let rotated = spawn_blocking(move || copy_and_truncate(&log)).await;
        let error = match rotated.map_err(io::Error::other).flatten() {
            Ok(()) => None,
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = error
            .as_ref()
            .filter(|error| last_error.as_ref() != Some(error))
        {
            warn!(%error, "cannot rotate a log");
        }
        last_error = error;
    }
}

/// Copies the log and truncates it. It cannot be renamed, because the process has the file open. Output that is written
/// between the copy and the truncation is lost.
fn copy_and_truncate(path: &Path) -> io::Result<()> {
    let at = |e: io::Error| files::at(path, &e);
    if !is_too_long(path) {
        return Ok(());
    }
    // Older files are kept if there is no space for a copy.
    let copy = path.with_extension("log.copy");
    let copied = fs::copy(path, &copy).map_err(at);
    if copied.is_err() {
        fs::remove_file(&copy).ok();
    }
    copied?;
    rotate_older(path)?;
    fs::rename(&copy, rotated(path, 1)).map_err(at)?;
    let file = File::options().write(true).open(path).map_err(at)?;
    file.set_len(0).map_err(at)
}

fn is_too_long(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.len() > SIZE_LIMIT)
}

/// Renames the rotated files, and drops the oldest one.
fn rotate_older(path: &Path) -> io::Result<()> {
    for number in (1..FILES_MAX - 1).rev() {
        files::rename(&rotated(path, number), &rotated(path, number + 1))?;
    }
    Ok(())
}

fn rotated(path: &Path, number: usize) -> PathBuf {
    path.with_extension(format!("log.{number}"))
}

/// Returns the path of a container's log.
pub(crate) fn log_path(root: &Path, pod: &PodKey, container: &str) -> PathBuf {
    folder(root, pod).join(format!("{container}.log"))
}

fn folder(root: &Path, pod: &PodKey) -> PathBuf {
    root.join("logs").join(folder_name(pod))
}

/// Returns the name of a Pod's folder. It is unique, because neither part contains a `_`.
fn folder_name(pod: &PodKey) -> String {
    format!("{}_{}", pod.namespace, pod.name)
}

/// Removes the logs of a Pod.
pub(super) fn remove(root: &Path, pod: &PodKey) {
    remove_folder(&folder(root, pod));
}

/// Removes the logs of all other Pods, which were removed while no kubelet ran.
pub(super) fn retain<'a>(root: &Path, pods: impl Iterator<Item = &'a PodKey>) {
    let known: BTreeSet<String> = pods.map(folder_name).collect();
    let entries = fs::read_dir(root.join("logs")).into_iter().flatten();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.contains('_') && !known.contains(&name) {
            remove_folder(&entry.path());
        }
    }
}

fn remove_folder(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        warn!(folder = %folder.display(), %error, "cannot remove the logs of a pod that is gone");
    }
}

/// Returns the last `limit` bytes of a log, from the start of a line.
pub(crate) fn tail(path: &Path, limit: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let skipped = length.saturating_sub(limit);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(match text.split_once('\n') {
        Some((_, whole_lines)) if skipped > 0 => whole_lines.to_owned(),
        Some(_) | None => text.into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use tokio::time::timeout;

    fn length(path: &Path) -> Option<u64> {
        fs::metadata(path).map(|metadata| metadata.len()).ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_that_grows_too_long_is_cut_while_it_is_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p/c.log");
        let mut log = open(&path).unwrap();
        for round in 0..7 {
            log.set_len(SIZE_LIMIT + 1 + round).unwrap();
            let looked = timeout(CHECK_INTERVAL * 3 / 2, keep_rotated(&path)).await;
            assert!(looked.is_err(), "it looks as long as the container runs");
            assert_eq!(length(&path), Some(0));
            assert_eq!(length(&rotated(&path, 1)), Some(SIZE_LIMIT + 1 + round));
        }
        log.write_all(b"next\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "next\n");
        assert_eq!(length(&rotated(&path, 4)), Some(SIZE_LIMIT + 4));
        assert_eq!(
            fs::read_dir(dir.path().join("p")).unwrap().count(),
            FILES_MAX
        );
    }

    #[test]
    fn a_log_that_cannot_be_copied_costs_no_older_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.log");
        open(&path).unwrap().set_len(SIZE_LIMIT + 1).unwrap();
        fs::write(rotated(&path, 1), "older").unwrap();
        fs::create_dir(path.with_extension("log.copy")).unwrap();
        copy_and_truncate(&path).unwrap_err();
        assert_eq!(length(&path), Some(SIZE_LIMIT + 1));
        assert_eq!(fs::read_to_string(rotated(&path, 1)).unwrap(), "older");
    }

    #[test]
    fn logs_of_pods_that_are_not_known_go_and_all_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["default_a", "default_b", "else"] {
            fs::create_dir_all(dir.path().join("logs").join(folder)).unwrap();
        }
        let a = PodKey {
            namespace: "default".to_owned(),
            name: "a".to_owned(),
        };
        retain(dir.path(), [&a].into_iter());
        let left = ["default_a", "default_b", "else"]
            .map(|folder| dir.path().join("logs").join(folder).exists());
        assert_eq!(left, [true, false, true]);
    }
}
