//! Watches the kubelet's folder for device plugins: which kubelet listens there, and which sockets it contains.
use super::values::{KubeletFolder, KubeletSocket};
use crate::{folder_watch::FolderWatch, publish};
use std::{
    convert::Infallible,
    fs, io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::Path,
    sync::Arc,
};
use tokio::{sync::watch, task::spawn_blocking, time::Instant};
use tracing::{info, warn};

pub(super) const KUBELET_SOCKET: &str = "kubelet.sock";

/// Publishes the folder to `folder` at each change of it, and then the kubelet to `kubelet`.
pub(super) async fn run(
    path: Arc<Path>,
    folder: watch::Sender<KubeletFolder>,
    kubelet: watch::Sender<Option<KubeletSocket>>,
) -> anyhow::Result<Infallible> {
    let mut watch = FolderWatch::new(&*path);
    loop {
        let looked_at = path.clone();
        match spawn_blocking(move || read(&looked_at)).await? {
            Ok(mut now) => {
                let there = now.kubelet;
                let before = folder.borrow().clone();
                now.since = match there {
                    Some(_) if before.kubelet == there => before.since,
                    Some(_) => Some(Instant::now()),
                    None => None,
                };
                if before.kubelet != there {
                    let state = if there.is_some() { "there" } else { "gone" };
                    info!(folder = %path.display(), "the kubelet's socket is {state}");
                }
                publish::if_changed(&folder, now);
                publish::if_changed(&kubelet, there);
            }
            Err(e) => warn!("{}: {e}", path.display()),
        }
        watch.changed().await;
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
