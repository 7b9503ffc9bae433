//! Tests the kubelet from outside: through its sockets, its files, and plugins that follow the protocol or do not.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod allocations;
mod devices;
mod plugins;
mod pods;
#[path = "../support/mod.rs"]
mod support;
