//! Says that something has happened in folders, as Linux tells it (`inotify(7)`). It does not say what: the caller reads the folders.
pub use rustix::fs::inotify::WatchFlags;
use rustix::{
    fs::inotify::{self, CreateFlags},
    io::Errno,
};
use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    time::Duration,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::sleep,
};

/// Enough for some events. They are read only to forget them.
const BUFFER_BYTES: usize = 4096;

/// An instance of inotify. The machine has few of them, and other programs have some.
pub struct Inotify(OwnedFd);

impl Inotify {
    /// Opens an instance that watches nothing yet.
    pub fn open() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self(inotify))
    }

    /// Watches the folder that is at a path now, for these events. Returns the number of the watch, which is the same one as long as
    /// the folder is watched.
    pub fn watch(&self, folder: &Path, events: WatchFlags) -> Result<i32, Errno> {
        inotify::add_watch(&self.0, folder, events)
    }

    /// Ends a watch. That of a folder that is gone has gone with it.
    pub fn end(&self, watch: i32) {
        inotify::remove_watch(&self.0, watch).ok();
    }

    /// Waits for an event, and for those that follow within `settle`. The call is cancel safe: it forgets the events at its end.
    pub async fn changed(&self, settle: Duration) -> io::Result<()> {
        #[expect(
            deprecated,
            reason = "its successor is unsafe; a `BorrowedFd` is open as long as it lives, as that asks for"
        )]
        let inotify = AsyncFd::with_interest(self.0.as_fd(), Interest::READABLE)?;
        let mut ready = inotify.readable().await?;
        sleep(settle).await;
        let mut buffer = [0_u8; BUFFER_BYTES];
        // Until there is nothing left.
        while let Ok(read) = ready.try_io(|fd| Ok(rustix::io::read(fd, &mut buffer)?)) {
            read?;
        }
        Ok(())
    }
}
