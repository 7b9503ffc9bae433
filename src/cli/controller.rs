//! Flags of `petiole controller`.
use super::{prefixes::PrefixFlags, signals::until_told_to_stop};
use crate::{cluster, controller};
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
    #[command(flatten)]
    prefixes: PrefixFlags,
    /// Where to answer for health and metrics
    #[arg(long, env = "PETIOLE_HTTP_ADDRESS", value_name = "IP:PORT")]
    http_address: Option<SocketAddr>,
}

impl Flags {
    fn settings(self) -> controller::Settings {
        let namespaces = self.watch_namespaces.into_iter();
        controller::Settings {
            identity: self.identity,
            namespace: self.namespace,
            watch_namespaces: namespaces.filter(|name| !name.is_empty()).collect(),
            resource_prefix: self.prefixes.resource_prefixes[0].clone(),
            http_address: self.http_address,
        }
    }
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    let settings = flags.settings();
    info!(identity = %settings.identity, namespace = %settings.namespace, "controller starting");
    let client = cluster::client().await?;
    until_told_to_stop(|shutdown| controller::run(settings, client, shutdown)).await
}
