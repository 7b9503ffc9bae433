//! Reads Configurations and Instances, and writes slots of Instances and what this node reports.
//!
//! All stores implement one trait, so that the agent is the same with a cluster and without one. A store publishes
//! whole sets over a `watch`; when a write returns, the sets already include it.
#[cfg(test)]
mod fixtures;
#[cfg(feature = "people")]
pub mod folder;
mod interface;
pub mod kubernetes;
#[cfg(any(test, feature = "people"))]
pub mod manifest;
pub(crate) mod news;
pub mod plan;

pub use crate::cluster::key_of;
pub use interface::{
    About, Configurations, Instances, Report, Reports, Store, StoreError, configuration_key,
    instance_key,
};
