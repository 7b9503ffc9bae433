//! Runs `petiole discover` in the agent's Pod on a node, by the caller's kubectl: with its rights, and with its network. An
//! isolated handler has a Pod of its own.
use super::{flags::Flags, input};
use crate::{cluster, model::names::ObjectKey};
use anyhow::{Context as _, anyhow, bail};
use clap::ValueEnum as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::ListParams};
use petiole_people::inspect::snapshot::Snapshot;
use std::process::Stdio;
use tokio::{io::AsyncWriteExt as _, process::Command};

/// Prints what the handler finds on `node`, until it ends or the user stops the command. It ends there with the standard
/// input, which is open as long as this process lives.
pub(super) async fn run(flags: &Flags, node: &str) -> anyhow::Result<()> {
    let details = input::text_of(&flags.details)?;
    let client = flags.connection.client().await?;
    let (pod, container) = pod_on(&client, node, &flags.handler).await?;
    let mut kubectl = Command::new("kubectl")
        .args(flags.connection.arguments())
        .args(["exec", "--stdin", "--quiet", "--namespace", &pod.namespace])
        .args([&pod.name, "--container", container, "--", "/petiole"])
        .args(arguments(flags, node))
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("kubectl cannot be run")?;
    let mut stdin = kubectl.stdin.take().context("kubectl has no stdin")?;
    stdin.write_all(details.as_bytes()).await?;
    stdin.write_all(&[input::END]).await?;
    stdin.flush().await?;
    let ended = tokio::select! {
        ended = kubectl.wait() => ended?,
        stopped = tokio::signal::ctrl_c() => return Ok(stopped?),
    };
    if !ended.success() {
        bail!("the handler in Pod {pod} on node {node}: kubectl exec ended with {ended}");
    }
    Ok(())
}

/// Returns the Pod of a handler on a node, and its container: one of the handler's own name where it is isolated.
async fn pod_on<'a>(
    client: &Client,
    node: &str,
    handler: &'a str,
) -> anyhow::Result<(ObjectKey, &'a str)> {
    let pods: Api<Pod> = Api::all(client.clone());
    let on_node = ListParams::default()
        .labels("app.kubernetes.io/component in (agent,discovery)")
        .fields(&format!("spec.nodeName={node}"));
    let pods = pods.list(&on_node).await;
    let pods = pods.map_err(|e| {
        let cannot = cluster::cannot("list pods in all namespaces", &e);
        anyhow!("{cannot}, so the agent of node {node} cannot be found")
    })?;
    let snapshot = Snapshot {
        pods: (pods.items.into_iter())
            .map(|pod| (cluster::key_of(&pod.metadata), pod))
            .collect(),
        ..Snapshot::default()
    };
    let has_handler = |pod: &Pod| {
        let spec = pod.spec.as_ref();
        spec.is_some_and(|spec| spec.containers.iter().any(|c| c.name == handler))
    };
    if let Some((key, _)) = (snapshot.pod_on(node, "discovery")).filter(|(_, pod)| has_handler(pod))
    {
        return Ok((key.clone(), handler));
    }
    let agent = snapshot.agent_on(node).map(|(key, _)| key.clone());
    let agent = agent.with_context(|| {
        format!("no agent runs on node {node}: `kubectl petiole doctor` says why")
    })?;
    Ok((agent, "agent"))
}

/// Returns the arguments for the program in the Pod.
fn arguments(flags: &Flags, node: &str) -> Vec<String> {
    let output = flags.output.to_possible_value();
    let output = output.map_or_else(String::new, |value| value.get_name().to_owned());
    let mut arguments = vec![
        "discover".to_owned(),
        flags.handler.clone(),
        "--details=-".to_owned(),
        format!("--node-name={node}"),
        format!("--output={output}"),
    ];
    arguments.extend(
        flags
            .look
            .map(|look| format!("--for={}ms", look.as_millis())),
    );
    arguments.extend(
        flags
            .configuration
            .iter()
            .map(|name| format!("--configuration={name}")),
    );
    arguments.extend(flags.mark.iter().map(|mark| format!("--mark={mark}")));
    arguments.extend(flags.verbose.then(|| "--verbose".to_owned()));
    arguments
}
