//! Defines whom the handler probe may ask.
use crate::discovery::handlers::probe::{AllowedNetwork, Networks};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct ProbeFlags {
    /// Networks whose hosts Configurations of probe may have asked, such as `10.1.2.0/24`; `*` means all. Networks of the
    /// machine, of links and of the cluster must be named all the same [default: none for an agent of a cluster, else all]
    #[arg(
        long,
        env = "PETIOLE_PROBE_NETWORKS",
        value_name = "NETWORK,...",
        value_delimiter = ','
    )]
    probe_networks: Option<Vec<AllowedNetwork>>,
    /// Networks of the cluster: those of its Pods and Services
    #[arg(
        long,
        env = "PETIOLE_PROBE_CLUSTER_NETWORKS",
        value_name = "NETWORK,...",
        value_delimiter = ','
    )]
    probe_cluster_networks: Vec<AllowedNetwork>,
}

impl ProbeFlags {
    /// Returns the allowed networks, or the usual ones.
    pub(super) fn networks(&self, usual: Networks) -> Networks {
        let named = self.probe_networks.as_ref();
        let networks = named.map_or(usual, |networks| networks.iter().copied().collect());
        networks.with_cluster(self.probe_cluster_networks.iter().copied())
    }
}
