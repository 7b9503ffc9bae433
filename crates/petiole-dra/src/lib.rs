//! The protocol part of a driver for Dynamic Resource Allocation (DRA, KEP 4381), as a kubelet and an API server from
//! Kubernetes 1.34 on expect it. It knows nothing of Petiole.
//!
//! | module | what it has |
//! |---|---|
//! | [`plugin`] | the sockets of a driver: registration, Prepare and Unprepare, health |
//! | [`driver`] | [`Driver`], the part that a driver's author writes |
//! | [`claim`] | a claim with the devices that the scheduler has allocated |
//! | [`book`] | the devices of prepared claims, on disk |
//! | [`health`] | the health of devices, which a Pod's status tells |
//! | [`slices`] | ResourceSlices: pools of devices are published, and published again when they were deleted |
//! | [`proto`] | the generated messages and clients, for tests |
//!
//! The objects of `resource.k8s.io/v1` are those of [`k8s_openapi::api::resource::v1`].
//!
//! Tasks are futures that the caller runs: nothing is spawned, and nothing goes on after they were dropped.
#![warn(missing_docs)]
pub mod book;
pub mod claim;
mod digest;
pub mod driver;
mod earlier;
pub mod health;
mod held;
mod node;
pub mod plugin;
pub mod proto;
mod registration;
pub mod slices;
mod sockets;
mod turns;

pub use driver::{Driver, Failure};
pub use plugin::{Plugin, Settings};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
