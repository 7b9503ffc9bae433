//! Shows the state of a process to people and to Prometheus. The crate owns the log on stderr, the registry of the metrics of agents
//! and controllers ([`metrics()`]), and the listeners of `/metrics`, `/healthz` and `/readyz`. It decides which words a log filter may
//! have, which series exist from the start, and how many connections a listener has and how long they last. It does not decide when a
//! process is ready: the process gives it [`health::Health`], and reports events where they happen.
//!
//! It touches stderr, TCP listeners and `/proc`, and writes no files. No label names an Instance or a device, so the number of
//! series is bounded. `petiole web` uses [`http::serve_routes`] for the same limits.
//!
//! | question | file |
//! |---|---|
//! | How do I add a metric? | [`metrics`](mod@metrics) or [`cluster`]; `births` if it begins with 0; then `docs/metrics.md` |
//! | Which kinds of metrics does the library lack? | [`values`], and `State` of petiole-base |
//! | Why does a probe answer 503? | [`health`]; the caller's conditions |
//! | What bounds a client of the port? | [`http`] |
//! | Why does `curl` get another format than Prometheus? | `plain` |
//! | Why was my `--log` refused, and what is escaped? | `filter`, `text` |
//! | Where do `process_…` and `petiole_mdns_…` come from? | `process`, `mdns` |
mod births;
pub mod cluster;
mod filter;
pub mod health;
pub mod http;
mod mdns;
pub mod metrics;
mod plain;
mod process;
mod text;
pub mod values;

pub use metrics::metrics;

use clap::ValueEnum;
use std::io::stderr;
use tracing_subscriber::{
    filter::LevelFilter, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// The settings of the log.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directives such as `info` or `petiole=debug,warn`.
    pub filter: String,
    pub format: LogFormat,
    /// Text has colours: for a terminal.
    pub colors: bool,
}

/// Starts logging to stderr. `main` calls it once.
pub fn start(settings: &Settings) -> anyhow::Result<()> {
    let filter = (filter::targets(&settings.filter))
        .map_err(|e| anyhow::anyhow!("--log {:?}: {e}", settings.filter))?;
    // These crates log every attempt. The callers log each outage once.
    let filter = if settings.filter.contains("kube_") {
        filter
    } else {
        (filter.with_target("kube_runtime", LevelFilter::ERROR))
            .with_target("kube_client", LevelFilter::OFF)
    };
    let all = tracing_subscriber::registry().with(filter);
    let logs = fmt::layer().with_writer(stderr);
    match settings.format {
        LogFormat::Text => {
            let logs = logs.fmt_fields(text::fields());
            all.with(logs.with_ansi(settings.colors)).init();
        }
        LogFormat::Json => all
            .with(logs.json().flatten_event(true).with_span_list(false))
            .init(),
    }
    Ok(())
}
