//! Flags of `petiole controller`.
use super::signals::until_told_to_stop;
use crate::{api::names, cluster, controller};
use anyhow::bail;
use clap::{Args, builder::NonEmptyStringValueParser};
use std::net::SocketAddr;
use tracing::info;

#[derive(Debug, Args)]
pub struct Flags {
    /// What tells this replica from the others: the name of its Pod
    #[arg(long, env = "PETIOLE_IDENTITY", value_parser = NonEmptyStringValueParser::new())]
    identity: String,
    /// The namespace of the Lease: that of the Pod
    #[arg(long, env = "PETIOLE_NAMESPACE", value_parser = NonEmptyStringValueParser::new())]
    namespace: String,
    /// The namespaces whose Configurations and Instances are looked after [default: all]
    #[arg(
        long,
        env = "PETIOLE_WATCH_NAMESPACES",
        value_name = "NAMES",
        value_delimiter = ','
    )]
    watch_namespaces: Vec<String>,
    /// The prefixes of our resources; that of new ones first
    #[arg(
        long,
        env = "PETIOLE_RESOURCE_PREFIXES",
        value_name = "PREFIXES",
        value_delimiter = ',',
        default_value = names::GROUP
    )]
    resource_prefixes: Vec<String>,
    /// Where to answer for health and metrics
    #[arg(long, env = "PETIOLE_HTTP_ADDRESS", value_name = "IP:PORT")]
    http_address: Option<SocketAddr>,
}

impl Flags {
    fn settings(self) -> anyhow::Result<controller::Settings> {
        let named = |names: Vec<String>| names.into_iter().filter(|name| !name.is_empty());
        let Some(resource_prefix) = named(self.resource_prefixes).next() else {
            bail!("--resource-prefixes names none: leave it out, or name one such as akri.sh");
        };
        Ok(controller::Settings {
            identity: self.identity,
            namespace: self.namespace,
            watch_namespaces: named(self.watch_namespaces).collect(),
            resource_prefix,
            http_address: self.http_address,
        })
    }
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    let settings = flags.settings()?;
    info!(identity = %settings.identity, namespace = %settings.namespace, "controller starting");
    let client = cluster::client().await?;
    until_told_to_stop(|shutdown| controller::run(settings, client, shutdown)).await
}
