//! Runs `petiole check`, which checks an installation. `helm test` runs it.
use crate::{
    api::crds,
    cluster::{
        self,
        parts::{CustomResourceDefinitionPart, DaemonSetPart, DeploymentPart},
    },
    connection::{ConnectionFlags, namespace_or},
    duration::duration,
    yaml,
};
use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use kube::{Api, Client};
use serde_json::Value;
use std::{
    io::{Write as _, stdout},
    time::Duration,
};
use tokio::time::{Instant, sleep};

const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub struct Flags {
    /// Namespace of the installation [default: that of the context]
    #[arg(short, long, env = "PETIOLE_NAMESPACE", value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// DaemonSet of the agents
    #[arg(long, value_name = "NAME", default_value = "petiole-agent")]
    agent: String,
    /// DaemonSet of isolated discovery, where there is one
    #[arg(long, value_name = "NAME")]
    discovery: Option<String>,
    /// Deployment of the controller
    #[arg(long, value_name = "NAME", default_value = "petiole-controller")]
    controller: String,
    /// Time to wait for Pods that are not ready yet
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    connection: ConnectionFlags,
}

pub async fn run(flags: Flags) -> anyhow::Result<()> {
    let client = flags.connection.client().await?;
    let deadline = Instant::now() + flags.timeout;
    loop {
        let findings = look(&client, &flags).await?;
        let is_late = Instant::now() >= deadline;
        if is_late || findings.iter().all(Result::is_ok) {
            return report(&findings);
        }
        sleep(BETWEEN_LOOKS).await;
    }
}

/// A confirmation, or a problem with its solution.
pub type Finding = Result<String, String>;

async fn look(client: &Client, flags: &Flags) -> anyhow::Result<Vec<Finding>> {
    let mut findings = definitions(client).await?;
    let namespace = &namespace_or(flags.namespace.as_deref(), client);
    let agents = Api::<DaemonSetPart>::namespaced(client.clone(), namespace);
    for name in [Some(&flags.agent), flags.discovery.as_ref()] {
        let Some(name) = name else { continue };
        let set = agents.get_opt(name).await;
        let what = format!("DaemonSet {namespace}/{name}");
        findings.push(agent(&what, read(&what, set)?.as_ref()));
    }
    let controllers = Api::<DeploymentPart>::namespaced(client.clone(), namespace);
    let controllers = controllers.get_opt(&flags.controller).await;
    let what = format!("Deployment {namespace}/{}", flags.controller);
    findings.push(controller(&what, read(&what, controllers)?.as_ref()));
    Ok(findings)
}

/// Returns the object, or an error that says what cannot be read.
fn read<K>(what: &str, object: kube::Result<Option<K>>) -> anyhow::Result<Option<K>> {
    object.map_err(|e| anyhow!(cluster::cannot(&format!("get {what}"), &e)))
}

/// Compares the definitions on the cluster with ours.
pub async fn definitions(client: &Client) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let definitions = Api::<CustomResourceDefinitionPart>::all(client.clone());
    for (name, ours) in crds::ALL {
        let ours = yaml::from_str(ours).with_context(|| format!("our {name}"))?;
        let on_cluster = definitions.get_opt(name).await;
        let on_cluster = read(&format!("CustomResourceDefinition {name}"), on_cluster)?;
        findings.push(definition(
            name,
            &ours,
            on_cluster.map(|crd| crd.rest).as_ref(),
        ));
    }
    Ok(findings)
}

fn report(findings: &[Finding]) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    for finding in findings {
        match finding {
            Ok(well) => writeln!(out, "ok    {well}")?,
            Err(wrong) => writeln!(out, "FAIL  {wrong}")?,
        }
    }
    match findings.iter().filter(|f| f.is_err()).count() {
        0 => Ok(()),
        wrong => bail!("{wrong} of {} checks failed", findings.len()),
    }
}

fn absent(what: &str) -> String {
    format!("{what} is not there: is Petiole installed in another namespace (--namespace)?")
}

fn definition(name: &str, ours: &Value, on_cluster: Option<&Value>) -> Finding {
    let what = format!("CustomResourceDefinition {name}");
    let Some(on_cluster) = on_cluster else {
        let how = crds::how_to_mend(name);
        return Err(format!("{what} is not there: {how}"));
    };
    let missing = crds::missing(ours, on_cluster);
    if missing.is_empty() {
        Ok(format!("{what} has every field"))
    } else {
        let missing = missing.join(", ");
        Err(format!(
            "{what} lacks {missing}: {}",
            crds::how_to_mend(name)
        ))
    }
}

pub fn agent(what: &str, daemon_set: Option<&DaemonSetPart>) -> Finding {
    let Some(set) = daemon_set else {
        return Err(absent(what));
    };
    let Some(status) = &set.status else {
        return Err(format!("{what} has no status yet"));
    };
    let ready = status
        .number_ready
        .min(status.updated_number_scheduled.unwrap_or(0));
    let desired = status.desired_number_scheduled;
    if status.observed_generation != set.metadata.generation {
        Err(format!("{what} is being looked at"))
    } else if desired == 0 {
        Err(format!(
            "{what} fits no node: see its nodeSelector and affinity"
        ))
    } else if ready < desired {
        Err(format!(
            "{what} is ready on {ready} of {desired} nodes: see kubectl describe of it and of its Pods"
        ))
    } else {
        Ok(format!("{what} is ready on {ready} of {desired} nodes"))
    }
}

pub fn controller(what: &str, deployment: Option<&DeploymentPart>) -> Finding {
    let Some(deployment) = deployment else {
        return Err(absent(what));
    };
    let conditions = deployment
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    let is_available = conditions
        .clone()
        .any(|c| c.type_ == "Available" && c.status == "True");
    let observed = deployment
        .status
        .as_ref()
        .and_then(|s| s.observed_generation);
    let replicas = deployment.status.as_ref().and_then(|s| s.replicas);
    if is_available && observed == deployment.metadata.generation {
        // Kubernetes calls a Deployment available that is scaled to 0.
        return match replicas.unwrap_or_default() {
            0 => Err(format!("{what} has no replicas: kubectl scale")),
            _ => Ok(format!("{what} is available")),
        };
    }
    let why: Vec<_> = conditions.filter_map(|c| c.message.as_deref()).collect();
    Err(format!("{what} is not available: {}", why.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn daemon_set(ready: i32, updated: i32, desired: i32) -> DaemonSetPart {
        let set = json!({
            "metadata": {"generation": 2},
            "status": {
                "observedGeneration": 2, "currentNumberScheduled": desired, "numberMisscheduled": 0,
                "desiredNumberScheduled": desired, "updatedNumberScheduled": updated, "numberReady": ready,
            },
        });
        serde_json::from_value(set).unwrap()
    }

    #[test]
    fn agents_are_well_where_every_node_has_the_present_one() {
        assert_eq!(
            agent("a", Some(&daemon_set(2, 2, 2))),
            Ok("a is ready on 2 of 2 nodes".into())
        );
        for wrong in [
            daemon_set(1, 2, 2),
            daemon_set(2, 1, 2),
            daemon_set(0, 0, 0),
        ] {
            assert!(agent("a", Some(&wrong)).is_err(), "{wrong:?}");
        }
        let mut unseen = daemon_set(2, 2, 2);
        unseen.metadata.generation = Some(3);
        assert!(agent("a", Some(&unseen)).is_err());
        assert!(agent("a", None).is_err());
    }

    #[test]
    fn a_controller_is_well_where_it_is_available() {
        let scaled = |status: &str, replicas: i32| -> DeploymentPart {
            let condition = json!({"type": "Available", "status": status, "message": "why"});
            let status = json!({"conditions": [condition], "replicas": replicas});
            serde_json::from_value(json!({"status": status})).unwrap()
        };
        let with = |status: &str| scaled(status, 2);
        assert_eq!(
            controller("c", Some(&scaled("True", 0))),
            Err("c has no replicas: kubectl scale".into())
        );
        assert!(controller("c", Some(&with("True"))).is_ok());
        assert_eq!(
            controller("c", Some(&with("False"))),
            Err("c is not available: why".into())
        );
        assert!(controller("c", None).is_err());
    }

    #[test]
    fn a_definition_that_lacks_something_says_what_and_how_to_mend_it() {
        let [(_, ours), ..] = crds::ALL;
        let ours: Value = yaml::from_str(ours).unwrap();
        let mut old = ours.clone();
        old["spec"]["versions"][0]["subresources"] = Value::Null;
        let wrong = definition("x", &ours, Some(&old)).unwrap_err();
        assert!(
            wrong.contains("lacks subresource status: helm show crds"),
            "{wrong}"
        );
        assert!(definition("x", &ours, Some(&ours)).is_ok());
        assert!(definition("x", &ours, None).is_err());
    }
}
