//! Tests the library and the program from outside: through sockets, files and processes.
//!
//! All of them are one program, because linking a test program takes longer than running most of these tests. Tests that
//! need a network without other mDNS programs are in `tests/mdns` and `tests/mdns_flood`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod agent_process;
mod agent_with_kubelet;
mod bad_input;
mod cdi_handler;
mod chart_renders;
mod debian_package;
mod examples_parse;
mod external_handlers;
mod hand_over;
mod install_owner;
mod install_release;
mod isolated_handlers;
mod kubectl_plugin;
mod kubelet_process;
mod monitoring;
mod mqtt_handler;
mod node_capacity;
mod opcua_handler;
mod pages;
mod probe_handler;
mod property_sources;
mod rendered_brokers;
mod resource_names;
#[path = "../support/mod.rs"]
mod support;
mod termination;
