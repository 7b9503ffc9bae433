//! The agents that stand by, as the one that has the place sees them. Nothing here waits: they are looked at when somebody asks.
use std::{
    io::{ErrorKind, Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tracing::warn;

/// The most agents that are told of the end of this one. Beyond it: a further one waits in the kernel until another one is gone.
const STAND_BYS_MAX: usize = 8;

#[derive(Clone, Default)]
pub(in crate::agent) struct StandBys(Arc<Mutex<StandBysNow>>);

#[derive(Default)]
struct StandBysNow {
    listener: Option<(UnixListener, PathBuf)>,
    connected: Vec<StandBy>,
}

struct StandBy {
    stream: UnixStream,
    is_ready: bool,
}

impl StandBy {
    /// Reads what it has written. Returns false if it is gone.
    fn look(&mut self) -> bool {
        match self.stream.read(&mut [0; 8]) {
            Ok(0) => false,
            Ok(_) => {
                self.is_ready = true;
                true
            }
            Err(e) => e.kind() == ErrorKind::WouldBlock,
        }
    }
}

impl StandBys {
    /// Lets agents connect. The listener must not block.
    pub(super) fn listen(&self, listener: UnixListener, path: PathBuf) {
        self.locked().listener = Some((listener, path));
    }

    pub(super) fn count(&self) -> usize {
        self.looked().connected.len()
    }

    /// Returns whether one of them could take over at once.
    pub(in crate::agent) fn is_one_ready(&self) -> bool {
        self.looked().connected.iter().any(|one| one.is_ready)
    }

    /// Lets no more connect. Those that are connected stay.
    pub(super) fn close(&self) {
        let listener = self.looked().listener.take();
        if let Some((_, path)) = listener
            && let Err(e) = crate::files::remove(&path)
        {
            warn!("a socket stays: {e}");
        }
    }

    /// Gives the place to the first of those that are connected.
    pub(super) fn give(&self) {
        for one in &mut self.locked().connected {
            // One that is gone needs no place.
            one.stream.write_all(&[1]).ok();
        }
    }

    /// Looks at the connections, and accepts new ones.
    fn looked(&self) -> MutexGuard<'_, StandBysNow> {
        let mut seen = self.locked();
        let StandBysNow {
            listener,
            connected,
        } = &mut *seen;
        connected.retain_mut(StandBy::look);
        if let Some((listener, _)) = listener {
            while connected.len() < STAND_BYS_MAX
                && let Ok((stream, _)) = listener.accept()
                && stream.set_nonblocking(true).is_ok()
            {
                let mut one = StandBy {
                    stream,
                    is_ready: false,
                };
                if one.look() {
                    connected.push(one);
                }
            }
        }
        seen
    }

    fn locked(&self) -> MutexGuard<'_, StandBysNow> {
        // A panic leaves connections that are looked at again.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
