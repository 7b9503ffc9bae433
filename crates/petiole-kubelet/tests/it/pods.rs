//! Tests of static Pods as processes, from the manifest to the end, with /bin/sh.
#![allow(clippy::unwrap_used, reason = "a test")]

use crate::support::fake_plugin::{Node, eventually};
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

fn container(name: &str, script: &str) -> String {
    format!("  - {{name: {name}, image: none, command: [sh, -c], args: ['{script}']}}\n")
}

#[tokio::test]
async fn init_containers_run_in_order_before_the_main_ones() {
    let node = Node::start().await;
    let log = node.root().join("order");
    let script = |word: &str| format!("echo {word} >> {}", log.display());
    let spec = format!(
        "  restartPolicy: Never\n  initContainers:\n{}{}  containers:\n{}",
        container("one", &script("one")),
        container("two", &script("two")),
        container("main", &script("main")),
    );
    node.manifest("p", &spec);
    node.until_pod("p", "/phase", json!("Succeeded")).await;
    assert_eq!(std::fs::read_to_string(log).unwrap(), "one\ntwo\nmain\n");
}

#[tokio::test]
async fn restart_policies_decide_what_happens_after_the_end() {
    let node = Node::start().await;
    let exits = |policy: &str, code: u8| {
        format!(
            "  restartPolicy: {policy}\n  containers:\n{}",
            container("c", &format!("exit {code}"))
        )
    };
    node.manifest("never-1", &exits("Never", 1));
    node.manifest("failure-0", &exits("OnFailure", 0));
    node.manifest("failure-1", &exits("OnFailure", 1));
    node.manifest("always-0", &exits("Always", 0));
    node.until_pod("never-1", "/phase", json!("Failed")).await;
    let ended = "/containerStatuses/0/state/terminated/exitCode";
    node.until_pod("never-1", ended, json!(1)).await;
    node.until_pod("failure-0", "/phase", json!("Succeeded"))
        .await;
    for name in ["failure-1", "always-0"] {
        node.until_pod(name, "/containerStatuses/0/restartCount", json!(2))
            .await;
        node.until_pod(name, "/phase", json!("Running")).await;
    }
}

#[tokio::test]
async fn an_init_container_that_fails_fails_a_pod_that_never_restarts() {
    let node = Node::start().await;
    let spec = format!(
        "  restartPolicy: Never\n  initContainers:\n{}  containers:\n{}",
        container("init", "exit 7"),
        container("main", "echo never"),
    );
    node.manifest("p", &spec);
    node.until_pod("p", "/phase", json!("Failed")).await;
    node.until_pod(
        "p",
        "/initContainerStatuses/0/state/terminated/exitCode",
        json!(7),
    )
    .await;
}

#[tokio::test]
async fn a_changed_manifest_is_another_pod_and_a_removed_one_ends() {
    let node = Node::start().await;
    let spec = |word: &str| {
        let script = format!("trap \"exit 0\" TERM; echo {word}; while :; do sleep 0.05; done");
        format!("  containers:\n{}", container("c", &script))
    };
    node.manifest("p", &spec("first"));
    node.until_log("p", "c", "first").await;
    let uid = node.pod("p").await.unwrap()["metadata"]["uid"].clone();
    node.manifest("p", &spec("second"));
    node.until_log("p", "c", "second").await;
    assert_ne!(node.pod("p").await.unwrap()["metadata"]["uid"], uid);
    let logs = node.root().join("logs/default_p-n");
    assert!(logs.exists());
    node.remove_manifest("p");
    eventually("the pod is gone", async || node.pod("p").await.is_none()).await;
    eventually("its logs are gone", async || !logs.exists()).await;
}

#[tokio::test]
async fn a_container_that_ignores_sigterm_is_killed_with_all_it_started() {
    let node = Node::start().await;
    let pids = node.root().join("pids");
    let script = format!(
        "trap \"\" TERM; sleep 1000 & echo $! > {0}; echo $$ >> {0}; echo up; while :; do sleep 1; done",
        pids.display()
    );
    let spec = format!(
        "  terminationGracePeriodSeconds: 0\n  containers:\n{}",
        container("c", &script)
    );
    node.manifest("p", &spec);
    node.until_log("p", "c", "up").await;
    node.remove_manifest("p");
    let pids = std::fs::read_to_string(pids).unwrap();
    eventually("both processes are gone", async || {
        // A process that has ended, and whose new parent has not noticed, is a zombie.
        pids.lines().all(|pid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
            status.map_or(true, |status| status.contains("State:\tZ"))
        })
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_run_says_why() {
    let node = Node::start().await;
    let one = |container: &str| format!("  restartPolicy: Never\n  containers:\n  - {container}\n");
    node.manifest("none", &one("{name: c, image: x}"));
    node.manifest(
        "from",
        &one("{name: c, image: x, command: [x], env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}"),
    );
    node.manifest(
        "missing",
        &one("{name: c, image: x, command: [/no/such/program]}"),
    );
    node.manifest("bad", "  containers: 5\n");
    let message = "/containerStatuses/0/state/waiting/message";
    let want =
        "command is missing: this kubelet pulls no images, so each container needs a command";
    node.until_pod("none", message, json!(want)).await;
    let want = "env A: valueFrom is not supported by this kubelet";
    node.until_pod("from", message, json!(want)).await;
    let ended = "/containerStatuses/0/state/terminated/reason";
    node.until_pod("missing", ended, json!("StartError")).await;
    assert!(node.pod("bad").await.is_none());
}

#[tokio::test]
async fn a_kubelet_that_stops_takes_its_containers_along_and_the_next_starts_them() {
    let mut node = Node::start().await;
    let spec = format!(
        "  containers:\n{}",
        container(
            "c",
            "trap \"echo bye; exit 0\" TERM; echo pid=$$; while :; do sleep 0.05; done"
        )
    );
    node.manifest("p", &spec);
    node.until_log("p", "c", "pid=").await;
    let log = node.root().join("logs/default_p-n/c.log");
    node.stop().await;
    assert!(std::fs::read_to_string(&log).unwrap().ends_with("bye\n"));
    node.restart_stopped().await;
    let starts = || {
        std::fs::read_to_string(&log)
            .unwrap()
            .matches("pid=")
            .count()
    };
    eventually("it runs again", async || starts() == 2).await;
}

#[tokio::test]
async fn a_second_kubelet_on_the_same_folder_is_refused_and_the_first_goes_on() {
    let node = Node::start().await;
    let script = container("c", "echo up; while :; do sleep 0.05; done");
    node.manifest("p", &format!("  containers:\n{script}"));
    node.until_log("p", "c", "up").await;
    let root = node.root().to_owned();
    let second = petiole_kubelet::Settings::new(&root, root.join("manifests"), "other");
    let second = petiole_kubelet::run(second, CancellationToken::new());
    let refused = timeout(Duration::from_secs(20), second).await.unwrap();
    assert_eq!(
        refused.unwrap_err().to_string(),
        format!(
            "root folder {}: another kubelet uses it; stop that kubelet, or choose another --root-dir",
            root.display()
        )
    );
    let phase = node.pod("p").await.unwrap()["status"]["phase"].clone();
    assert_eq!(phase, "Running");
}
