//! Sets up the telemetry of a process: logs on stderr as text or JSON, and metrics and health over HTTP.
//!
//! | module | what it has |
//! |---|---|
//! | [`cluster`], [`metrics`](mod@metrics) | the metrics of a node, of a cluster, and of every process |
//! | [`health`], [`http`] | what a process lacks, and the socket that says so |
//! | [`values`] | labels of metrics |
//!
//! [`start`] begins the log.
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
