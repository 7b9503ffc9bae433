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
use std::{fs, net::SocketAddr};
use tracing::info;

/// The files with the memory limit of this container, one of which is there: a number of bytes, or `max` (Linux,
/// `admin-guide/cgroup-v2` and `cgroup-v1/memory`).
const MEMORY_LIMITS: [&str; 2] = [
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
];
/// A limit beyond which version 1 means none.
const NONE_IN_V1: usize = 1 << 50;
/// The most bytes of all Instances in the memory of a controller that has no memory limit; otherwise a third of that limit. A namespace, and
/// in it a Configuration, may have half of what the others leave. Beyond it: devices and new properties of the Configuration that
/// exceeds its part are left out (`TooManyDevices`).
const ALL_INSTANCES_BYTES_MAX: usize = 1 << 30;

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
            instances_bytes: instances_bytes(
                MEMORY_LIMITS
                    .iter()
                    .find_map(|file| fs::read_to_string(file).ok()),
            ),
            claims: self.dra.then_some(prefixes),
            device_networks: DeviceNetworks::new(
                self.device_service_networks,
                self.device_service_cluster_networks,
            ),
        }
    }
}

/// Returns the bytes that all Instances may have, of the content of the file with the memory limit.
fn instances_bytes(limit: Option<String>) -> usize {
    let limit = limit.and_then(|limit| limit.trim().parse::<usize>().ok());
    let limit = limit.filter(|limit| *limit < NONE_IN_V1);
    limit.map_or(ALL_INSTANCES_BYTES_MAX, |limit| limit / 3)
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    let settings = flags.settings();
    metrics().begin_controller();
    info!(identity = %settings.identity, namespace = %settings.namespace, "controller starting");
    let client = cluster::client().await?;
    until_signal(|shutdown| controller::run(settings, client, shutdown)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_may_have_a_third_of_the_memory_limit() {
        let limit = |text: &str| instances_bytes(Some(text.to_owned()));
        assert_eq!(limit("268435456\n"), 89_478_485);
        assert_eq!(limit("max\n"), ALL_INSTANCES_BYTES_MAX);
        assert_eq!(limit("9223372036854771712\n"), ALL_INSTANCES_BYTES_MAX);
        assert_eq!(instances_bytes(None), ALL_INSTANCES_BYTES_MAX);
    }
}
