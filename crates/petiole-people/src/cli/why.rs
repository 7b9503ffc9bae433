//! Runs `petiole why`, which explains what is missing to a Pod, an Instance or a Configuration.
use super::devices::incomplete;
use crate::inspect::{
    read,
    snapshot::Snapshot,
    why::{Target, evicted, explain},
    workloads::{self, Workload, WorkloadKind},
};
use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use petiole_cli::{
    connection::{ConnectionFlags, NamespaceFlags},
    table::print,
};
use petiole_model::model::names::{Key, ObjectKey};

/// Says in a few sentences what a Pod, an Instance or a Configuration lacks, and which command to run next.
///
/// Of a Deployment, a ReplicaSet, a StatefulSet, a DaemonSet or a Job it explains a Pod: the first that is not ready.
#[derive(Debug, Args)]
pub struct Flags {
    /// Object: `pod/NAME`, `deployment/NAME`, `instance/NAME`, `configuration/NAME`, or a name alone
    #[arg(value_name = "[KIND/]NAME")]
    object: String,
    #[command(flatten)]
    namespace: NamespaceFlags,
    /// Output format
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    #[command(flatten)]
    connection: ConnectionFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// A kind in the forms that kubectl takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pod,
    Instance,
    Configuration,
    Workload(WorkloadKind),
}

impl Kind {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let kind = text.to_lowercase();
        let kind = kind.strip_suffix(".akri.sh").unwrap_or(&kind);
        match kind {
            "po" | "pod" | "pods" => Ok(Self::Pod),
            "akrii" | "instance" | "instances" => Ok(Self::Instance),
            "akric" | "configuration" | "configurations" => Ok(Self::Configuration),
            workload => WorkloadKind::parse(workload).map(Self::Workload).with_context(|| {
                format!("{text:?} is no kind: write pod, instance, configuration, deployment, replicaset, statefulset, daemonset or job")
            }),
        }
    }

    fn is_of(self, target: &Target) -> bool {
        self == match target {
            Target::Pod(_) => Self::Pod,
            Target::Instance(_) => Self::Instance,
            Target::Configuration(_) => Self::Configuration,
            Target::Workload(workload) => Self::Workload(workload.kind),
        }
    }

    fn target(self, key: ObjectKey) -> Target {
        match self {
            Self::Pod => Target::Pod(key),
            Self::Instance => Target::Instance(key.typed()),
            Self::Configuration => Target::Configuration(key.typed()),
            Self::Workload(kind) => Target::Workload(Workload { kind, key }),
        }
    }
}

pub(crate) async fn run(flags: Flags) -> anyhow::Result<()> {
    let (kind, name) = match flags.object.split_once('/') {
        Some((kind, name)) => (Some(Kind::parse(kind)?), name),
        None => (None, flags.object.as_str()),
    };
    let client = flags.connection.client().await?;
    let own = client.default_namespace().to_owned();
    let wanted = flags.namespace.namespace(&client);
    let namespace = wanted.as_deref().unwrap_or(&own);
    let mut snapshot = Box::pin(read::everything(&client, namespace)).await?;
    let key = ObjectKey::new(namespace, name);
    // A Pod that asks for no device is not among those that were read.
    if kind.is_none_or(|kind| kind == Kind::Pod) {
        match read::pod(&client, &key).await {
            Ok(pod) => snapshot.pods.extend(pod.map(|pod| (key.clone(), pod))),
            // Who may list Pods knows those that ask for devices.
            Err(_) if snapshot.pods.contains_key(&key) => {}
            Err(unread)
                if kind.is_some() && found(&snapshot, kind, wanted.as_deref(), name).is_empty() =>
            {
                bail!(unread)
            }
            Err(unread) => {
                snapshot.unread.push(unread);
                snapshot.hidden.own_pods = true;
            }
        }
    }
    if snapshot.hidden.own_pods
        && let Some(Kind::Workload(kind)) = kind
    {
        incomplete(&snapshot)?;
        let kind = kind.as_str();
        bail!("{kind} {key} is explained by its Pods, which cannot be read");
    }
    let targets = found(&snapshot, kind, wanted.as_deref(), name);
    let target = match targets.as_slice() {
        [target] => target.clone(),
        [] => match kind {
            Some(kind) => kind.target(key),
            None if evicted(&snapshot, &key) => Target::Pod(key),
            None => {
                incomplete(&snapshot)?;
                let others = found(&snapshot, None, None, name);
                bail!(nowhere(&snapshot, wanted.as_deref(), name, &others))
            }
        },
        several => bail!(
            "{} objects have that name: write its kind, such as pod/{name} or configuration/{name}, and the namespace (-n)",
            several.len()
        ),
    };
    read_warnings(&client, namespace, &target, &mut snapshot).await;
    let explanation = explain(&snapshot, &target, Timestamp::now());
    let text = match flags.output {
        Output::Text => explanation.text(),
        Output::Json => serde_json::to_string_pretty(&explanation)? + "\n",
    };
    print(&text)?;
    incomplete(&snapshot)
}

/// Adds the warnings about an object of another namespace than the one that was read.
async fn read_warnings(
    client: &kube::Client,
    read: &str,
    target: &Target,
    snapshot: &mut Snapshot,
) {
    let namespace = namespace_of(target);
    if namespace != read {
        read::warnings(client, namespace, snapshot).await;
    }
}

/// Returns the error for a name that no object has. An object that cannot be read may have it.
/// One of another namespace is named.
fn nowhere(snapshot: &Snapshot, namespace: Option<&str>, name: &str, others: &[Target]) -> String {
    let (object, is_partial, advice) = match namespace {
        Some(namespace) => (
            format!("{namespace}/{name}"),
            snapshot.hidden.own_pods,
            match others.first().map(namespace_of) {
                Some(other) => format!(": there is one in the namespace {other} (-n {other})"),
                None => ": name another namespace (-n), or look at all (-A)".to_owned(),
            },
        ),
        None => (
            format!("{name} in any namespace"),
            !snapshot.unread.is_empty(),
            String::new(),
        ),
    };
    let readable = if is_partial { " that you may read" } else { "" };
    format!(
        "there is no Pod, Instance or Configuration {object}{readable}, and no Pod of a workload of that name asks for a device{advice}"
    )
}

fn namespace_of(target: &Target) -> &str {
    match target {
        Target::Pod(key) => &key.namespace,
        Target::Instance(key) => &key.namespace,
        Target::Configuration(key) => &key.namespace,
        Target::Workload(workload) => &workload.key.namespace,
    }
}

/// Returns the objects of that name, or the workloads if there are none. Without a namespace it can be in any.
fn found(
    snapshot: &Snapshot,
    kind: Option<Kind>,
    namespace: Option<&str>,
    name: &str,
) -> Vec<Target> {
    let pods = matching(snapshot.pods.keys(), namespace, name).map(Target::Pod);
    let instances = matching(snapshot.instances.keys(), namespace, name).map(Target::Instance);
    let configurations =
        matching(snapshot.configurations.keys(), namespace, name).map(Target::Configuration);
    let is_wanted = |target: &Target| kind.is_none_or(|kind| kind.is_of(target));
    let targets = pods.chain(instances).chain(configurations);
    let targets: Vec<Target> = targets.filter(is_wanted).collect();
    if !targets.is_empty() {
        return targets;
    }
    let workloads = workloads::named(snapshot, namespace, name).into_iter();
    workloads.map(Target::Workload).filter(is_wanted).collect()
}

/// Returns the keys of this name, in one namespace or in all.
fn matching<'a, Name: AsRef<str> + Clone + 'a>(
    keys: impl Iterator<Item = &'a Key<Name>>,
    namespace: Option<&str>,
    name: &str,
) -> impl Iterator<Item = Key<Name>> {
    let is_it = move |key: &&Key<Name>| {
        key.name.as_ref() == name && namespace.is_none_or(|namespace| namespace == key.namespace)
    };
    keys.filter(is_it).cloned()
}
