//! Runs a container as a plain process, with its own process group, its own environment, and its output in a file.
use super::{expand::CommandLine, logs, orphans::RecordFolder, record::Ended, signal::signal};
use jiff::Timestamp;
use nix::{sys::signal::Signal, unistd::Pid};
use petiole_base::files;
use std::{
    fs, io,
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

/// The `PATH` that images usually set. A container's own `PATH` wins.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(super) struct Process {
    child: Child,
    group: Group,
    log: PathBuf,
    started: Timestamp,
}

/// A process group. Dropping it kills the processes that are left in it. A process that has left it (`setsid`) goes on.
struct Group {
    id: Pid,
    /// The record by which the next kubelet finds the process if this kubelet is killed.
    record: Option<PathBuf>,
}

impl Drop for Group {
    fn drop(&mut self) {
        signal(self.id, Signal::SIGKILL);
        if let Some(Err(error)) = self.record.as_ref().map(fs::remove_file) {
            debug!(group = %self.id, %error, "the record was removed before");
        }
    }
}

impl Process {
    pub(super) fn start(
        line: &CommandLine,
        hostname: &str,
        working_dir: Option<&str>,
        log: &Path,
        records: &RecordFolder,
    ) -> io::Result<Self> {
        let output = logs::open(log)?;
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
        // The folder of an image rarely exists here, and that is no reason not to start.
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
        // The container also runs without its record, for example on a full disk.
        match records.write(id) {
            Ok(record) => group.record = Some(record),
            Err(error) => {
                warn!(%id, %error, "cannot record the process of a container; if this kubelet is killed, nothing ends the process")
            }
        }
        Ok(Self {
            child,
            group,
            log: log.to_owned(),
            started: Timestamp::now(),
        })
    }

    pub(super) fn started(&self) -> Timestamp {
        self.started
    }

    /// Waits for the end of the process, and rotates its log. After `stop` it sends SIGTERM, then SIGKILL once `grace`
    /// has passed.
    pub(super) async fn end(
        mut self,
        stop: &CancellationToken,
        grace: Duration,
    ) -> io::Result<Ended> {
        let status = tokio::select! {
            status = self.child.wait() => status?,
            () = stop.cancelled() => self.terminate(grace).await?,
            never = logs::keep_rotated(&self.log) => match never {},
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

fn ended(status: ExitStatus, started: Timestamp) -> Ended {
    Ended {
        // Container runtimes report a signal as 128 plus its number.
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
