//! Defines the flags that name a cluster, as kubectl has them. A Pod has a ServiceAccount and needs none.
use crate::cluster;
use clap::Args;
use kube::Client;
#[cfg(feature = "people")]
use std::ffi::OsString;
#[cfg(feature = "people")]
use std::path::PathBuf;

#[derive(Debug, Clone, Default, Args)]
pub struct ConnectionFlags {
    /// Kubeconfig file [default: KUBECONFIG, or ~/.kube/config; in a Pod its ServiceAccount]
    #[cfg(feature = "people")]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[cfg(feature = "people")]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ConnectionFlags {
    #[cfg(feature = "people")]
    pub async fn client(&self) -> anyhow::Result<Client> {
        let identity = cluster::Identity {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
        };
        cluster::client_as(&identity).await
    }

    /// Returns the same flags for kubectl.
    #[cfg(feature = "people")]
    pub fn arguments(&self) -> Vec<OsString> {
        let kubeconfig = self
            .kubeconfig
            .iter()
            .map(|path| path.as_os_str().to_owned());
        let kubeconfig = kubeconfig.flat_map(|path| ["--kubeconfig".into(), path]);
        let context = self.context.iter().map(|name| name.clone().into());
        let context = context.flat_map(|name| ["--context".into(), name]);
        kubeconfig.chain(context).collect()
    }

    #[cfg(not(feature = "people"))]
    pub async fn client(&self) -> anyhow::Result<Client> {
        cluster::client().await
    }
}

/// The namespaces of a command that reads objects.
#[cfg(feature = "people")]
#[derive(Debug, Clone, Default, Args)]
pub struct NamespaceFlags {
    /// Namespace [default: that of the context]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
}

#[cfg(feature = "people")]
impl NamespaceFlags {
    /// Returns the namespace; `None` means all namespaces.
    pub fn namespace(&self, client: &Client) -> Option<String> {
        (!self.all_namespaces).then(|| namespace_or(self.namespace.as_deref(), client))
    }
}

/// Returns the namespace that a flag names, or that of the context.
pub fn namespace_or(flag: Option<&str>, client: &Client) -> String {
    flag.unwrap_or(client.default_namespace()).to_owned()
}
