//! The kubelet's device plugin folder: which kubelet listens there, and which sockets stand in it.
use crate::folder_watch::FolderWatch;
use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub(super) const KUBELET_SOCKET: &str = "kubelet.sock";

/// The folder as it was last read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KubeletFolder {
    pub(super) kubelet: Option<KubeletSocket>,
    /// Since when this agent has known that kubelet: a clock that is set does not change it.
    pub(super) since: Option<Instant>,
    /// File names of the sockets there.
    pub(super) sockets: BTreeSet<String>,
}

impl KubeletFolder {
    /// How long the kubelet has been there. The wall clock may have been set since the socket was made: what this
    /// agent has seen counts too.
    pub(super) fn kubelet_age(&self) -> Option<Duration> {
        let by_clock = self.kubelet?.created.elapsed().unwrap_or_default();
        Some(by_clock.max(self.since?.elapsed()))
    }
}

/// Tells one kubelet's socket from the next one's: a kubelet makes its own at each start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KubeletSocket {
    pub(super) created: SystemTime,
    inode: u64,
}

/// Publishes the folder at each change of it, and after it the kubelet.
pub(super) async fn run(
    path: Arc<Path>,
    folder: watch::Sender<KubeletFolder>,
    kubelet: watch::Sender<Option<KubeletSocket>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut watch = FolderWatch::new(&*path);
    loop {
        match read(&path) {
            Ok(mut now) => {
                let there = now.kubelet;
                let before = folder.borrow().clone();
                now.since = match there {
                    Some(_) if before.kubelet == there => before.since,
                    Some(_) => Some(Instant::now()),
                    None => None,
                };
                folder.send_if_modified(|before| {
                    if before.kubelet != now.kubelet {
                        let state = if now.kubelet.is_some() {
                            "there"
                        } else {
                            "gone"
                        };
                        info!(folder = %path.display(), "the kubelet's socket is {state}");
                    }
                    let is_changed = *before != now;
                    *before = now;
                    is_changed
                });
                kubelet.send_if_modified(|before| {
                    let is_changed = *before != there;
                    *before = there;
                    is_changed
                });
            }
            Err(e) => warn!("{}: {e}", path.display()),
        }
        if shutdown
            .run_until_cancelled(watch.changed())
            .await
            .is_none()
        {
            return Ok(());
        }
    }
}

/// A folder that is not there is an empty one.
fn read(path: &Path) -> io::Result<KubeletFolder> {
    let mut folder = KubeletFolder::default();
    let entries = match fs::read_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(folder),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        // An entry may go while the folder is read.
        if !entry.file_type().is_ok_and(|kind| kind.is_socket()) {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == KUBELET_SOCKET {
            folder.kubelet = entry.metadata().ok().and_then(|metadata| {
                Some(KubeletSocket {
                    created: metadata.modified().ok()?,
                    inode: metadata.ino(),
                })
            });
        } else {
            folder.sockets.insert(name);
        }
    }
    Ok(folder)
}
