//! Runs `petiole why`, which explains what is missing to a Pod, an Instance or a Configuration.
use super::{
    connection::{ConnectionFlags, NamespaceFlags},
    table::print,
};
use crate::{
    inspect::{
        read,
        snapshot::Snapshot,
        why::{Target, explain},
    },
    model::{names::ObjectKey, printable::printable},
};
use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use std::io::{Write as _, stderr};

/// Says in a few sentences what a Pod, an Instance or a Configuration lacks, and which command to run next.
#[derive(Debug, Args)]
pub struct Flags {
    /// Object: `pod/NAME`, `instance/NAME`, `configuration/NAME`, or a name alone
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
}

impl Kind {
    const ALL: [Self; 3] = [Self::Pod, Self::Instance, Self::Configuration];

    fn parse(text: &str) -> anyhow::Result<Self> {
        let kind = text.to_lowercase();
        let kind = kind.strip_suffix(".akri.sh").unwrap_or(&kind);
        match kind {
            "po" | "pod" | "pods" => Ok(Self::Pod),
            "akrii" | "instance" | "instances" => Ok(Self::Instance),
            "akric" | "configuration" | "configurations" => Ok(Self::Configuration),
            _ => bail!("{text:?} is no kind: write pod, instance or configuration"),
        }
    }

    fn target(self, key: ObjectKey) -> Target {
        match self {
            Self::Pod => Target::Pod(key),
            Self::Instance => Target::Instance(key),
            Self::Configuration => Target::Configuration(key),
        }
    }
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
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
    if kind.is_none_or(|kind| kind == Kind::Pod)
        && let Some(pod) = read::pod(&client, &key).await?
    {
        snapshot.pods.insert(key.clone(), pod);
    }
    let targets = found(&snapshot, kind, wanted.as_deref(), name);
    let target = match targets.as_slice() {
        [target] => target.clone(),
        [] => kind.map(|kind| kind.target(key)).with_context(|| {
            format!("there is no Pod, Instance or Configuration {namespace}/{name}: name another namespace (-n), or look at all (-A)")
        })?,
        several => bail!("{} objects have that name: write pod/{name}, instance/{name} or configuration/{name}, and the namespace (-n)", several.len()),
    };
    let explanation = explain(&snapshot, &target, Timestamp::now());
    let text = match flags.output {
        Output::Text => lines(&explanation.text()),
        Output::Json => serde_json::to_string_pretty(&explanation)? + "\n",
    };
    print(&text)?;
    for unread in &snapshot.unread {
        writeln!(stderr(), "(incomplete: {})", printable(unread))?;
    }
    Ok(())
}

/// Returns the objects of that name. Without a namespace it can be in any.
fn found(
    snapshot: &Snapshot,
    kind: Option<Kind>,
    namespace: Option<&str>,
    name: &str,
) -> Vec<Target> {
    let is_it = |key: &&ObjectKey| {
        key.name == name && namespace.is_none_or(|namespace| namespace == key.namespace)
    };
    let keys = |kind: Kind| -> Vec<&ObjectKey> {
        match kind {
            Kind::Pod => snapshot.pods.keys().filter(is_it).collect(),
            Kind::Instance => snapshot.instances.keys().filter(is_it).collect(),
            Kind::Configuration => snapshot.configurations.keys().filter(is_it).collect(),
        }
    };
    let kinds = Kind::ALL.into_iter();
    let kinds = kinds.filter(|is| kind.is_none_or(|kind| kind == *is));
    let targets = kinds.flat_map(|kind| {
        let keys = keys(kind).into_iter();
        keys.map(move |key| kind.target(key.clone()))
    });
    targets.collect()
}

/// Names and messages come from anyone on the LAN.
fn lines(text: &str) -> String {
    text.lines().map(|line| printable(line) + "\n").collect()
}
