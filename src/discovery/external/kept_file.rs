//! The file that keeps the registrations: it is written until it has the text it should have.
use crate::{backoff::Backoff, files};
use petiole_base::waits::sleep_until_or_never;
use std::{fs, io, path::PathBuf, time::Duration};
use tokio::{task::spawn_blocking, time::Instant};

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

pub(super) struct KeptFile {
    path: PathBuf,
    /// The text that was written last. What an earlier agent wrote is not known.
    written: Option<String>,
    backoff: Backoff,
    /// The time of the next attempt, after one that failed.
    retry: Option<Instant>,
}

impl KeptFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            written: None,
            backoff: Backoff::new(FIRST_RETRY, LAST_RETRY),
            retry: None,
        }
    }

    /// Writes the text, unless the file has it.
    pub(super) async fn keep(&mut self, text: String) -> io::Result<()> {
        if self.written.as_ref() == Some(&text) {
            return Ok(());
        }
        // A part of it may be written.
        self.written = None;
        let path = self.path.clone();
        let write = move || {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            files::write_durably(&path, text.as_bytes(), 0o600).map(|()| text)
        };
        match spawn_blocking(write)
            .await
            .map_err(io::Error::other)
            .flatten()
        {
            Ok(text) => {
                self.written = Some(text);
                self.retry = None;
                self.backoff.reset();
                Ok(())
            }
            Err(e) => {
                self.retry = Some(Instant::now() + self.backoff.next_wait());
                Err(e)
            }
        }
    }

    /// Waits until it must be tried again; for ever if the file is as it should be.
    pub(super) async fn retry(&self) {
        sleep_until_or_never(self.retry).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_text_that_could_not_be_written_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state");
        let mut file = KeptFile::new(folder.join("handlers.json"));
        let text = || "one".to_owned();
        fs::write(&folder, "no folder").unwrap();
        assert!(file.keep(text()).await.is_err());
        assert!(file.keep(text()).await.is_err(), "it is no other text");
        fs::remove_file(&folder).unwrap();
        file.retry().await;
        file.keep(text()).await.unwrap();
        assert_eq!(
            fs::read_to_string(folder.join("handlers.json")).unwrap(),
            "one"
        );
        assert!(file.retry.is_none());
        // It is not written without need.
        fs::remove_dir_all(&folder).unwrap();
        file.keep(text()).await.unwrap();
        assert!(!folder.exists());
    }
}
