//! Containers of a kubelet that was killed: each one's process is written down while it runs, and the next kubelet on
//! the folder ends those that are still the same. The kubelet proper leaves that to its container runtime.
use super::process::signal;
use crate::files;
use nix::{sys::signal::Signal, unistd::Pid};
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

/// How often a process that is none of our children is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long a process that was killed may take to be gone.
const KILLED: Duration = Duration::from_secs(2);

/// A container's first process, told from all that have had, or will have, its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    pid: i32,
    /// Field 22 of its `stat`: clock ticks since the boot.
    started: u64,
    boot: String,
    grace_seconds: u64,
}

/// Where records are, and how long a container gets to end.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) folder: PathBuf,
    pub(super) grace: Duration,
}

impl Place {
    pub(super) fn new(root: &Path, grace: Duration) -> Self {
        Self {
            folder: root.join("containers"),
            grace,
        }
    }

    /// Returns the file, to be removed once the container has ended.
    pub(super) fn write(&self, pid: Pid) -> io::Result<PathBuf> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let (_, started) = stat_of(&stat)
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

/// Ends what the last kubelet left: asked first, and killed when it has not ended within its grace or `longest`.
pub(super) async fn end_all(root: &Path, longest: Duration) {
    let place = Place::new(root, longest);
    let records = read_all(&place.folder);
    let running: Vec<&Record> = records.iter().filter(|record| is_running(record)).collect();
    for record in &running {
        info!(
            pid = record.pid,
            "container of a kubelet that was killed: ended"
        );
        signal(Pid::from_raw(record.pid), Signal::SIGTERM);
    }
    let asked = Instant::now();
    for record in running {
        let grace = Duration::from_secs(record.grace_seconds).min(longest);
        if !has_ended(record, asked + grace).await {
            signal(Pid::from_raw(record.pid), Signal::SIGKILL);
            if !has_ended(record, Instant::now() + KILLED).await {
                warn!(
                    pid = record.pid,
                    "container of a kubelet that was killed: it does not end"
                );
            }
        }
    }
    if let Err(error) = fs::remove_dir_all(&place.folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        warn!(folder = %place.folder.display(), %error, "cannot remove the records of containers");
    }
}

async fn has_ended(record: &Record, until: Instant) -> bool {
    while is_running(record) {
        if Instant::now() >= until {
            return false;
        }
        sleep(LOOK).await;
    }
    true
}

/// What cannot be read is of a kubelet that was killed while it wrote: its container had just begun.
fn read_all(folder: &Path) -> Vec<Record> {
    let mut records = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let read = fs::read(entry.path()).map_err(|e| e.to_string());
        match read.and_then(|bytes| parse(&bytes).map_err(|e| e.to_string())) {
            Ok(record) => records.push(record),
            Err(error) => {
                warn!(path = %entry.path().display(), %error, "record of a container left out");
            }
        }
    }
    records
}

fn parse(bytes: &[u8]) -> Result<Record, serde_json::Error> {
    let record: Record = serde_json::from_slice(bytes)?;
    // 1 and less are no process groups of ours: a signal to them goes to everyone.
    match record.pid {
        ..=1 => Err(serde::de::Error::custom(format!("pid {}", record.pid))),
        2.. => Ok(record),
    }
}

fn is_running(record: &Record) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", record.pid));
    let stat = stat.ok().and_then(|stat| stat_of(&stat));
    boot().is_ok_and(|boot| is_same(record, &boot, stat))
}

/// `stat`: the state of the process that has its number now, and when that was started. A zombie has ended.
fn is_same(record: &Record, boot: &str, stat: Option<(char, u64)>) -> bool {
    let is_alive = |(state, started)| started == record.started && !['Z', 'X'].contains(&state);
    record.boot == boot && stat.is_some_and(is_alive)
}

fn boot() -> io::Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(boot.trim().to_owned())
}

/// Fields 3 and 22. The second one is the program's name, which may have anything in it.
fn stat_of(text: &str) -> Option<(char, u64)> {
    let (_, after_name) = text.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
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
        let stat = stat_of(STAT);
        assert_eq!(stat, Some(('S', 98765)));
        for (boot, stat, want) in [
            ("b", stat, true),
            ("another boot", stat, false),
            ("b", Some(('S', 98766)), false),
            ("b", Some(('Z', 98765)), false),
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
            stat_of(&text);
            parse(text.as_bytes()).ok();
        }
    }
}
