//! Rejects drivers for dynamic resource allocation from `plugins_registry`, with an error that says what to use
//! instead.
use crate::plugin_manager::plugin::{PluginHandler, PluginInfo};
use futures::future::{self, BoxFuture};

pub(crate) struct NotSupported;

impl PluginHandler for NotSupported {
    fn validate(&self, plugin: &PluginInfo) -> Result<(), String> {
        Err(format!(
            "DRA driver {}: dynamic resource allocation is not supported by this kubelet: its static Pods have no ResourceClaims; use a device plugin",
            plugin.name
        ))
    }

    fn register(&self, plugin: PluginInfo) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(future::ready(self.validate(&plugin)))
    }

    fn deregister(&self, _: &PluginInfo) {}

    fn is_registered(&self, _: &PluginInfo) -> bool {
        false
    }
}
