//! Tests the demo as its user starts it: the whole scenario, and services of other programs in it.
#![cfg(feature = "people")]
#![allow(
    clippy::disallowed_types,
    reason = "it watches another process, in real time"
)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::{
    fake_plugin::eventually,
    mdns_publisher::{Announced, Publisher},
};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A running demo, which ends with the test.
struct Demo {
    process: Child,
    lines: mpsc::Receiver<String>,
}

impl Demo {
    fn start(flag: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_petiole"));
        let mut process = command
            .args(["demo", flag])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Self { process, lines }
    }

    /// Waits for a line that contains `text`.
    fn prints(&self, text: &str) {
        let until = Instant::now() + PATIENCE;
        let mut printed = vec![];
        while let Ok(line) = self
            .lines
            .recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            if line.contains(text) {
                return;
            }
            printed.push(line);
        }
        panic!("no line with {text:?}:\n{}", printed.join("\n"));
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // SIGTERM lets it clean up as it would for its user.
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.process.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).ok();
        self.process.wait().ok();
    }
}

#[test]
fn a_demo_whose_reader_has_gone_ends_without_an_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_petiole"));
    let mut process = command
        .args(["demo", "--plain"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(process.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert!(first.starts_with("petiole demo"), "{first}");
    let ended = process.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.stderr.is_empty(), "{ended:?}");
}

#[test]
fn a_service_of_another_program_appears_in_the_demo_and_goes_again() {
    let name = format!("Neighbour {}", std::process::id());
    let publisher = Publisher::start(vec![Announced::new(&name, "_http._tcp")]);
    let demo = Demo::start("--plain");
    demo.prints(&format!("{name} (zeroconf-http-"));
    publisher.goodbye(&format!("{name}._http._tcp.local."));
    demo.prints("is unhealthy");
}

#[test]
fn the_story_is_reported_to_its_end_and_leaves_nothing() {
    let mut demo = Demo::start("--once");
    demo.prints("three services are three Instances");
    demo.prints("allocatable is 0");
    demo.prints("dropped its capacity entry");
    demo.prints("the demo has removed its files");
    assert!(demo.process.wait().unwrap().success());
    let prefix = format!("petiole-demo-{}-", demo.process.id());
    let entries = fs::read_dir(std::env::temp_dir()).unwrap();
    let mut names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.find(|name| name.starts_with(&prefix)), None);
}

/// Returns the ids of the processes of the demo's containers.
fn containers(folder: &Path) -> Vec<String> {
    let demos = fs::read_dir(folder).unwrap().flatten();
    let records = demos.flat_map(|demo| fs::read_dir(demo.path().join("containers")));
    let names = records
        .flatten()
        .flatten()
        .map(|record| record.path().file_stem().unwrap().to_owned());
    names.map(|name| name.into_string().unwrap()).collect()
}

#[tokio::test]
async fn a_demo_whose_terminal_is_closed_leaves_nothing() {
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("SKIPPED: needs script(1)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // `script` is the terminal. Whoever runs the tests may ignore the signal of its end.
    let demo = format!("{} demo", env!("CARGO_BIN_EXE_petiole"));
    let mut terminal = Command::new("env")
        .args(["--default-signal=HUP", "script", "--quiet", "--command"])
        .args([&demo, "/dev/null"])
        .env("TMPDIR", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Another test's demo adds its services to the three of this one.
    eventually("three brokers run", async || {
        containers(folder.path()).len() >= 3
    })
    .await;
    let brokers = containers(folder.path());
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    eventually("its folder is gone", async || {
        fs::read_dir(folder.path()).unwrap().next().is_none()
    })
    .await;
    let is_there = |pid: &&String| Path::new("/proc").join(pid).exists();
    assert_eq!(brokers.iter().find(is_there), None);
}
