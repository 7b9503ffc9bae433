//! Waits for a folder to change. Says *that* it did, never what: whoever asked reads the whole folder again.
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

/// How long after an event the folder is looked at: what is written in one go shows as one change.
const SETTLE: Duration = Duration::from_millis(20);
/// The net under the events: queues overflow, and a folder that is replaced takes its watch with it.
const POLL: Duration = Duration::from_secs(2);

pub struct FolderWatch {
    path: PathBuf,
    events: Arc<Notify>,
    /// The watcher, and the folder it is on by device and inode.
    watcher: Option<(RecommendedWatcher, (u64, u64))>,
}

impl FolderWatch {
    /// Watches from now on; the folder need not be there yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let mut watch = Self {
            path: path.into(),
            events: Arc::new(Notify::new()),
            watcher: None,
        };
        watch.attach();
        watch
    }

    /// Returns when something may have changed since the last call, and every few seconds anyway.
    /// Cancel safe: a change that was not returned is returned by the next call.
    pub async fn changed(&mut self) {
        if timeout(POLL, self.events.notified()).await.is_ok() {
            // The permit goes back until the wait is over, should this call be dropped.
            self.events.notify_one();
            sleep(SETTLE).await;
            self.events.notified().await;
        }
        self.attach();
    }

    /// Puts a watcher on the folder that is at the path now.
    fn attach(&mut self) {
        let identity = fs::metadata(&self.path).map(|m| (m.dev(), m.ino())).ok();
        if self.watcher.as_ref().map(|(_, watched)| *watched) == identity {
            return;
        }
        self.watcher =
            identity.and_then(|identity| match watcher(&self.path, self.events.clone()) {
                Ok(watcher) => Some((watcher, identity)),
                Err(e) => {
                    // Too many watches on this machine, say: polling goes on.
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

/// Reading a file is an event too; following those would never end.
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

    /// Well under the poll interval: what returns by then was woken by an event.
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
