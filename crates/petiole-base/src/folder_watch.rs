//! Waits for changes of a folder. It reports *that* something changed and not what, so the caller reads the whole
//! folder again.
use crate::files;
use notify::{
    EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode},
};
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use tracing::debug;

/// The delay between an event and its report. Writes within it are reported as one change.
const SETTLE: Duration = Duration::from_millis(20);
/// The interval of polling, which covers lost events: queues overflow, and the watch ends when the folder is replaced.
const POLL: Duration = Duration::from_secs(2);

pub struct FolderWatch {
    path: PathBuf,
    events: Arc<Notify>,
    attached: Option<Attached>,
}

/// A watcher, and the folder that it watches.
struct Attached {
    folder: FolderId,
    /// The watcher, which works until it is dropped.
    _watcher: RecommendedWatcher,
}

/// Distinguishes a folder from another one at the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FolderId {
    device: u64,
    inode: u64,
}

impl FolderId {
    fn of(folder: &Path) -> Option<Self> {
        let metadata = fs::metadata(folder).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

impl FolderWatch {
    /// Starts to watch. The folder need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let mut watch = Self {
            path: path.into(),
            events: Arc::new(Notify::new()),
            attached: None,
        };
        watch.attach();
        watch
    }

    /// Waits until something may have changed since the last call; it also returns every few seconds without a change.
    /// The call is cancel safe: a change that was not reported is reported by the next call.
    pub async fn changed(&mut self) {
        if timeout(POLL, self.events.notified()).await.is_ok() {
            // The permit is put back, in case this call is dropped during the wait.
            self.events.notify_one();
            sleep(SETTLE).await;
            self.events.notified().await;
        }
        self.attach();
    }

    /// Attaches the watcher to the folder that is at the path now.
    fn attach(&mut self) {
        let identity = FolderId::of(&self.path);
        if self.attached.as_ref().map(|attached| attached.folder) == identity {
            return;
        }
        self.attached =
            identity.and_then(|folder| match watcher(&self.path, self.events.clone()) {
                Ok(watcher) => Some(Attached {
                    folder,
                    _watcher: watcher,
                }),
                Err(e) => {
                    // The machine may have too many watches. Polling continues.
                    debug!("{}", files::at(&self.path, &std::io::Error::other(e)));
                    None
                }
            });
    }
}

fn watcher(path: &Path, events: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.map_or(true, |event| is_change(event.kind)) {
            events.notify_one();
        }
    })?;
    watcher.watch(path, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

/// Returns whether an event is a change. Reading is an event too, and the reader would cause events without end.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    /// A time well below the poll interval: a call that returns within it was woken by an event.
    const SOON: Duration = Duration::from_millis(1500);

    #[tokio::test]
    async fn writing_wakes_and_reading_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        let mut watch = FolderWatch::new(dir.path());
        fs::write(&file, "1").unwrap();
        timeout(SOON, watch.changed()).await.unwrap();

        let begun = Instant::now();
        fs::read(&file).unwrap();
        watch.changed().await;
        assert!(begun.elapsed() >= SOON, "reading woke the watch");
    }

    #[tokio::test]
    async fn a_folder_that_is_replaced_is_watched_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("folder");
        let mut watch = FolderWatch::new(&path);
        fs::create_dir(&path).unwrap();
        watch.changed().await;
        fs::write(path.join("a"), "1").unwrap();
        timeout(SOON, watch.changed()).await.unwrap();
    }
}
