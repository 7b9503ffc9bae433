//! Counts what this process holds: tasks, descriptors and memory. It is a program of its own, because other tests in the
//! same process would be counted, too.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod kubelet_leaks;
#[path = "../support/mod.rs"]
mod support;
