//! Waits until something appears in folders, or goes.
//!
//! `folder_watch` would report each program that writes to `/dev/null`: these are events of `/dev`, too.
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    time::Duration,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::{sleep, timeout},
};

/// The most folders that one discovery of `paths` watches. Beyond it: it looks every two seconds instead.
const FOLDERS_MAX: usize = 64;
/// The interval of the looks where folders are not watched.
const POLL: Duration = Duration::from_secs(2);
/// The delay between an event and its report. udev makes the links of a device node right after it.
const SETTLE: Duration = Duration::from_millis(20);
/// Enough for some events. They are read only to forget them.
const BUFFER_BYTES: usize = 4096;

pub(super) struct Watch {
    inotify: AsyncFd<OwnedFd>,
    /// The folders, each with the number of its watch.
    watched: BTreeMap<PathBuf, i32>,
    /// True if some folder is not watched.
    is_blind: bool,
}

impl Watch {
    pub(super) fn new() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe; an `OwnedFd` stays open until it is dropped, as that asks for"
        )]
        let inotify = AsyncFd::with_interest(inotify, Interest::READABLE)?;
        Ok(Self {
            inotify,
            watched: BTreeMap::new(),
            is_blind: false,
        })
    }

    /// Watches these folders from now on. Returns whether one of them was not watched before: what has just happened there is
    /// not reported.
    pub(super) fn follow(&mut self, folders: &BTreeSet<PathBuf>) -> bool {
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR;
        self.is_blind = folders.len() > FOLDERS_MAX;
        let mut now = BTreeMap::new();
        for folder in folders.iter().take(FOLDERS_MAX) {
            match inotify::add_watch(&self.inotify, folder.as_path(), flags) {
                Ok(watch) => drop(now.insert(folder.clone(), watch)),
                // The folder above it is watched.
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {}
                Err(_) => self.is_blind = true,
            }
        }
        let kept: BTreeSet<i32> = now.values().copied().collect();
        for watch in self.watched.values().filter(|watch| !kept.contains(watch)) {
            // The watch of a folder that is gone has gone with it.
            _ = inotify::remove_watch(&self.inotify, *watch);
        }
        let is_new = now
            .iter()
            .any(|(folder, watch)| self.watched.get(folder) != Some(watch));
        self.watched = now;
        is_new
    }

    /// Waits until something may have changed.
    pub(super) async fn changed(&self) -> io::Result<()> {
        let patience = if self.is_blind { POLL } else { Duration::MAX };
        let Ok(ready) = timeout(patience, self.inotify.readable()).await else {
            return Ok(());
        };
        let mut ready = ready?;
        sleep(SETTLE).await;
        let mut buffer = [0_u8; BUFFER_BYTES];
        // Until there is nothing left.
        while let Ok(read) = ready.try_io(|fd| Ok(rustix::io::read(fd, &mut buffer)?)) {
            read?;
        }
        Ok(())
    }
}
