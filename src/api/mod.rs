//! What users write and what we write for them: Akri's `akri.sh/v0` objects, with our additions.
pub mod broker;
pub mod condition;
pub mod configuration;
pub mod crds;
pub mod instance;
pub mod names;
pub mod node_devices;
pub mod reason;
