//! Waits for changes of folders, as Linux tells of them (`inotify(7)`). It reports *that* something changed and not what, so
//! the caller reads the folders again.
use crate::files;
use rustix::{
    fs::inotify::{self, CreateFlags, WatchFlags},
    io::Errno,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
    time::Duration,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::{sleep, timeout},
};
use tracing::debug;

/// The delay between an event and its report. Writes within it are reported as one change, and udev makes the links of a
/// device node within it.
const SETTLE: Duration = Duration::from_millis(20);
/// The interval of polling.
const POLL: Duration = Duration::from_secs(2);
/// Enough for some events. They are read only to forget them.
const BUFFER_BYTES: usize = 4096;
/// All events but those of reading: the reader would cause events without end.
const CHANGES: WatchFlags = WatchFlags::ALL_EVENTS
    .difference(WatchFlags::ACCESS)
    .difference(WatchFlags::OPEN)
    .difference(WatchFlags::CLOSE_NOWRITE);
/// The events of what appears in a folder, and goes. Each program that writes to `/dev/null` causes other events of `/dev`.
const NAMES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ONLYDIR);

/// Watches several folders.
pub struct Watch {
    events: WatchFlags,
    most: usize,
    open: fn() -> io::Result<OwnedFd>,
    /// `None` while the machine has no more of them: it has few, and other programs have some.
    inotify: Option<OwnedFd>,
    /// The folders, each with the number of its watch, which stays the same as long as the folder is watched.
    watched: BTreeMap<PathBuf, i32>,
    /// True if some folder is not watched.
    is_blind: bool,
}

impl Watch {
    /// Watches no folder yet, and later `most` of them, for what appears in them and goes.
    pub fn for_names(most: usize) -> Self {
        Self::new(NAMES, most)
    }

    fn new(events: WatchFlags, most: usize) -> Self {
        Self {
            events,
            most,
            open,
            inotify: None,
            watched: BTreeMap::new(),
            is_blind: false,
        }
    }

    /// Watches the folders that are at these paths now. Returns whether one of them was not watched before: what has just
    /// happened there is not reported.
    pub fn follow(&mut self, folders: &BTreeSet<PathBuf>) -> bool {
        if self.inotify.is_none() {
            let opened = (self.open)();
            self.inotify = opened
                .inspect_err(|e| debug!("folders are not watched (inotify): {e}"))
                .ok();
        }
        let Some(inotify) = &self.inotify else {
            return false;
        };
        self.is_blind = folders.len() > self.most;
        let mut now = BTreeMap::new();
        for folder in folders.iter().take(self.most) {
            match inotify::add_watch(inotify, folder, self.events) {
                Ok(watch) => drop(now.insert(folder.clone(), watch)),
                // The caller watches the folder above it, or polls.
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(e) => {
                    debug!("{}", files::at(folder, &e.into()));
                    self.is_blind = true;
                }
            }
        }
        let kept: BTreeSet<i32> = now.values().copied().collect();
        for watch in self.watched.values().filter(|watch| !kept.contains(watch)) {
            // The watch of a folder that is gone has gone with it.
            inotify::remove_watch(inotify, *watch).ok();
        }
        let is_new = now
            .iter()
            .any(|(folder, watch)| self.watched.get(folder) != Some(watch));
        self.watched = now;
        is_new
    }

    /// Waits until something may have changed, which is every few seconds if some folder is not watched. The call is cancel
    /// safe: a change that was not reported is reported by the next call.
    pub async fn changed(&self) {
        let patience = if self.is_blind { POLL } else { Duration::MAX };
        let changed = async {
            match &self.inotify {
                Some(inotify) if event(inotify).await.is_ok() => {}
                Some(_) | None => sleep(POLL).await,
            }
        };
        timeout(patience, changed).await.ok();
    }
}

/// Opens an instance of inotify that watches nothing yet.
fn open() -> io::Result<OwnedFd> {
    Ok(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?)
}

/// Waits for an event and for those that follow soon, and forgets them at its end.
async fn event(inotify: &OwnedFd) -> io::Result<()> {
    #[expect(
        deprecated,
        reason = "its successor is unsafe; a `BorrowedFd` is open as long as it lives, as that asks for"
    )]
    let inotify = AsyncFd::with_interest(inotify.as_fd(), Interest::READABLE)?;
    let mut ready = inotify.readable().await?;
    sleep(SETTLE).await;
    let mut buffer = [0_u8; BUFFER_BYTES];
    // Until there is nothing left.
    while let Ok(read) = ready.try_io(|fd| Ok(rustix::io::read(fd, &mut buffer)?)) {
        read?;
    }
    Ok(())
}

/// Watches one folder, which need not exist, for all changes.
pub struct FolderWatch {
    folder: BTreeSet<PathBuf>,
    watch: Watch,
}

impl FolderWatch {
    /// Starts to watch.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let folder = BTreeSet::from([path.into()]);
        let mut watch = Watch::new(CHANGES, 1);
        watch.follow(&folder);
        Self { folder, watch }
    }

    /// Waits until something may have changed since the last call; it also returns every few seconds without a change, which
    /// covers lost events: queues overflow, and the watch ends when the folder is replaced. The call is cancel safe.
    pub async fn changed(&mut self) {
        timeout(POLL, self.watch.changed()).await.ok();
        self.watch.follow(&self.folder);
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

    #[tokio::test(start_paused = true)]
    async fn without_inotify_it_looks_every_two_seconds_and_watches_once_there_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let folders = BTreeSet::from([dir.path().to_owned()]);
        let mut watch = Watch::for_names(1);
        watch.open = || Err(Errno::MFILE.into());
        assert!(!watch.follow(&folders));
        let begun = Instant::now();
        watch.changed().await;
        assert_eq!(begun.elapsed(), POLL);
        watch.open = open;
        assert!(watch.follow(&folders), "what came before it is looked for");
    }

    #[tokio::test]
    async fn a_watch_for_names_is_not_woken_by_writing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("null");
        fs::write(&file, "1").unwrap();
        let mut watch = Watch::for_names(1);
        watch.follow(&BTreeSet::from([dir.path().to_owned()]));
        fs::write(&file, "2").unwrap();
        let woken = timeout(10 * SETTLE, watch.changed()).await;
        assert!(woken.is_err(), "writing woke the watch");
        fs::remove_file(&file).unwrap();
        timeout(SOON, watch.changed()).await.unwrap();
    }
}
