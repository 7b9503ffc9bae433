//! Tests with real multicast packets on `lo`. They are a separate program: tests of other programs run before or after
//! it, so their packets and their load do not affect it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod demo;
mod onvif_handler;
mod opcua_handler;
mod secrets;
#[path = "../support/mod.rs"]
mod support;
mod zeroconf_handler;
