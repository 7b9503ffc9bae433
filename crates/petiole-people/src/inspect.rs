//! Reads what a cluster knows of devices, and explains it: for `petiole devices`, `top`, `why` and `doctor`. It writes
//! nothing.
//!
//! `snapshot` has the objects of one moment, and `read` gets them. What is said about them is decided without effects.
mod claimed;
pub mod claims;
pub mod devices;
pub mod doctor;
pub(crate) mod events;
pub mod follow;
pub mod node_only;
mod nodes;
pub mod object;
pub mod pods;
pub mod read;
pub(crate) mod slots;
pub mod snapshot;
pub(crate) mod twice;
pub mod why;
pub mod words;
pub mod workloads;
