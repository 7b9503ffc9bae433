//! Runs `petiole why`, which explains what is missing to a Pod, an Instance or a Configuration.
use super::devices::incomplete;
use crate::inspect::{
    object::{Kind, Object},
    read,
    snapshot::Snapshot,
    why::{evicted, explain},
    workloads,
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

/// Returns the kind that a user wrote.
fn parse(kind: &str) -> anyhow::Result<Kind> {
    Kind::parse(kind).with_context(|| {
        format!("{kind:?} is no kind: write pod, instance, configuration, deployment, replicaset, statefulset, daemonset or job")
    })
}

pub(crate) async fn run(flags: Flags) -> anyhow::Result<()> {
    let (kind, name) = match flags.object.split_once('/') {
        Some((kind, name)) => (Some(parse(kind)?), name),
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
        && let Some(kind) = kind.filter(|kind| kind.is_workload())
    {
        incomplete(&snapshot)?;
        let kind = kind.as_str();
        bail!("{kind} {key} is explained by its Pods, which cannot be read");
    }
    let objects = found(&snapshot, kind, wanted.as_deref(), name);
    let object = match objects.as_slice() {
        [object] => object.clone(),
        [] => match (kind, Object::new(kind.unwrap_or(Kind::Pod), key)) {
            (Some(_), object) => object,
            (None, pod) if evicted(&snapshot, &pod) => pod,
            (None, _) => {
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
    read_warnings(&client, namespace, &object, &mut snapshot).await;
    read::creation(&client, &object, &mut snapshot).await;
    let explanation = explain(&snapshot, &object, Timestamp::now());
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
    object: &Object,
    snapshot: &mut Snapshot,
) {
    let namespace = &object.key.namespace;
    if namespace != read {
        read::warnings(client, namespace, snapshot).await;
    }
}

/// Returns the error for a name that no object has. An object that cannot be read may have it.
/// One of another namespace is named.
fn nowhere(snapshot: &Snapshot, namespace: Option<&str>, name: &str, others: &[Object]) -> String {
    let (object, is_partial, advice) = match namespace {
        Some(namespace) => (
            format!("{namespace}/{name}"),
            snapshot.hidden.own_pods,
            match others.first().map(|other| &other.key.namespace) {
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

/// Returns the objects of that name, or the workloads if there are none. Without a namespace it can be in any.
fn found(
    snapshot: &Snapshot,
    kind: Option<Kind>,
    namespace: Option<&str>,
    name: &str,
) -> Vec<Object> {
    let of_kind = |kind| move |key| Object::new(kind, key);
    let pods = snapshot.pods.keys().cloned().map(of_kind(Kind::Pod));
    let instances = snapshot.instances.keys().map(Key::untyped);
    let configurations = snapshot.configurations.keys().map(Key::untyped);
    let is_wanted = |Object { kind: its, key }: &Object| {
        key.name == name
            && namespace.is_none_or(|namespace| namespace == key.namespace)
            && kind.is_none_or(|kind| kind == *its)
    };
    let objects = pods.chain(instances.map(of_kind(Kind::Instance)));
    let objects = objects.chain(configurations.map(of_kind(Kind::Configuration)));
    let objects: Vec<Object> = objects.filter(is_wanted).collect();
    if !objects.is_empty() {
        return objects;
    }
    workloads::all(snapshot)
        .into_iter()
        .filter(is_wanted)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_workload_is_found_in_its_namespace_unless_another_object_has_its_name() {
        let pod = json!({
            "metadata": {
                "labels": {"akri.sh/instance": "cam-0a1b2c"},
                "ownerReferences":
                    [{"apiVersion": "", "kind": "StatefulSet", "name": "db", "uid": "", "controller": true}],
            },
        });
        let mut snapshot = Snapshot::default();
        let mut add = |name: &str| {
            let pod = serde_json::from_value(pod.clone()).unwrap();
            let key = ObjectKey::new("shop", name);
            snapshot.pods.insert(key, pod);
            snapshot.clone()
        };
        let object = |kind| Object::new(kind, ObjectKey::new("shop", "db"));
        let (without_pod, with_pod) = (add("db-0"), add("db"));
        let workload = vec![object(Kind::StatefulSet)];
        for (kind, namespace, expected) in [
            (None, None, &workload),
            (None, Some("shop"), &workload),
            (Some(Kind::StatefulSet), Some("shop"), &workload),
            (Some(Kind::Job), None, &vec![]),
            (None, Some("default"), &vec![]),
        ] {
            assert_eq!(found(&without_pod, kind, namespace, "db"), *expected);
        }
        assert_eq!(found(&with_pod, None, None, "db"), [object(Kind::Pod)]);
        let wanted = Some(Kind::StatefulSet);
        assert_eq!(found(&with_pod, wanted, None, "db"), workload);
    }
}
