//! Ends the containers of a kubelet that was killed. Each container's process is recorded in a file while it runs; the
//! next kubelet on the folder ends those that still run. The Go kubelet leaves that to its container runtime.
use super::signal::signal;
use nix::{sys::signal::Signal, unistd::Pid};
use petiole_base::files;
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

/// The interval between two checks of a process. It is not our child, so its end cannot be awaited.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// The time that a process gets to disappear after SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// The first process of a container. The fields distinguish it from every other process with the same pid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    pid: i32,
    /// The start time: field 22 of `/proc/<pid>/stat`, in clock ticks since the boot.
    started: u64,
    boot: String,
    grace_seconds: u64,
}

/// The folder of the records, and the time that a container gets to end.
#[derive(Debug, Clone)]
pub(super) struct RecordFolder {
    pub(super) folder: PathBuf,
    pub(super) grace: Duration,
}

impl RecordFolder {
    pub(super) fn new(root: &Path, grace: Duration) -> Self {
        Self {
            folder: root.join("containers"),
            grace,
        }
    }

    /// Writes the record of a process. Returns its file, which is to be removed once the container has ended.
    pub(super) fn write(&self, pid: Pid) -> io::Result<PathBuf> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let Stat { started, .. } = Stat::parse(&stat)
            .ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat: {stat:?}")))?;
        let record = Record {
            pid: pid.as_raw(),
            started,
            boot: boot()?,
            grace_seconds: self.grace.as_secs(),
        };
        let path = self.folder.join(format!("{pid}.json"));
        let json = serde_json::to_vec(&record)?;
        fs::create_dir_all(&self.folder).map_err(|e| files::at(&self.folder, &e))?;
        fs::write(&path, json).map_err(|e| files::at(&path, &e))?;
        Ok(path)
    }
}

/// Ends the containers of the last kubelet: with SIGTERM first, then with SIGKILL after the container's grace period or
/// `longest`, whichever is shorter.
pub(super) async fn end_all(root: &Path, longest: Duration) {
    let target = RecordFolder::new(root, longest);
    let records = read_all(&target.folder);
    let running: Vec<&Record> = records.iter().filter(|record| is_running(record)).collect();
    for record in &running {
        info!(
            pid = record.pid,
            "ending a container of a kubelet that was killed"
        );
        signal(Pid::from_raw(record.pid), Signal::SIGTERM);
    }
    let asked = Instant::now();
    for record in running {
        let grace = Duration::from_secs(record.grace_seconds).min(longest);
        has_ended(record, asked + grace).await;
        // The rest of its group, too, when the process itself has ended: a shell ends before what it started.
        signal(Pid::from_raw(record.pid), Signal::SIGKILL);
        if !has_ended(record, Instant::now() + KILL_TIMEOUT).await {
            warn!(
                pid = record.pid,
                "a container of a kubelet that was killed does not end after SIGKILL"
            );
        }
    }
    if let Err(error) = fs::remove_dir_all(&target.folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        warn!(folder = %target.folder.display(), %error, "cannot remove the records of containers");
    }
}

async fn has_ended(record: &Record, until: Instant) -> bool {
    while is_running(record) {
        if Instant::now() >= until {
            return false;
        }
        sleep(CHECK_INTERVAL).await;
    }
    true
}

/// Reads all records. A record is unreadable if its kubelet was killed while writing it; its container had just
/// started.
fn read_all(folder: &Path) -> Vec<Record> {
    let mut records = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let read = fs::read(entry.path()).map_err(|e| e.to_string());
        match read.and_then(|bytes| parse(&bytes).map_err(|e| e.to_string())) {
            Ok(record) => records.push(record),
            Err(error) => {
                warn!(path = %entry.path().display(), %error, "cannot read the record of a container");
            }
        }
    }
    records
}

fn parse(bytes: &[u8]) -> Result<Record, serde_json::Error> {
    let record: Record = serde_json::from_slice(bytes)?;
    // A signal to a process group of 1 or less would reach other processes.
    match record.pid {
        ..=1 => Err(serde::de::Error::custom(format!("pid {}", record.pid))),
        2.. => Ok(record),
    }
}

fn is_running(record: &Record) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", record.pid));
    let stat = stat.ok().and_then(|stat| Stat::parse(&stat));
    boot().is_ok_and(|boot| is_same(record, &boot, stat))
}

/// Returns whether the process is the recorded one and still runs. `stat` is the state and the start time of the
/// process that has the pid now. A zombie has ended.
fn is_same(record: &Record, boot: &str, stat: Option<Stat>) -> bool {
    let is_alive = |stat: Stat| stat.started == record.started && !['Z', 'X'].contains(&stat.state);
    record.boot == boot && stat.is_some_and(is_alive)
}

fn boot() -> io::Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(boot.trim().to_owned())
}

/// The fields of `/proc/<pid>/stat` that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    state: char,
    /// The start time, in clock ticks since the boot.
    started: u64,
}

impl Stat {
    /// Parses fields 3 and 22. Field 2 is the name of the program, which may contain any character.
    fn parse(text: &str) -> Option<Self> {
        let (_, after_name) = text.rsplit_once(')')?;
        let mut fields = after_name.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let started = fields.nth(18)?.parse().ok()?;
        Some(Self { state, started })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAT: &str = "42 (a) b) (c) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 2 3";

    #[test]
    fn only_the_process_that_was_written_down_is_the_same() {
        let record = Record {
            pid: 42,
            started: 98765,
            boot: "b".to_owned(),
            grace_seconds: 1,
        };
        let stat = Stat::parse(STAT);
        let with = |state, started| Some(Stat { state, started });
        assert_eq!(stat, with('S', 98765));
        for (boot, stat, want) in [
            ("b", stat, true),
            ("another boot", stat, false),
            ("b", with('S', 98766), false),
            ("b", with('Z', 98765), false),
            ("b", None, false),
        ] {
            assert_eq!(is_same(&record, boot, stat), want, "{boot} {stat:?}");
        }
    }

    #[test]
    fn a_record_is_of_one_process() {
        for pid in [-1, 0, 1] {
            let text = format!(r#"{{"pid":{pid},"started":1,"boot":"b","graceSeconds":1}}"#);
            assert!(parse(text.as_bytes()).is_err(), "{pid}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "\\PC{0,80}|[0-9 ()SZ-]{0,120}") {
            Stat::parse(&text);
            parse(text.as_bytes()).ok();
        }
    }
}
