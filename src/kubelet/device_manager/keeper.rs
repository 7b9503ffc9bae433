//! Reads the checkpoint at start and keeps its file up to date. The Go kubelet writes after every message of a
//! plugin, also where nothing changed by it; here they are gathered, but an allocation waits until its own is on the disk.
use super::{
    Plugin, at_or_never,
    checkpoint::{self, Restored},
    inventory::Inventory,
};
use crate::{backoff::Backoff, files, model::checkpoint::FILE};
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
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How long changes are gathered. A kubelet killed within it has forgotten health, never an allocation.
const GATHER: Duration = Duration::from_millis(250);
/// How often a file that cannot be written is tried, beside the tries that allocations ask for.
const RETRY: Duration = Duration::from_millis(500);
const RETRY_CAP: Duration = Duration::from_secs(30);

/// Answers once everything up to the request is on the disk.
pub(super) type SaveRequest = oneshot::Sender<Result<(), String>>;

pub(super) struct Keeper {
    folder: PathBuf,
    inventory: watch::Receiver<Inventory<Plugin>>,
    requests: mpsc::Receiver<SaveRequest>,
    /// What the file holds, and how many lists of plugins there were by then.
    written: (Vec<u8>, u64),
    /// When it is to be written next.
    due: Option<Instant>,
    /// What was last in the way, while it is.
    failing: Option<String>,
    backoff: Backoff,
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
    let restored = restored.unwrap_or_else(|error| {
        warn!(path = %path.display(), %error, "continue after failing to read checkpoint");
        Restored::default()
    });
    for claim in &restored.left_out {
        warn!(path = %path.display(), "{claim}; the others are kept");
    }
    restored
}

impl Keeper {
    pub(super) fn new(
        folder: &Path,
        inventory: watch::Receiver<Inventory<Plugin>>,
        requests: mpsc::Receiver<SaveRequest>,
    ) -> Self {
        Self {
            folder: folder.to_owned(),
            inventory,
            requests,
            written: (Vec::new(), 0),
            due: None,
            failing: None,
            backoff: Backoff::new(RETRY, RETRY_CAP),
        }
    }

    pub(super) async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {
                    // What is wrong with it has been logged.
                    self.write().await.ok();
                    return Ok(());
                }
                Some(request) = self.requests.recv() => {
                    let outcome = self.write().await;
                    // A container that no longer starts needs no answer.
                    request.send(outcome).ok();
                }
                () = at_or_never(self.due) => {
                    self.write().await.ok();
                }
                changed = self.inventory.changed() => {
                    changed?;
                    self.due.get_or_insert_with(|| Instant::now() + GATHER);
                }
            }
        }
    }

    /// Writes what has changed. What fails is due again, later each time, and logged where it is not what failed before.
    async fn write(&mut self) -> Result<(), String> {
        let Err(error) = self.try_write().await.map_err(|e| e.to_string()) else {
            self.due = None;
            self.backoff.reset();
            if self.failing.take().is_some() {
                info!("checkpoint is written again");
            }
            return Ok(());
        };
        self.due = Some(Instant::now() + self.backoff.next_wait());
        if self.failing.as_ref() != Some(&error) {
            warn!(%error, "cannot write checkpoint");
            self.failing = Some(error.clone());
        }
        Err(error)
    }

    async fn try_write(&mut self) -> io::Result<()> {
        let now = {
            let inventory = self.inventory.borrow_and_update();
            (checkpoint::write(&inventory), inventory.lists())
        };
        if now == self.written {
            return Ok(());
        }
        let path = self.folder.join(FILE);
        let content = now.0.clone();
        spawn_blocking(move || write_synced(&path, &content)).await??;
        self.written = now;
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::JoinSet;

    const EMPTY: &str = r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":"#;

    #[tokio::test(start_paused = true)]
    async fn a_file_that_cannot_be_written_is_tried_less_and_less_often_until_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let obstacle = folder.path().join(FILE);
        fs::create_dir(&obstacle).unwrap();
        let (inventory, inventory_rx) = watch::channel(Inventory::default());
        let (saves, requests) = mpsc::channel(1);
        let mut keeper = Keeper::new(folder.path(), inventory_rx, requests);
        let mut waits = vec![];
        for _ in 0..8 {
            let error = keeper.write().await.unwrap_err();
            assert!(error.contains(FILE), "{error}");
            assert_eq!(keeper.failing.as_ref(), Some(&error));
            waits.push(keeper.due.unwrap().duration_since(Instant::now()));
        }
        assert!(
            waits[3] > RETRY * 5 && waits[7] > RETRY_CAP / 2,
            "{waits:?}"
        );

        // Changes do not hasten it.
        let mut tasks = JoinSet::new();
        let shutdown = CancellationToken::new();
        tasks.spawn(keeper.run(shutdown.clone()));
        let begun = Instant::now();
        inventory.send_modify(|_| ());
        fs::remove_dir(&obstacle).unwrap();
        while !obstacle.exists() {
            tokio::time::sleep(GATHER).await;
        }
        assert!(begun.elapsed() > RETRY_CAP / 2, "{:?}", begun.elapsed());
        let text = fs::read_to_string(&obstacle).unwrap();
        assert!(text.starts_with(EMPTY), "{text}");
        drop(saves);
        shutdown.cancel();
        tasks.join_next().await.unwrap().unwrap().unwrap();
    }
}
