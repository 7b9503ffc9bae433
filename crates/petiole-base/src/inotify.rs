//! Says that something has happened in folders, as Linux tells it (`inotify(7)`), and of a file how often. It does not say what: the
//! caller reads the folders.
pub use rustix::fs::inotify::WatchFlags;
use rustix::{
    fs::inotify::{self, CreateFlags, Reader},
    io::Errno,
};
use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    time::Duration,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::sleep,
};

/// Enough for some events.
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
        self.named("", settle).await.map(drop)
    }

    /// Waits like [`Self::changed`], and returns how many of the events are about a file of this name.
    pub async fn named(&self, name: &str, settle: Duration) -> io::Result<usize> {
        #[expect(
            deprecated,
            reason = "its successor is unsafe; a `BorrowedFd` is open as long as it lives, as that asks for"
        )]
        let inotify = AsyncFd::with_interest(self.0.as_fd(), Interest::READABLE)?;
        let mut ready = inotify.readable().await?;
        sleep(settle).await;
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let (mut events, mut count) = (Reader::new(&self.0, &mut buffer), 0);
        // Until there is nothing left.
        while let Ok(event) = ready.try_io(|_| Ok(events.next()?)) {
            let is_named =
                (event?.file_name()).is_some_and(|file| file.to_bytes() == name.as_bytes());
            count += usize::from(is_named);
        }
        Ok(count)
    }
}
