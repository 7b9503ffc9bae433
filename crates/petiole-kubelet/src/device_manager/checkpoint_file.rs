//! Reads the checkpoint at start and keeps its file up to date. The Go kubelet writes after every message of a plugin,
//! even without a change. Here changes are collected first, but an allocation waits until it is on the disk.
use super::{checkpoint, endpoint::Plugin, inventory::Inventory};
use petiole_base::waits::sleep_until_or_never;
use petiole_base::{backoff::Backoff, files};
use petiole_kubelet_api::checkpoint::FILE;
use std::{
    fs, io,
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

/// The time for which changes are collected. A kubelet that is killed within it loses changes of health, never an
/// allocation.
const WRITE_DELAY: Duration = Duration::from_millis(250);
/// The wait before a failed write is tried again. An allocation triggers an attempt at once.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// The file mode that the Go kubelet uses.
const FILE_MODE: u32 = 0o600;

/// A request to write the checkpoint. It is answered once every change before the request is on the disk.
pub(super) type SaveRequest = oneshot::Sender<Result<(), String>>;

/// Writes the checkpoint of an inventory to its file.
pub(super) struct CheckpointWriter {
    folder: PathBuf,
    inventory: watch::Receiver<Inventory<Plugin>>,
    requests: mpsc::Receiver<SaveRequest>,
    written: Written,
    /// The time of the next write.
    due: Option<Instant>,
    /// The last error, while writing fails.
    failing: Option<String>,
    backoff: Backoff,
}

/// The state of the file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Written {
    content: Vec<u8>,
    /// The number of device lists that the content includes. A list without a change is written too.
    lists: u64,
}

/// Reads the checkpoint of the last kubelet on this folder. An unreadable checkpoint counts as empty, as in the Go
/// kubelet.
pub(super) fn read(folder: &Path) -> Inventory<Plugin> {
    let path = folder.join(FILE);
    let mut inventory = Inventory::default();
    let bytes = match fs::read(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return inventory,
        read => read,
    };
    let left_out = bytes.map_err(|e| e.to_string()).and_then(|bytes| {
        let read = checkpoint::read(&bytes, &mut inventory, Duration::ZERO);
        read.map_err(|e| e.to_string())
    });
    let left_out = left_out.unwrap_or_else(|error| {
        warn!(path = %path.display(), %error, "cannot read the checkpoint; starting without it");
        vec![]
    });
    for claim in &left_out {
        warn!(path = %path.display(), "{claim}; the other claims are kept");
    }
    inventory
}

impl CheckpointWriter {
    pub(super) fn new(
        folder: &Path,
        inventory: watch::Receiver<Inventory<Plugin>>,
        requests: mpsc::Receiver<SaveRequest>,
    ) -> Self {
        Self {
            folder: folder.to_owned(),
            inventory,
            requests,
            written: Written::default(),
            due: None,
            failing: None,
            backoff: Backoff::new(FIRST_RETRY, LONGEST_RETRY),
        }
    }

    /// Writes each change of `inventory` after [`WRITE_DELAY`], and at once for each of `requests`, which it answers. It is
    /// the only task that writes the file, and it sends to no other task.
    pub(super) async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {
                    // `write` has logged the error.
                    self.write().await.ok();
                    return Ok(());
                }
                Some(request) = self.requests.recv() => {
                    let outcome = self.write().await;
                    // A container that no longer starts does not wait for the answer.
                    request.send(outcome).ok();
                }
                () = sleep_until_or_never(self.due) => {
                    self.write().await.ok();
                }
                changed = self.inventory.changed() => {
                    changed?;
                    self.due.get_or_insert_with(|| Instant::now() + WRITE_DELAY);
                }
            }
        }
    }

    /// Writes the checkpoint if it has changed. A failed write is retried with growing waits. An error is logged once.
    async fn write(&mut self) -> Result<(), String> {
        let Err(error) = self.try_write().await.map_err(|e| e.to_string()) else {
            self.due = None;
            self.backoff.reset();
            if self.failing.take().is_some() {
                info!("the checkpoint can be written again");
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
            Written {
                content: checkpoint::write(&inventory),
                lists: inventory.lists(),
            }
        };
        if now == self.written {
            return Ok(());
        }
        let path = self.folder.join(FILE);
        let content = now.content.clone();
        spawn_blocking(move || files::write_durably(&path, &content, FILE_MODE)).await??;
        self.written = now;
        Ok(())
    }
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
        let mut writer = CheckpointWriter::new(folder.path(), inventory_rx, requests);
        let mut waits = vec![];
        for _ in 0..8 {
            let error = writer.write().await.unwrap_err();
            assert!(error.contains(FILE), "{error}");
            assert_eq!(writer.failing.as_ref(), Some(&error));
            waits.push(writer.due.unwrap().duration_since(Instant::now()));
        }
        assert!(
            waits[3] > FIRST_RETRY * 5 && waits[7] > LONGEST_RETRY / 2,
            "{waits:?}"
        );

        // Changes do not trigger an earlier attempt.
        let mut tasks = JoinSet::new();
        let shutdown = CancellationToken::new();
        tasks.spawn(writer.run(shutdown.clone()));
        let begun = Instant::now();
        inventory.send_modify(|_| ());
        fs::remove_dir(&obstacle).unwrap();
        while !obstacle.exists() {
            tokio::time::sleep(WRITE_DELAY).await;
        }
        assert!(begun.elapsed() > LONGEST_RETRY / 2, "{:?}", begun.elapsed());
        let text = fs::read_to_string(&obstacle).unwrap();
        assert!(text.starts_with(EMPTY), "{text}");
        drop(saves);
        shutdown.cancel();
        tasks.join_next().await.unwrap().unwrap().unwrap();
    }
}
