//! Holds fake plugins, for the tests of this crate and of the package `petiole`.
#![allow(dead_code, reason = "no test uses all of it")]
pub(crate) mod fake_plugin;
pub(crate) mod raw_plugin;
