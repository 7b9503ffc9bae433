//! Tests with hundreds of mDNS services on `lo`. They are a separate program, because every mDNS program on `lo`
//! receives these packets, and they run one after the other.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod bad_input_mdns;
#[path = "../support/mod.rs"]
mod support;
mod zeroconf_flood;

use std::sync::{Mutex, PoisonError};

/// Runs `test` while no other test of this program runs, because each measures time or depends on delays.
fn run_alone(test: impl Future<Output = ()>) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    // A failed test leaves no state that affects the next one.
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}
