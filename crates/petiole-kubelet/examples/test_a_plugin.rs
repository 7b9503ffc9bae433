//! Runs a device plugin against a kubelet in a temporary folder, and prints the environment that a Pod with its device gets.
//! It needs no root and no cluster. `cargo test` runs it too.
#![allow(clippy::print_stdout, reason = "the environment is what it is for")]
use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use petiole_kubelet::{Settings, client::Client};
use std::{fs, path::Path, time::Duration};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

#[path = "../../petiole-kubelet-api/examples/plugin.rs"]
mod plugin;

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  restartPolicy: Never
  containers:
    - name: shell
      image: none
      command: [env]
      resources: {limits: {example.com/lamp: 1}}
";

/// Returns what the Pod prints: its environment.
async fn environment(root: &Path) -> anyhow::Result<String> {
    let settings = Settings::new(root, root.join("manifests"), "node");
    let stop = CancellationToken::new();
    let mut kubelet = JoinSet::new();
    kubelet.spawn(petiole_kubelet::start(settings, stop.clone())?);
    let folder = root.join("device-plugins");
    let mut plugins = JoinSet::new();
    plugins.spawn(async move { plugin::run(&folder).await });

    let client = Client::new(root);
    until(async || {
        client
            .plugins()
            .await
            .is_ok_and(|all| all.iter().any(|p| p.healthy == 1))
    })
    .await?;
    fs::write(root.join("manifests/reader.yaml"), POD)?;
    let has_ended = |pod: &Pod| {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    until(async || {
        client
            .pods()
            .await
            .is_ok_and(|pods| pods.items.iter().any(has_ended))
    })
    .await?;
    let printed = client.logs("default", "reader-node", "shell").await?;

    stop.cancel();
    kubelet.join_next().await.context("no kubelet")???;
    Ok(printed)
}

async fn until(holds: impl AsyncFn() -> bool) -> anyhow::Result<()> {
    let waited = async {
        while !holds().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(30), waited)
        .await
        .context("it has not happened in 30 s")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    print!("{}", environment(folder.path()).await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pod_gets_the_environment_of_its_device() {
        let folder = tempfile::tempdir().unwrap();
        let printed = environment(folder.path()).await.unwrap();
        assert!(printed.lines().any(|line| line == "LAMP=a"), "{printed}");
    }
}
