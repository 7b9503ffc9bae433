//! The place of an agent on its node. The agent that has it writes and decides. Another one, of the next version, may stand by
//! with everything ready, and takes the place over without a gap.
//!
//! ```text
//! holder  ── has the lock of the state folder, listens on `.stand-by.sock`
//! stand-by ── connects, and writes a byte when it could take over
//! holder  ── SIGTERM: it writes its state, releases the lock, writes a byte to all who are connected, and forwards the
//!            kubelet's calls until they have closed their connections
//! stand-by ── locks the folder, registers its plugins, and closes its connection
//! ```
//! The kernel closes connection and lock of a process that is killed, so the other one goes on at once. Of several that stand
//! by the first one gets the lock, and the others connect to it.
mod stand_bys;

use crate::files;
use petiole_kubelet_api::uds;
use stand_bys::StandBys;
use std::{
    fs::File,
    future::Future,
    mem,
    path::PathBuf,
    pin::{Pin, pin},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The socket in the state folder.
const SOCKET: &str = ".stand-by.sock";
/// The interval of the looks for the lock of an agent that cannot be connected to, such as one of an earlier version.
const LOOK: Duration = Duration::from_millis(50);
/// The longest wait for the agent that takes over. It registers within a second.
const LONGEST_TAKEOVER: Duration = Duration::from_secs(20);
/// The time for which the old plugins are served after the new ones are registered: the kubelet may have chosen one of them for a
/// call that it makes now.
const LINGER: Duration = Duration::from_millis(500);

/// The place of this agent.
pub struct Place {
    /// The folder of the state; `None` if no other agent can be there.
    folder: Option<PathBuf>,
    /// The lock on the folder. It cannot be had on a disk that is broken, and the agent runs without it.
    lock: Option<File>,
    /// The connection to the agent before this one, which ends when it is closed.
    predecessor: Option<UnixStream>,
    state: PlaceState,
}

/// What other tasks may know of the place.
#[derive(Clone, Default)]
pub(super) struct PlaceState {
    /// Cancelled as soon as this agent has the place.
    held: CancellationToken,
    pub(super) stand_bys: StandBys,
}

impl PlaceState {
    pub(super) fn is_held(&self) -> bool {
        self.held.is_cancelled()
    }
}

impl Place {
    /// Returns the place of an agent that is alone on its node.
    pub fn alone() -> Self {
        let place = Self::in_folder(None);
        place.state.held.cancel();
        place
    }

    /// Returns the place of the agent that holds this folder. Nobody has it yet.
    pub fn of(folder: PathBuf) -> Self {
        Self::in_folder(Some(folder))
    }

    fn in_folder(folder: Option<PathBuf>) -> Self {
        Self {
            folder,
            lock: None,
            predecessor: None,
            state: PlaceState::default(),
        }
    }

    /// Returns a token that is cancelled when this agent has the place.
    pub fn held(&self) -> CancellationToken {
        self.state.held.clone()
    }

    pub(super) fn state(&self) -> PlaceState {
        self.state.clone()
    }

    /// Waits until this agent has the place. The one that has it learns when `ready` is complete.
    pub async fn take(&mut self, ready: impl Future<Output = ()>) {
        let Some(folder) = self.folder.clone().filter(|_| !self.state.is_held()) else {
            return;
        };
        let (socket, mut is_reported) = (folder.join(SOCKET), false);
        let mut news = News {
            ready: pin!(ready),
            is_ready: false,
        };
        loop {
            match files::lock(&folder) {
                Ok(lock) => {
                    self.lock = lock;
                    break;
                }
                Err(e) if !mem::replace(&mut is_reported, true) => info!("{e}. This one stands by"),
                Err(_) => {}
            }
            // Where another one was faster, the last holder waits for that one alone.
            self.predecessor = None;
            self.predecessor = match UnixStream::connect(&socket).await {
                Ok(holder) => news.until_given(holder).await,
                Err(_) => None,
            };
            if self.predecessor.is_none() {
                sleep(LOOK).await;
            }
        }
        match uds::listener(&socket).and_then(|listener| listener.into_std()) {
            Ok(listener) => self.state.stand_bys.listen(listener, socket),
            Err(e) => warn!("no other agent can stand by, so the next update has a gap: {e}"),
        }
        info!(folder = %folder.display(), "this agent has the place on its node");
        self.state.held.cancel();
    }

    /// Returns whether another agent handed the place over, and still serves its plugins.
    pub(super) fn has_predecessor(&self) -> bool {
        self.predecessor.is_some()
    }

    pub(super) fn let_predecessor_end(&mut self) {
        self.predecessor = None;
    }

    /// Returns whether another agent stands by.
    pub(super) fn is_waited_for(&self) -> bool {
        self.state.stand_bys.count() > 0
    }

    /// Gives the place to an agent that stands by, and waits until this one is not needed any more.
    pub(super) async fn hand_over(&mut self) {
        info!("another agent takes over");
        let stand_bys = self.state.stand_bys.clone();
        stand_bys.close();
        self.lock = None;
        stand_bys.give();
        let taken = async {
            while stand_bys.count() > 0 {
                sleep(LOOK).await;
            }
            sleep(LINGER).await;
        };
        if timeout(LONGEST_TAKEOVER, taken).await.is_err() {
            warn!("the other agent has not registered its plugins within {LONGEST_TAKEOVER:?}");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Before the lock: the next agent makes its own.
        self.state.stand_bys.close();
    }
}

/// What an agent that stands by has to say.
struct News<'a, F> {
    ready: Pin<&'a mut F>,
    is_ready: bool,
}

impl<F: Future<Output = ()>> News<'_, F> {
    /// Waits until the holder gives the place. Returns the connection to it; `None` if it ended without.
    async fn until_given(&mut self, mut holder: UnixStream) -> Option<UnixStream> {
        if self.is_ready {
            holder.write_all(&[1]).await.ok()?;
        }
        let mut given = [0];
        loop {
            tokio::select! {
                () = self.ready.as_mut(), if !self.is_ready => {
                    self.is_ready = true;
                    holder.write_all(&[1]).await.ok()?;
                }
                read = holder.read(&mut given) => {
                    return matches!(read, Ok(1)).then_some(holder);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
