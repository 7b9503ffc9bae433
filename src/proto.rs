//! Contains the code that is generated from `proto/`: messages, clients and servers of Akri's API of discovery handlers.
#![allow(
    unreachable_pub,
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::too_many_lines,
    reason = "generated code"
)]
pub mod discovery;
