//! Describes plugins to the plugin manager: a plugin's info, the handler of its type, and its call of the Registration
//! service.
use super::plan::Source;
use futures::future::BoxFuture;
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};
use tokio::sync::oneshot;
use tracing::debug;

/// A plugin as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PluginInfo {
    /// The name of a driver, or the resource of a device plugin.
    pub(crate) name: String,
    pub(crate) endpoint: PathBuf,
    pub(crate) versions: Vec<String>,
    /// A number that no other registration with this kubelet has.
    pub(crate) generation: u64,
    pub(crate) source: Source,
}

/// Handles the plugins of one type. Errors are returned to the plugin.
pub(crate) trait PluginHandler: Send + Sync {
    fn validate(&self, plugin: &PluginInfo) -> Result<(), String>;
    fn register(&self, plugin: PluginInfo) -> BoxFuture<'static, Result<(), String>>;
    fn deregister(&self, plugin: &PluginInfo);
    /// Returns whether this registration is still valid. It is not after the plugin has died.
    fn is_registered(&self, plugin: &PluginInfo) -> bool;
}

/// The handlers by the type that plugins report.
pub(crate) type Handlers = BTreeMap<&'static str, Arc<dyn PluginHandler>>;
pub(crate) const DEVICE_PLUGIN: &str = "DevicePlugin";
pub(crate) const CSI_PLUGIN: &str = "CSIPlugin";
pub(crate) const DRA_PLUGIN: &str = "DRAPlugin";

/// A call of the Registration service. It is answered when the plugin is registered or rejected.
#[derive(Debug)]
pub(crate) struct Request {
    pub(super) name: String,
    pub(super) endpoint: PathBuf,
    pub(super) version: String,
    pub(super) reply: oneshot::Sender<Result<(), String>>,
}

impl Request {
    /// Rejects the call because a newer one has the same key. Without an answer the plugin would wait for ever.
    pub(super) fn replaced(self) {
        let (name, endpoint) = (&self.name, self.endpoint.display());
        let error = format!(
            "registration of {name:?} at {endpoint}: replaced by a newer registration of the same resource and socket"
        );
        debug!(%error, "plugin not registered");
        if self.reply.send(Err(error)).is_err() {
            debug!("a plugin closed its connection before it was answered");
        }
    }
}

pub(super) struct Registered {
    pub(super) handler: Arc<dyn PluginHandler>,
    pub(super) kind: &'static str,
    pub(super) info: PluginInfo,
}
