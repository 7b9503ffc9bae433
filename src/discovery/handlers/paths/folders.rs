//! Waits until something appears in folders, or goes.
//!
//! `folder_watch` would report each program that writes to `/dev/null`: these are events of `/dev`, too.
use petiole_base::inotify::{Inotify, WatchFlags};
use rustix::io::Errno;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    time::Duration,
};
use tokio::time::{sleep, timeout};
use tracing::debug;

/// The most folders that one discovery of `paths` watches. Beyond it: it looks every two seconds instead.
const FOLDERS_MAX: usize = 64;
/// The interval of the looks where folders are not watched.
const POLL: Duration = Duration::from_secs(2);
/// The delay between an event and its report. udev makes the links of a device node right after it.
const SETTLE: Duration = Duration::from_millis(20);

pub(super) struct Watch {
    open: fn() -> io::Result<Inotify>,
    /// `None` while the machine has no more of them.
    inotify: Option<Inotify>,
    /// The folders, each with the number of its watch.
    watched: BTreeMap<PathBuf, i32>,
    /// True if some folder is not watched.
    is_blind: bool,
}

impl Watch {
    /// Watches nothing yet. `open` opens an instance of inotify.
    pub(super) fn new(open: fn() -> io::Result<Inotify>) -> Self {
        Self {
            open,
            inotify: None,
            watched: BTreeMap::new(),
            is_blind: false,
        }
    }

    /// Watches these folders from now on. Returns whether one of them was not watched before: what has just happened there is
    /// not reported.
    pub(super) fn follow(&mut self, folders: &BTreeSet<PathBuf>) -> bool {
        let events =
            WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE | WatchFlags::ONLYDIR;
        if self.inotify.is_none() {
            let opened = (self.open)();
            self.inotify = opened
                .inspect_err(|e| debug!("folders are not watched (inotify): {e}"))
                .ok();
        }
        let Some(inotify) = &self.inotify else {
            return false;
        };
        self.is_blind = folders.len() > FOLDERS_MAX;
        let mut now = BTreeMap::new();
        for folder in folders.iter().take(FOLDERS_MAX) {
            match inotify.watch(folder, events) {
                Ok(watch) => drop(now.insert(folder.clone(), watch)),
                // The folder above it is watched.
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(_) => self.is_blind = true,
            }
        }
        let kept: BTreeSet<i32> = now.values().copied().collect();
        for watch in self.watched.values().filter(|watch| !kept.contains(watch)) {
            inotify.end(*watch);
        }
        let is_new = now
            .iter()
            .any(|(folder, watch)| self.watched.get(folder) != Some(watch));
        self.watched = now;
        is_new
    }

    /// Waits until something may have changed.
    pub(super) async fn changed(&self) -> io::Result<()> {
        let Some(inotify) = &self.inotify else {
            sleep(POLL).await;
            return Ok(());
        };
        let patience = if self.is_blind { POLL } else { Duration::MAX };
        let changed = timeout(patience, inotify.changed(SETTLE)).await;
        changed.unwrap_or(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn without_inotify_it_looks_every_two_seconds_and_watches_once_there_is_one() {
        let none = || Err(Errno::MFILE.into());
        let mut watch = Watch::new(none);
        let folder = tempfile::tempdir().unwrap();
        let folders = BTreeSet::from([folder.path().to_owned()]);
        assert!(!watch.follow(&folders));
        let begun = tokio::time::Instant::now();
        watch.changed().await.unwrap();
        assert_eq!(begun.elapsed(), POLL);
        watch.open = Inotify::open;
        assert!(watch.follow(&folders), "what came before it is looked for");
    }
}
