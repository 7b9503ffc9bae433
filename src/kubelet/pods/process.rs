//! A container as a plain process: its own process group, its own environment, its output in a file.
use super::{expand::CommandLine, orphans::Place, record::Ended};
use crate::files;
use jiff::Timestamp;
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};
use tokio::{
    process::{Child, Command},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// What images set; a container's own `PATH` wins.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// A log that is longer when its container starts makes room; the kubelet's `containerLogMaxSize`.
const LOG_LIMIT: u64 = 10 * 1024 * 1024;

pub(super) struct Process {
    child: Child,
    group: Group,
    started: Timestamp,
}

/// Kills what is left of a process group when it is dropped: nothing that a container started outlives it.
struct Group {
    id: Pid,
    /// What the next kubelet finds it by, should this one be killed.
    record: Option<PathBuf>,
}

impl Drop for Group {
    fn drop(&mut self) {
        signal(self.id, Signal::SIGKILL);
        if let Some(Err(error)) = self.record.as_ref().map(fs::remove_file) {
            debug!(group = %self.id, %error, "its record is gone already");
        }
    }
}

impl Process {
    pub(super) fn start(
        line: &CommandLine,
        hostname: &str,
        working_dir: Option<&str>,
        log: &Path,
        place: &Place,
    ) -> io::Result<Self> {
        let output = open_log(log)?;
        let mut command = Command::new(&line.program);
        command
            .args(&line.arguments)
            .env_clear()
            .env("PATH", PATH)
            .env("HOSTNAME", hostname)
            .envs(&line.env)
            .stdin(Stdio::null())
            .stderr(output.try_clone()?)
            .stdout(output)
            .process_group(0)
            .kill_on_drop(true);
        // The folder of an image is seldom there; that is no reason not to start.
        if let Some(folder) = working_dir.filter(|folder| Path::new(folder).is_dir()) {
            command.current_dir(folder);
        }
        let child = command
            .spawn()
            .map_err(|e| files::at(Path::new(&line.program), &e))?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.ok_or_else(|| io::Error::other("the process ended before it began"))?;
        let id = Pid::from_raw(id);
        let mut group = Group { id, record: None };
        // A container runs without its record too, on a full disk say.
        match place.write(id) {
            Ok(record) => group.record = Some(record),
            Err(error) => warn!(%id, %error, "container not written down"),
        }
        Ok(Self {
            child,
            group,
            started: Timestamp::now(),
        })
    }

    pub(super) fn started(&self) -> Timestamp {
        self.started
    }

    /// Waits for its end. After `stop` it is asked to end, and killed when it has not within `grace`.
    pub(super) async fn end(
        mut self,
        stop: &CancellationToken,
        grace: Duration,
    ) -> io::Result<Ended> {
        let status = tokio::select! {
            status = self.child.wait() => status?,
            () = stop.cancelled() => self.terminate(grace).await?,
        };
        Ok(ended(status, self.started))
    }

    async fn terminate(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        signal(self.group.id, Signal::SIGTERM);
        if let Ok(status) = timeout(grace, self.child.wait()).await {
            return status;
        }
        signal(self.group.id, Signal::SIGKILL);
        self.child.wait().await
    }
}

/// Groups end by themselves too: that one is no more is fine.
pub(super) fn signal(group: Pid, signal: Signal) {
    if let Err(error) = killpg(group, signal) {
        debug!(%group, %error, "no such process group");
    }
}

fn ended(status: ExitStatus, started: Timestamp) -> Ended {
    Ended {
        // As container runtimes tell it.
        exit_code: status
            .code()
            .or(status.signal().map(|signal| 128 + signal))
            .unwrap_or(255),
        signal: status.signal(),
        start_error: None,
        started,
        finished: Timestamp::now(),
    }
}

fn open_log(path: &Path) -> io::Result<File> {
    let at = |e: io::Error| files::at(path, &e);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(at)?;
    }
    if fs::metadata(path).is_ok_and(|metadata| metadata.len() > LOG_LIMIT) {
        fs::rename(path, path.with_extension("log.1")).map_err(at)?;
    }
    let mut options = File::options();
    options.create(true).append(true).open(path).map_err(at)
}

/// Where the output of a container goes.
pub(crate) fn log_path(root: &Path, namespace: &str, pod: &str, container: &str) -> PathBuf {
    root.join("logs")
        .join(format!("{namespace}_{pod}"))
        .join(format!("{container}.log"))
}

/// The last `limit` bytes of a log, from the beginning of a line.
pub(crate) fn tail(path: &Path, limit: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let skipped = length.saturating_sub(limit);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(match text.split_once('\n') {
        Some((_, whole_lines)) if skipped > 0 => whole_lines.to_owned(),
        Some(_) | None => text.into_owned(),
    })
}
