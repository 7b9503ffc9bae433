//! Holds code that several integration tests share: fake peers, a complete node, and processes that end with their
//! test.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, unreachable_pub, reason = "no test uses all of it")]
pub mod fake_kubelet;
pub mod fake_nodes;
#[path = "../../crates/petiole-kubelet/tests/support/fake_plugin.rs"]
pub mod fake_plugin;
pub mod foreign_handler;
#[path = "../../crates/petiole-mdns/tests/support/publisher.rs"]
pub mod mdns_publisher;
pub mod node;
pub mod opcua_server;
pub mod process;
#[path = "../../crates/petiole-kubelet/tests/support/raw_plugin.rs"]
pub mod raw_plugin;
pub mod running_discovery;
pub mod test_handler;
pub mod watched_store;
