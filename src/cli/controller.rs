//! Defines the flags of `petiole controller`.
use crate::{
    cluster, controller,
    model::{
        networks::{DeviceNetworks, Range},
        variables::Variables,
    },
    telemetry::metrics,
};
use clap::{Args, builder::NonEmptyStringValueParser};
use petiole_cli::{scope::ScopeFlags, signals::until_signal};
use std::net::SocketAddr;
use tracing::info;

#[derive(Debug, Args)]
pub struct Flags {
    /// Identity of this replica, which no other replica has: the name of its Pod
    #[arg(long, env = "PETIOLE_IDENTITY", value_parser = NonEmptyStringValueParser::new())]
    identity: String,
    /// Namespace of the Lease: that of the Pod
    #[arg(long, env = "PETIOLE_NAMESPACE", value_parser = NonEmptyStringValueParser::new())]
    namespace: String,
    #[command(flatten)]
    scope: ScopeFlags,
    /// Refused variable that Instances may show all the same; the same as of the agents
    #[arg(
        long,
        env = "PETIOLE_ALLOW_VARIABLES",
        value_name = "NAME",
        value_delimiter = ','
    )]
    allow_variables: Vec<String>,
    /// Delete Pods that the kubelet has refused for a resource of ours, a minute later, if another object made them
    #[arg(long, env = "PETIOLE_DELETE_REFUSED_PODS")]
    delete_refused_pods: bool,
    /// Address of /metrics, /healthz and /readyz
    #[arg(long, env = "PETIOLE_HTTP_ADDRESS", value_name = "IP:PORT")]
    http_address: Option<SocketAddr>,
    /// Serve the devices of each Configuration there, too, to those whom the API server allows it
    #[arg(long, env = "PETIOLE_DEVICE_LISTS", requires = "http_address")]
    device_lists: bool,
    /// Offer the devices of Configurations with `allocation: DRA` to the scheduler
    #[arg(long, env = "PETIOLE_DRA")]
    dra: bool,
    /// Networks, such as `10.1.2.0/24`, whose devices may have names in the cluster (`deviceService`); none by default
    #[arg(
        long,
        env = "PETIOLE_DEVICE_SERVICE_NETWORKS",
        value_name = "NETWORK,...",
        value_delimiter = ',',
        value_parser = network,
        requires = "device_service_cluster_networks"
    )]
    device_service_networks: Vec<Range>,
    /// Networks of the cluster, those of its Pods and Services, where no device has a name
    #[arg(
        long,
        env = "PETIOLE_DEVICE_SERVICE_CLUSTER_NETWORKS",
        value_name = "NETWORK,...",
        value_delimiter = ',',
        value_parser = network
    )]
    device_service_cluster_networks: Vec<Range>,
}

/// Reads a network, as the admission policy of the chart reads it.
fn network(text: &str) -> Result<Range, String> {
    let is_network = text.contains('/');
    let range = is_network.then(|| text.parse().ok()).flatten();
    range.ok_or_else(|| format!("`{text}` must be a network such as 10.1.2.0/24"))
}

impl Flags {
    fn settings(self) -> controller::Settings {
        let prefixes = self.scope.resource_prefixes();
        controller::Settings {
            identity: self.identity,
            namespace: self.namespace,
            watch_namespaces: self.scope.namespaces(),
            resource_prefix: prefixes.first().clone(),
            refused_pods: self.delete_refused_pods.then(|| prefixes.clone()),
            variables: Variables::allowing(self.allow_variables),
            http_address: self.http_address,
            device_lists: self.device_lists,
            claims: self.dra.then_some(prefixes),
            device_networks: DeviceNetworks::new(
                self.device_service_networks,
                self.device_service_cluster_networks,
            ),
        }
    }
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    let settings = flags.settings();
    metrics().begin_controller();
    info!(identity = %settings.identity, namespace = %settings.namespace, "controller starting");
    let client = cluster::client().await?;
    until_signal(|shutdown| controller::run(settings, client, shutdown)).await
}
