//! What the process says of itself: logs on stderr, as text or JSON; metrics and its health over HTTP.
pub mod http;
pub mod metrics;
mod text;
pub(crate) mod values;

pub use metrics::metrics;

use clap::ValueEnum;
use std::io::{IsTerminal as _, stderr};
use tracing_subscriber::{EnvFilter, fmt};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// How the process logs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directives such as `info` or `petiole=debug,warn`.
    pub filter: String,
    pub format: LogFormat,
}

/// Starts logging to stderr. Called once, by `main`.
pub fn start(settings: &Settings) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&settings.filter)
        .map_err(|e| anyhow::anyhow!("--log {:?}: {e}", settings.filter))?;
    // What these say of each try is told once for each trouble by whoever tries.
    let filter = match settings.filter.contains("kube_") {
        true => filter,
        false => (filter.add_directive("kube_runtime=error".parse()?))
            .add_directive("kube_client=off".parse()?),
    };
    let logs = fmt().with_env_filter(filter).with_writer(stderr);
    match settings.format {
        LogFormat::Text => (logs.fmt_fields(text::fields()))
            .with_ansi(stderr().is_terminal())
            .init(),
        LogFormat::Json => logs.json().flatten_event(true).init(),
    }
    Ok(())
}
