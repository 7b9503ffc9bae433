//! Reads the checkpoint at start and keeps its file up to date. The Go kubelet writes after every message of a
//! plugin; here changes are gathered, but an allocation waits until its own is on the disk.
use super::{
    Plugin,
    checkpoint::{self, Restored},
    inventory::Inventory,
};
use crate::files;
use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::spawn_blocking,
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

const FILE: &str = "kubelet_internal_checkpoint";
/// How long changes are gathered. A kubelet killed within it has forgotten health, never an allocation.
const GATHER: Duration = Duration::from_millis(250);

/// Answers once everything up to the request is on the disk.
pub(super) type SaveRequest = oneshot::Sender<Result<(), String>>;

pub(super) struct Keeper {
    pub(super) folder: PathBuf,
    pub(super) inventory: watch::Receiver<Inventory<Plugin>>,
    pub(super) requests: mpsc::Receiver<SaveRequest>,
    /// What the file holds.
    pub(super) written: Vec<u8>,
}

/// What the last kubelet on this folder left; nothing where that cannot be read, as the kubelet does.
pub(super) fn read(folder: &Path) -> Restored {
    let path = folder.join(FILE);
    let bytes = match fs::read(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Restored::default(),
        read => read,
    };
    let restored = bytes
        .map_err(|e| e.to_string())
        .and_then(|bytes| checkpoint::read(&bytes).map_err(|e| e.to_string()));
    restored.unwrap_or_else(|error| {
        warn!(path = %path.display(), %error, "continue after failing to read checkpoint");
        Restored::default()
    })
}

impl Keeper {
    pub(super) async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {
                    self.write_and_log().await;
                    return Ok(());
                }
                Some(request) = self.requests.recv() => self.save(request).await,
                changed = self.inventory.changed() => {
                    changed?;
                    self.gather(&shutdown).await;
                }
            }
        }
    }

    /// Lets more changes come in, unless someone waits for the file.
    async fn gather(&mut self, shutdown: &CancellationToken) {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            Some(request) = self.requests.recv() => self.save(request).await,
            () = sleep(GATHER) => self.write_and_log().await,
        }
    }

    async fn save(&mut self, request: SaveRequest) {
        let outcome = self.write().await.map_err(|e| e.to_string());
        // A container that no longer starts needs no answer.
        request.send(outcome).ok();
    }

    async fn write_and_log(&mut self) {
        if let Err(error) = self.write().await {
            warn!(%error, "cannot write checkpoint");
            // Tried again with what has changed by then.
            self.inventory.mark_changed();
        }
    }

    async fn write(&mut self) -> io::Result<()> {
        let bytes = checkpoint::write(&self.inventory.borrow_and_update());
        if bytes == self.written {
            return Ok(());
        }
        let path = self.folder.join(FILE);
        let content = bytes.clone();
        spawn_blocking(move || write_synced(&path, &content)).await??;
        self.written = bytes;
        Ok(())
    }
}

/// As the kubelet does it: a hidden neighbour, synced, then renamed.
fn write_synced(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = path.with_file_name(format!(".{FILE}.tmp"));
    let written = (|| {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(content)?;
        file.sync_data()?;
        fs::rename(&temporary, path)
    })();
    written.map_err(|e| files::at(path, &e))
}
