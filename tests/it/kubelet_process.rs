//! Tests of `petiole kubelet` as a process that is killed.
#![allow(clippy::unwrap_used, reason = "a test")]

use crate::support::fake_plugin::eventually;
use petiole_kubelet::client::Client;
use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

/// A kubelet that ends with the test.
struct Kubelet(Child);

impl Kubelet {
    async fn start(root: &Path) -> Self {
        // Whoever runs the tests may ignore the signal.
        let child = Command::new("env")
            .args(["--default-signal=HUP", env!("CARGO_BIN_EXE_petiole")])
            .args(["kubelet", "--node-name", "n", "--restart-backoff", "50ms"])
            .args(["--root-dir".as_ref(), root.as_os_str()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let client = Client::new(root);
        eventually("the kubelet answers", async || {
            client.healthz().await.is_ok()
        })
        .await;
        Self(child)
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = i32::try_from(self.0.id()).unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).ok();
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.signal(nix::sys::signal::Signal::SIGTERM);
        self.0.wait().ok();
    }
}

/// Returns whether a process runs. A process whose end its new parent has not noticed is a zombie.
fn is_running(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}

fn running(pids: &Path) -> Vec<String> {
    let pids = fs::read_to_string(pids).unwrap_or_default();
    let pids = pids.lines().filter(|pid| is_running(pid));
    pids.map(str::to_owned).collect()
}

#[tokio::test]
async fn containers_of_a_killed_kubelet_are_ended_by_the_next_and_started_once() {
    let dir = tempfile::TempDir::with_prefix("pk").unwrap();
    let root = dir.path();
    let (polite, stubborn) = (root.join("polite"), root.join("stubborn"));
    // It outlives the shell that has started it.
    let left = root.join("left");
    fs::create_dir(root.join("manifests")).unwrap();
    let manifest = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:
  - {{name: polite, image: none, command: [sh, -c, 'echo $$$$ >>{}; exec sleep 1000']}}
  - {{name: stubborn, image: none, command: [sh, -c, 'trap \"\" TERM; echo $$$$ >>{}; while :; do sleep 0.1; done']}}
  - {{name: shell, image: none, command: [sh, -c, 'sh -c \"trap : TERM; echo \\$\\$ >>{}; while :; do sleep 0.1; done\" & wait']}}\n",
        polite.display(),
        stubborn.display(),
        left.display(),
    );
    fs::write(root.join("manifests/p.yaml"), manifest).unwrap();
    let kubelet = Kubelet::start(root).await;
    let each = || [&polite, &stubborn, &left].map(|pids| running(pids));
    let each_runs_once = async || each().iter().all(|pids| pids.len() == 1);
    eventually("all run", each_runs_once).await;
    let before = each().concat();

    kubelet.kill();
    assert_eq!(each().concat(), before);
    let own = std::process::id();
    // Another process has its number now, or its record was cut off. Neither is killed, and neither is an obstacle.
    let other = format!(r#"{{"pid":{own},"started":1,"boot":"x","graceSeconds":0}}"#);
    fs::write(root.join("containers/other.json"), other).unwrap();
    fs::write(root.join("containers/half.json"), "{\"pid\":").unwrap();

    let kubelet = Kubelet::start(root).await;
    eventually("the old ones are gone and new ones run", async || {
        !before.iter().any(|pid| is_running(pid)) && each_runs_once().await
    })
    .await;
    drop(kubelet);
    assert_eq!(each().concat(), Vec::<String>::new());
    assert_eq!(fs::read_dir(root.join("containers")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_kubelet_whose_terminal_is_closed_ends_its_containers() {
    let dir = tempfile::TempDir::with_prefix("pk").unwrap();
    let (root, pids) = (dir.path(), dir.path().join("pids"));
    fs::create_dir(root.join("manifests")).unwrap();
    let manifest = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  containers:
  - {{name: c, image: none, command: [sh, -c, 'echo $$$$ >>{}; exec sleep 1000']}}\n",
        pids.display(),
    );
    fs::write(root.join("manifests/p.yaml"), manifest).unwrap();
    let mut kubelet = Kubelet::start(root).await;
    eventually("it runs", async || running(&pids).len() == 1).await;
    kubelet.signal(nix::sys::signal::Signal::SIGHUP);
    assert!(kubelet.0.wait().unwrap().success());
    assert_eq!(running(&pids), Vec::<String>::new());
}
