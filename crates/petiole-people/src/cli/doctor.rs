//! Runs `petiole doctor`, which looks at an installation as a whole.
use crate::inspect::{
    doctor::{Facts, Granted, Level, Right, Rollout, checks},
    read,
};
use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicy,
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
};
use kube::{
    Api, Client, Resource,
    api::{ListParams, PostParams},
};
use petiole_cli::{
    check::{Finding, agent, controller, definitions},
    colors,
    connection::ConnectionFlags,
    removal::{self, Progress},
    table::print,
};
use petiole_cluster::{
    self as cluster,
    parts::{DaemonSetPart, DeploymentPart},
};
use petiole_model::model::{
    printable::printable,
    resource_name::{ResourceName, ResourcePrefixes},
    typed_names::NodeName,
};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

#[derive(Clone, Copy)]
enum Scope {
    Cluster,
    AllNamespaces,
    /// All namespaces; the right in one is of use, too.
    Namespaces,
    /// The namespace of the agents.
    Agents,
}

/// The rights that subcommands need: the subcommand, the verb, the resource with its group or its subresource, and where.
const RIGHTS: &[(&str, &str, &str, Scope)] = &[
    (
        "devices",
        "list",
        "configurations.akri.sh",
        Scope::Namespaces,
    ),
    ("devices", "list", "instances.akri.sh", Scope::Namespaces),
    ("devices", "list", "pods", Scope::Namespaces),
    ("top", "watch", "instances.akri.sh", Scope::Namespaces),
    ("why", "get", "pods", Scope::Namespaces),
    ("why", "list", "nodedevices.akri.sh", Scope::Cluster),
    ("why", "list", "nodes", Scope::Cluster),
    ("why", "list", "events", Scope::Namespaces),
    (
        "check",
        "get",
        "customresourcedefinitions.apiextensions.k8s.io",
        Scope::Cluster,
    ),
    ("check", "get", "daemonsets.apps", Scope::Agents),
    ("check", "get", "deployments.apps", Scope::Agents),
    ("doctor", "list", "daemonsets.apps", Scope::AllNamespaces),
    ("doctor", "list", "deployments.apps", Scope::AllNamespaces),
    (
        "doctor",
        "list",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        Scope::Cluster,
    ),
    ("discover --node", "get", "pods", Scope::Agents),
    ("discover --node", "create", "pods/exec", Scope::Agents),
    ("tidy", "patch", "nodes/status", Scope::Cluster),
    (
        "uninstall",
        "delete",
        "configurations.akri.sh",
        Scope::AllNamespaces,
    ),
];

/// Prints one line for each check, the worst first: `FAIL`, `warn` or `ok`, and what to do. The exit code is 1 if a line is not
/// `ok`.
#[derive(Debug, Args)]
pub struct Flags {
    #[command(flatten)]
    connection: ConnectionFlags,
}

pub(crate) async fn run(flags: Flags) -> anyhow::Result<()> {
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
    let printed = print(&lines.collect::<String>());
    let wrong = checks.iter().filter(|check| check.level != Level::Ok);
    match wrong.count() {
        0 => printed,
        wrong if wrong == checks.len() => bail!("nothing could be checked"),
        wrong => bail!("{wrong} of {} checks found something", checks.len()),
    }
}

async fn read_facts(client: &Client) -> anyhow::Result<Facts> {
    let mut unread = vec![];
    let mut facts = Facts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Facts::default()
    };
    let checked = definitions(client).await;
    let checked = checked.map_err(|e| anyhow!("{e:#}, so whether it has every field is not known"));
    facts.checked = noted(checked, &mut unread).unwrap_or_default();
    let is_defined = facts.checked.iter().all(Result::is_ok);
    let mut home = None;
    if let Some(sets) = noted(
        installed::<DaemonSetPart>(client, "agent").await,
        &mut unread,
    ) {
        home = sets.iter().find_map(|set| set.metadata.namespace.clone());
        facts.daemon_sets = Some(sets.len());
        facts.rollout = rollout(&sets);
        facts.checked.extend(sets.iter().map(on_nodes));
    }
    let isolated = installed::<DaemonSetPart>(client, "discovery").await;
    let isolated = noted(isolated, &mut unread).unwrap_or_default();
    facts.checked.extend(isolated.iter().map(on_nodes));
    let deployments = installed::<DeploymentPart>(client, "controller").await;
    if let Some(deployments) = noted(deployments, &mut unread) {
        facts.deployments = Some(deployments.len());
        facts.checked.extend(deployments.iter().map(|deployment| {
            let what = format!("Deployment {}", cluster::key_of(&deployment.metadata));
            controller(&what, Some(deployment))
        }));
    }
    facts.rights = noted(rights(client, home.as_deref()).await, &mut unread).unwrap_or_default();
    if facts.rights.is_empty() && facts.checked.is_empty() {
        bail!("nothing can be read: {}", unread.join("; "));
    }
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let policies = cluster::list_all(&policies).await.ok();
    let names = policies.map(|all| all.into_iter().filter_map(|policy| policy.metadata.name));
    facts.policies = names.map(Iterator::collect);
    // Objects of definitions that are missing or lack a field may not be readable.
    if is_defined {
        let everything = read::everything(client, client.default_namespace()).await;
        facts.is_unread = everything.is_err();
        facts.snapshot = noted(everything, &mut unread).unwrap_or_default();
        let stale = if facts.snapshot.has_assumed_prefixes() {
            Err(anyhow!(
                "no Pod of an agent, which has the prefixes of resources, can be read"
            ))
        } else {
            stale(client, facts.snapshot.prefixes()).await
        };
        facts.stale = noted(
            stale.context("whether there are capacity entries without a device is not known"),
            &mut unread,
        );
    }
    facts.snapshot.unread.extend(unread);
    Ok(facts)
}

/// Looks at a DaemonSet: of the agents, or of isolated discovery.
fn on_nodes(set: &DaemonSetPart) -> Finding {
    let what = format!("DaemonSet {}", cluster::key_of(&set.metadata));
    agent(&what, Some(set))
}

fn rollout(sets: &[DaemonSetPart]) -> Rollout {
    let statuses = sets.iter().filter_map(|set| set.status.as_ref());
    statuses.fold(Rollout::default(), |sum, status| Rollout {
        desired: sum.desired + status.desired_number_scheduled,
        updated: sum.updated + status.updated_number_scheduled.unwrap_or_default(),
    })
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
        Err(e) => {
            let list = format!("list {}.apps in all namespaces", K::plural(&()));
            bail!(
                "{}, so nothing is known of {}",
                cluster::cannot(&list, &e),
                parts(component)
            )
        }
    }
}

/// Returns the words for the Pods of a component.
fn parts(component: &str) -> String {
    match component {
        "discovery" => "isolated discovery".to_owned(),
        component => format!("the {component}s"),
    }
}

fn is_of_the_chart<K: Resource>(object: &K) -> bool {
    let labels = object.meta().labels.as_ref();
    let chart = labels.and_then(|labels| labels.get("helm.sh/chart"));
    chart.is_some_and(|chart| chart.starts_with("petiole-"))
}

/// Asks the API server what the caller may do. `home` is the namespace of the agents, if it is known.
async fn rights(client: &Client, home: Option<&str>) -> anyhow::Result<Vec<Right>> {
    let own = client.default_namespace();
    let mut rights = vec![];
    for (command, verb, resource, scope) in RIGHTS {
        let (namespace, place) = match scope {
            Scope::Cluster => (None, String::new()),
            Scope::AllNamespaces | Scope::Namespaces => (None, " in all namespaces".to_owned()),
            Scope::Agents => {
                // Without a namespace to ask about, nothing is said.
                let Some(home) = home else { continue };
                (Some(home), format!(" in the namespace {home}"))
            }
        };
        let may = |namespace| is_allowed(client, verb, resource, namespace);
        let granted = if may(namespace).await? {
            Granted::Whole
        } else if let Scope::Namespaces = scope
            && may(Some(own)).await?
        {
            Granted::In(own.to_owned())
        } else {
            Granted::Nothing
        };
        rights.push(Right {
            verb,
            resource,
            place,
            command,
            granted,
        });
    }
    Ok(rights)
}

/// Asks about one right, in one namespace or in all.
async fn is_allowed(
    client: &Client,
    verb: &str,
    resource: &str,
    namespace: Option<&str>,
) -> anyhow::Result<bool> {
    let (name, group) = resource.split_once('.').unwrap_or((resource, ""));
    let (name, subresource) = match name.split_once('/') {
        Some((name, subresource)) => (name, Some(subresource.to_owned())),
        None => (name, None),
    };
    let attributes = ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(name.to_owned()),
        subresource,
        namespace: namespace.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    match reviews.create(&PostParams::default(), &review).await {
        Ok(answer) => Ok(answer.status.is_some_and(|status| status.allowed)),
        Err(e) => bail!("cannot ask for your rights: {}", cluster::reason(&e)),
    }
}

/// Returns what `petiole tidy` would remove.
async fn stale(
    client: &Client,
    prefixes: ResourcePrefixes,
) -> anyhow::Result<Vec<(NodeName, ResourceName)>> {
    let settings = removal::Settings {
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
    removal::tidy(&settings, client, collect).await?;
    Ok(stale)
}
