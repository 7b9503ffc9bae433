//! Runs `petiole doctor`, which looks at an installation as a whole.
use super::{
    check::{agent, controller, definitions},
    colors,
    connection::ConnectionFlags,
    table::print,
};
use crate::{
    api::names,
    cluster::{
        self,
        parts::{DaemonSetPart, DeploymentPart},
    },
    inspect::{
        doctor::{Facts, Level, Right, checks},
        read,
    },
    model::{
        printable::printable,
        resource_name::{ResourceName, ResourcePrefixes},
        typed_names::NodeName,
    },
    tidy::{self, Progress},
};
use anyhow::{Context as _, bail};
use clap::Args;
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicy,
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
};
use kube::{
    Api, Client, Resource,
    api::{ListParams, PostParams},
};
use serde::de::DeserializeOwned;
use std::{collections::BTreeSet, fmt::Debug};

/// The rights that the subcommands need: verb, group, resource, and the subcommand.
const RIGHTS: &[(&str, &str, &str, &str)] = &[
    ("list", names::GROUP, "configurations", "devices"),
    ("list", names::GROUP, "instances", "devices"),
    ("list", "", "pods", "devices"),
    ("list", names::GROUP, "nodedevices", "why"),
    ("list", "", "nodes", "why"),
    ("list", "", "events", "why"),
    (
        "get",
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "check",
    ),
    ("patch", "", "nodes/status", "tidy"),
    ("delete", names::GROUP, "configurations", "uninstall"),
];

/// Prints one line for each check: `ok`, `warn` or `FAIL`, and what to do. The exit code is 1 if a check fails.
#[derive(Debug, Args)]
pub struct Flags {
    #[command(flatten)]
    connection: ConnectionFlags,
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    let client = flags.connection.client().await?;
    let facts = Box::pin(read_facts(&client)).await?;
    let checks = checks(&facts);
    let lines = checks.iter().map(|check| {
        let level = match check.level {
            Level::Ok => "ok  ",
            Level::Warn => "warn",
            Level::Fail => "FAIL",
        };
        let level = colors::for_stdout(level.to_owned());
        format!("{level}  {}\n", printable(&check.text))
    });
    print(&lines.collect::<String>())?;
    match checks
        .iter()
        .filter(|check| check.level == Level::Fail)
        .count()
    {
        0 => Ok(()),
        failed => bail!("{failed} of {} checks failed", checks.len()),
    }
}

async fn read_facts(client: &Client) -> anyhow::Result<Facts> {
    let mut unread = vec![];
    let mut facts = Facts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        checked: noted(definitions(client).await, &mut unread).unwrap_or_default(),
        ..Facts::default()
    };
    let is_defined = facts.checked.iter().all(Result::is_ok);
    if let Some(sets) = noted(
        installed::<DaemonSetPart>(client, "agent").await,
        &mut unread,
    ) {
        facts.daemon_sets = Some(sets.len());
        facts.checked.extend(sets.iter().map(|set| {
            let what = format!("DaemonSet {}", cluster::key_of(&set.metadata));
            agent(&what, Some(set))
        }));
    }
    let deployments = installed::<DeploymentPart>(client, "controller").await;
    if let Some(deployments) = noted(deployments, &mut unread) {
        facts.deployments = Some(deployments.len());
        facts.checked.extend(deployments.iter().map(|deployment| {
            let what = format!("Deployment {}", cluster::key_of(&deployment.metadata));
            controller(&what, Some(deployment))
        }));
    }
    facts.rights = noted(rights(client).await, &mut unread).unwrap_or_default();
    if facts.rights.is_empty() && facts.checked.is_empty() {
        bail!("nothing can be read: {}", unread.join("; "));
    }
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let policies = cluster::list_all(&policies).await.ok();
    facts.policies = policies.map(|policies| {
        let names = policies
            .into_iter()
            .filter_map(|policy| policy.metadata.name);
        names.collect::<BTreeSet<_>>()
    });
    // Objects of definitions that are missing or lack a field may not be readable.
    if is_defined {
        let everything = read::everything(client, client.default_namespace()).await;
        facts.snapshot = noted(everything, &mut unread).unwrap_or_default();
        let stale = stale(client, facts.snapshot.prefixes()).await;
        facts.stale = noted(stale.context("stale capacity"), &mut unread);
    }
    facts.snapshot.unread.extend(unread);
    Ok(facts)
}

/// Returns what was read. An error becomes a line of its own, and the rest is said all the same.
fn noted<T>(read: anyhow::Result<T>, unread: &mut Vec<String>) -> Option<T> {
    read.map_err(|e| unread.push(format!("{e:#}"))).ok()
}

/// Returns the chart's object of a component, in whatever namespace it is.
async fn installed<K>(client: &Client, component: &str) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let label = format!("app.kubernetes.io/component={component}");
    let api: Api<K> = Api::all(client.clone());
    match api.list(&ListParams::default().labels(&label)).await {
        Ok(list) => Ok(list.items.into_iter().filter(is_of_the_chart).collect()),
        Err(e) => bail!("cannot list {}: {}", K::plural(&()), cluster::reason(&e)),
    }
}

fn is_of_the_chart<K: Resource>(object: &K) -> bool {
    let labels = object.meta().labels.as_ref();
    let chart = labels.and_then(|labels| labels.get("helm.sh/chart"));
    chart.is_some_and(|chart| chart.starts_with("petiole-"))
}

/// Asks the API server what the caller may do.
async fn rights(client: &Client) -> anyhow::Result<Vec<Right>> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut rights = vec![];
    for (verb, group, resource, command) in RIGHTS {
        let (name, subresource) = match resource.split_once('/') {
            Some((name, subresource)) => (name, Some(subresource.to_owned())),
            None => (*resource, None),
        };
        let attributes = ResourceAttributes {
            verb: Some((*verb).to_owned()),
            group: Some((*group).to_owned()),
            resource: Some(name.to_owned()),
            subresource,
            ..ResourceAttributes::default()
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let answer = match reviews.create(&PostParams::default(), &review).await {
            Ok(answer) => answer,
            Err(e) => bail!("cannot ask for your rights: {}", cluster::reason(&e)),
        };
        rights.push(Right {
            verb,
            resource,
            command,
            is_allowed: answer.status.is_some_and(|status| status.allowed),
        });
    }
    Ok(rights)
}

/// Returns what `petiole tidy` would remove.
async fn stale(
    client: &Client,
    prefixes: ResourcePrefixes,
) -> anyhow::Result<Vec<(NodeName, ResourceName)>> {
    let settings = tidy::Settings {
        prefixes,
        namespaces: vec![],
        node: None,
        is_dry_run: true,
        waits: false,
    };
    let mut stale = vec![];
    let collect = |progress: Progress<'_>| {
        if let Progress::Entries(entries) = progress {
            let entries = entries.iter();
            stale.extend(entries.map(|(entry, _)| (entry.node.clone(), entry.resource.clone())));
        }
        Ok(())
    };
    tidy::tidy(&settings, client, collect).await?;
    Ok(stale)
}
