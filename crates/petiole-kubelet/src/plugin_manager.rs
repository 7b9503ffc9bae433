//! Registers plugins: those that call the Registration service, and those with a socket in `plugins_registry`.
//!
//! The Registration service (`device-plugins/kubelet.sock`) and the watch of the folder both feed the desired state. The
//! manager runs one operation per registration at a time, through the [`plugin::PluginHandler`] of the plugin's type.
mod folder;
pub(crate) mod manager;
mod operation;
pub(crate) mod plan;
pub(crate) mod plugin;
pub(crate) mod report;
pub(crate) mod service;
