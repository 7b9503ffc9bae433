//! What the other crates stand on. It knows none of them, and is for nobody else: what is in it would be in several of them otherwise.
//!
//! | module | what it has |
//! |---|---|
//! | [`backoff`] | the wait before the next attempt at an operation that fails |
//! | [`collect`] | ordered maps by insertion |
//! | [`files`] | files that are replaced whole, files of bounded size, owners of folders |
//! | [`folder_watch`] | when something in folders may have changed |
//! | [`metrics`] | a gauge that is replaced as a whole |
//! | [`quantity`] | whole numbers as the API server writes them |
//! | [`supervisor`] | the tasks of a process: the first one that ends stops the others |
//! | [`token_bucket`] | a rate that allows bursts |
//! | [`waits`] | a wait until a time that may not be set |
//! | [`yaml`] | YAML by the rules of Kubernetes |
pub mod backoff;
pub mod collect;
#[cfg(target_os = "linux")]
pub mod files;
#[cfg(target_os = "linux")]
pub mod folder_watch;
pub mod metrics;
pub mod quantity;
pub mod supervisor;
pub mod token_bucket;
pub mod waits;
pub mod yaml;
