//! Defines the objects that users write and that Petiole writes: Akri's `akri.sh/v0` objects, with additions.
mod allocation;
pub mod attributes;
pub mod broker;
pub mod condition;
pub mod configuration;
pub mod crds;
pub mod defaults;
pub mod instance;
pub mod names;
pub mod node_devices;
pub mod reason;
pub mod same_name;
mod when_gone;
pub mod without_instances;
mod word;
