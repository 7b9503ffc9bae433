//! A driver against a kubelet and an API server that are made here.
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, and clippy does not see that helpers here are tests"
)]
mod api;
mod claims;
mod node;
mod registration;
mod slices;
