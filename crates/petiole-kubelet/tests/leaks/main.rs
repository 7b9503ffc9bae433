//! Counts the tasks, descriptors and memory of this process. It is a separate program, because other tests in the same
//! process would be counted too.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod kubelet_leaks;
#[path = "../support/mod.rs"]
mod support;
