//! Petiole joins leaf devices to Kubernetes.
pub mod agent;
pub mod api;
pub mod backoff;
pub mod cli;
#[cfg(feature = "demo")]
pub mod demo;
pub mod discovery;
pub mod files;
pub mod folder_watch;
pub mod kubelet;
pub mod model;
pub mod proto;
pub mod store;
pub mod supervisor;
pub mod telemetry;
pub mod uds;
