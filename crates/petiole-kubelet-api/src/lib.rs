//! The kubelet's APIs for device plugins and for drivers, as both of their sides need them. It knows nothing of Petiole.
//!
//! | module | what it has |
//! |---|---|
//! | [`device_plugin`], [`pod_resources`], [`plugin_registration`], [`csi`] | messages, clients and servers, generated from `proto/` |
//! | [`uds`] | Unix sockets for gRPC: [`uds::bind`] for a server that Go clients reach, [`uds::OwnSocket`] for its file, and [`uds::dial`] |
//! | [`checkpoint`] | the file in which a kubelet records the devices of each container |
//! | [`codec`] | the codec of the generated code |
//!
//! Errors are those of the libraries: [`std::io::Error`] with the path for sockets, [`tonic::Status`] for calls, and
//! [`checkpoint::Error`].
#![warn(missing_docs)]
pub mod checkpoint;
pub mod codec;
mod generated;
pub mod uds;

pub use generated::{csi, device_plugin, plugin_registration, pod_resources};

/// The descriptors that gRPC reflection serves.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
