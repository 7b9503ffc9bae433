//! Runs `discover` in the agent's Pod on a node, by the caller's kubectl: with its rights, and with its network. An isolated
//! handler has a Pod of its own.
use crate::inspect::snapshot::Snapshot;
use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum as _};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::ListParams};
use petiole_cli::{
    connection::ConnectionFlags,
    discover::{END, HandlerFlags, text_of},
    signals::until_signal,
};
use petiole_cluster as cluster;
use petiole_model::model::names::ObjectKey;
use std::{collections::BTreeSet, process::Stdio};
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
};

/// Runs one discovery handler on a node of the cluster, and prints the devices that it finds there.
#[derive(Debug, Args)]
#[command(after_help = "\
`-o table` and `-o wide` print a line for each change until Ctrl-C, or for as long as --for says.
`-o json` and `-o yaml` print one list at the end.

Examples:
  echo 'kind: _ipp._tcp' | kubectl petiole discover zeroconf --details - --node node-1
  kubectl get configuration cams -o yaml | kubectl petiole discover onvif --details - --node node-1 --for 10s")]
pub struct Flags {
    #[command(flatten)]
    pub handler: HandlerFlags,
    /// Node in whose agent's Pod the handler runs, by `kubectl exec`
    #[arg(short, long, value_name = "NAME")]
    pub node: String,
    /// Namespace in which Petiole is installed [default: that of its Pods]
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub connection: ConnectionFlags,
}

/// Prints what the handler finds, until it ends or the user stops the command. It ends there with the standard input, which is
/// open as long as this process lives.
pub async fn run(flags: Flags) -> anyhow::Result<()> {
    let Flags {
        handler,
        node,
        namespace,
        connection,
    } = flags;
    handler.check()?;
    let mut text = text_of(&handler.details)?.into_bytes();
    text.push(END);
    let client = connection.client().await?;
    let (pod, container) = pod_on(&client, &node, namespace.as_deref(), &handler.handler).await?;
    let kubectl = Command::new("kubectl")
        .args(connection.arguments())
        .args(["exec", "--stdin", "--quiet", "--namespace", &pod.namespace])
        .args([&pod.name, "--container", container, "--", "/petiole"])
        .args(arguments(&handler, &node))
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("kubectl cannot be run")?;
    let ran = async {
        let ended = fed(kubectl, &text).await;
        ended.with_context(|| format!("the handler in Pod {pod} on node {node}"))
    };
    until_signal(|stop| async move { stop.run_until_cancelled(ran).await.unwrap_or(Ok(())) }).await
}

/// Gives kubectl the details, and waits for its end.
async fn fed(mut kubectl: Child, text: &[u8]) -> anyhow::Result<()> {
    let mut stdin = kubectl.stdin.take().context("kubectl has no stdin")?;
    // One that does not read has ended, and its status says so.
    stdin.write_all(text).await.ok();
    let ended = kubectl.wait().await?;
    if !ended.success() {
        bail!("kubectl exec ended with {ended}");
    }
    Ok(())
}

/// Returns the Pod of a handler on a node, and its container: one of the handler's own name where it is isolated.
async fn pod_on<'a>(
    client: &Client,
    node: &str,
    namespace: Option<&str>,
    handler: &'a str,
) -> anyhow::Result<(ObjectKey, &'a str)> {
    let pods: Api<Pod> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let own = ListParams::default().labels("app.kubernetes.io/component in (agent,discovery)");
    let pods = pods.list(&own).await;
    let pods = pods.map_err(|e| {
        let of = namespace.map_or("all namespaces".to_owned(), |of| format!("namespace {of}"));
        let cannot = cluster::cannot(&format!("list pods in {of}"), &e);
        anyhow!("{cannot}, so the agent of node {node} cannot be found")
    })?;
    let snapshot = Snapshot {
        pods: (pods.items.into_iter())
            .map(|pod| (cluster::key_of(&pod.metadata), pod))
            .collect(),
        ..Snapshot::default()
    };
    handler_of(&snapshot, node, handler)
}

/// The same, of these Pods.
fn handler_of<'a>(
    snapshot: &Snapshot,
    node: &str,
    handler: &'a str,
) -> anyhow::Result<(ObjectKey, &'a str)> {
    // Whoever may create a Pod may give it these labels, and would get the details, which may have passwords.
    let here = ["agent", "discovery"].into_iter();
    let here = here.flat_map(|component| snapshot.own_pods(component));
    let namespaces: BTreeSet<&str> = here.map(|(key, _)| &*key.namespace).collect();
    if namespaces.len() > 1 {
        let namespaces = Vec::from_iter(namespaces).join(" and ");
        bail!(
            "Pods in the namespaces {namespaces} say that they are Petiole's: name the one in which it is installed (--namespace)"
        );
    }
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
fn arguments(flags: &HandlerFlags, node: &str) -> Vec<String> {
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
    // The container has a filter and a format of its own.
    arguments.push(format!("--log={}", flags.log()));
    arguments.push("--log-format=text".to_owned());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(namespace: &str, component: &str, node: &str) -> (ObjectKey, Pod) {
        let pod = json!({
            "metadata": {"name": component, "namespace": namespace, "labels": {
                "app.kubernetes.io/part-of": "petiole", "app.kubernetes.io/component": component,
            }},
            "spec": {"nodeName": node, "containers": [{"name": "onvif"}]},
        });
        let key = ObjectKey::new(namespace, component);
        (key, serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn details_go_to_no_pod_that_somebody_else_has_labelled() {
        let mut snapshot = Snapshot {
            pods: [pod("petiole", "agent", "node-1")].into(),
            ..Snapshot::default()
        };
        let found = |snapshot: &Snapshot| {
            let found = handler_of(snapshot, "node-1", "onvif");
            found.map(|(pod, container)| format!("{pod} {container}"))
        };
        assert_eq!(found(&snapshot).unwrap(), "petiole/agent agent");
        snapshot
            .pods
            .extend([pod("petiole", "discovery", "node-1")]);
        assert_eq!(found(&snapshot).unwrap(), "petiole/discovery onvif");
        snapshot.pods.extend([pod("zz", "discovery", "node-1")]);
        let refused = found(&snapshot).unwrap_err().to_string();
        assert!(refused.contains("petiole and zz"), "{refused}");
        // Petiole has none on the node.
        snapshot.pods = [
            pod("petiole", "agent", "node-2"),
            pod("zz", "agent", "node-1"),
        ]
        .into();
        assert!(found(&snapshot).is_err());
    }
}
