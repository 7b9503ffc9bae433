//! Waits for changes of a folder. It reports *that* something changed and not what, so the caller reads the whole
//! folder again.
use crate::{
    files,
    inotify::{Inotify, WatchFlags},
};
use rustix::io::Errno;
use std::{future::pending, io, path::PathBuf, time::Duration};
use tokio::time::timeout;
use tracing::debug;

/// The delay between an event and its report. Writes within it are reported as one change.
const SETTLE: Duration = Duration::from_millis(20);
/// The interval of polling, which covers lost events: queues overflow, and the watch ends when the folder is replaced.
const POLL: Duration = Duration::from_secs(2);
/// All events but those of reading: the reader would cause events without end.
const CHANGES: WatchFlags = WatchFlags::ALL_EVENTS
    .difference(WatchFlags::ACCESS)
    .difference(WatchFlags::OPEN)
    .difference(WatchFlags::CLOSE_NOWRITE);

pub struct FolderWatch {
    path: PathBuf,
    /// `None` while the machine has no more of them. Polling continues.
    inotify: Option<Inotify>,
    /// The watch of the folder, if there is one at the path.
    watch: Option<i32>,
}

impl FolderWatch {
    /// Starts to watch. The folder need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let mut watch = Self {
            path: path.into(),
            inotify: None,
            watch: None,
        };
        watch.attach();
        watch
    }

    /// Waits until something may have changed since the last call; it also returns every few seconds without a change.
    /// The call is cancel safe: a change that was not reported is reported by the next call.
    pub async fn changed(&mut self) {
        let changed = async {
            match &self.inotify {
                Some(inotify) if inotify.changed(SETTLE).await.is_ok() => {}
                Some(_) | None => pending().await,
            }
        };
        timeout(POLL, changed).await.ok();
        self.attach();
    }

    /// Watches the folder that is at the path now.
    fn attach(&mut self) {
        let failed = |e: &io::Error| debug!("{}", files::at(&self.path, e));
        if self.inotify.is_none() {
            self.inotify = Inotify::open().inspect_err(failed).ok();
        }
        let Some(inotify) = &self.inotify else {
            return;
        };
        let now = match inotify.watch(&self.path, CHANGES) {
            Ok(watch) => Some(watch),
            Err(Errno::NOENT) => None,
            Err(e) => {
                failed(&e.into());
                None
            }
        };
        if let Some(before) = self.watch.filter(|_| self.watch != now) {
            inotify.end(before);
        }
        self.watch = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
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
