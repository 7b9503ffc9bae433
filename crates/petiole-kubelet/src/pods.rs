//! Runs static Pods: reads manifests from a folder, runs their containers as processes, and publishes their states.
//!
//! Each Pod has a worker, which admits it, runs its containers, and updates its record in the table of Pods. A Pod that
//! has ended or was rejected stays in the table until its manifest is removed or changed.
mod expand;
pub(crate) mod logs;
pub(crate) mod manager;
pub(crate) mod manifest;
mod manifest_folder;
mod orphans;
pub(crate) mod plan;
mod process;
pub(crate) mod record;
mod signal;
pub(crate) mod status;
pub(crate) mod table;
mod worker;
