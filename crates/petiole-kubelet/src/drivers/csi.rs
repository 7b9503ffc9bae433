//! Registers CSI drivers from `plugins_registry`: they are validated, asked for NodeGetInfo and listed, as the kubelet
//! does it. No volume is mounted.
mod plan;

use crate::{
    go_errors,
    plugin_manager::plugin::{PluginHandler, PluginInfo},
};
use futures::future::BoxFuture;
use petiole_kubelet_api::{
    csi::{NodeGetInfoRequest, node_client::NodeClient},
    uds,
};
use plan::Version;
use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};
use tokio::{sync::watch, time::timeout};
use tonic::Code;
use tracing::info;

const DIAL_LIMIT: Duration = Duration::from_secs(10);

/// The registered drivers by name. All clones share one table.
#[derive(Debug, Clone)]
pub(crate) struct Drivers {
    node_info_limit: Duration,
    table: Arc<watch::Sender<BTreeMap<String, Driver>>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Driver {
    generation: u64,
    pub(crate) version: Version,
    /// The answer to NodeGetInfo; `None` if the driver does not implement it.
    pub(crate) node: Option<NodeInfo>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeInfo {
    pub(crate) id: String,
    /// The most volumes of this driver on the node; 0 means no limit.
    pub(crate) max_volumes: i64,
}

impl Drivers {
    /// Returns an empty table. `node_info_limit` is the time limit of NodeGetInfo.
    pub(crate) fn new(node_info_limit: Duration) -> Self {
        Self {
            node_info_limit,
            table: Arc::default(),
        }
    }

    pub(crate) fn table(&self) -> watch::Ref<'_, BTreeMap<String, Driver>> {
        self.table.borrow()
    }

    fn version(&self, plugin: &PluginInfo) -> Result<Version, String> {
        let table = self.table();
        let registered = table.get(&plugin.name).map(|driver| &driver.version);
        plan::version(&plugin.name, &plugin.versions, registered)
    }

    async fn add(self, plugin: PluginInfo) -> Result<(), String> {
        let node = node_info(&plugin.endpoint, self.node_info_limit).await?;
        // Another driver with this name may have registered during the call.
        let version = self.version(&plugin)?;
        info!(driver = %plugin.name, endpoint = %plugin.endpoint.display(), %version, "CSI driver registered");
        let driver = Driver {
            generation: plugin.generation,
            version,
            node,
        };
        self.table.send_modify(|table| {
            table.insert(plugin.name, driver);
        });
        Ok(())
    }
}

impl PluginHandler for Drivers {
    fn validate(&self, plugin: &PluginInfo) -> Result<(), String> {
        let checked = self.version(plugin);
        checked.map(|_| ()).map_err(|error| {
            format!(
                "validation failed for CSI Driver {} at endpoint {}: {error}",
                plugin.name,
                plugin.endpoint.display()
            )
        })
    }

    fn register(&self, plugin: PluginInfo) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(self.clone().add(plugin))
    }

    fn deregister(&self, plugin: &PluginInfo) {
        self.table.send_if_modified(|table| {
            let is_current = table
                .get(&plugin.name)
                .is_some_and(|driver| driver.generation == plugin.generation);
            is_current && table.remove(&plugin.name).is_some()
        });
    }

    fn is_registered(&self, plugin: &PluginInfo) -> bool {
        let table = self.table();
        let driver = table.get(&plugin.name);
        driver.is_some_and(|driver| driver.generation == plugin.generation)
    }
}

async fn node_info(endpoint: &Path, limit: Duration) -> Result<Option<NodeInfo>, String> {
    let failed = |error: &dyn std::fmt::Display| {
        format!("NodeGetInfo at {} failed: {error}", endpoint.display())
    };
    let dialled = timeout(DIAL_LIMIT, uds::dial(endpoint)).await;
    let channel = dialled
        .map_err(|_| failed(&"the driver does not accept the connection"))?
        .map_err(|e| failed(&go_errors::cause(&e)))?;
    let mut client = NodeClient::new(channel);
    let asked = timeout(limit, client.node_get_info(NodeGetInfoRequest {})).await;
    match asked.map_err(|_| failed(&format!("no answer within {limit:?}")))? {
        Ok(answer) => {
            let answer = answer.into_inner();
            Ok(Some(NodeInfo {
                id: answer.node_id,
                max_volumes: answer.max_volumes_per_node,
            }))
        }
        Err(status) if status.code() == Code::Unimplemented => Ok(None),
        Err(status) => Err(failed(&go_errors::status(&status))),
    }
}
