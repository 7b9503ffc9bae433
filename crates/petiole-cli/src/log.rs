//! Defines the flags of the log.
use clap::Args;
use petiole_telemetry::{LogFormat, Settings};
use std::io::{IsTerminal as _, stderr};

#[derive(Debug, Args)]
pub struct LogFlags {
    /// Log filter: `error`, `warn`, `info`, `debug`, or directives such as `petiole=debug,warn` [default: info
    /// for what runs on nodes and in clusters, off for a live view on the terminal, else warn]
    #[arg(long, global = true, env = "PETIOLE_LOG", help_heading = "Logging")]
    log: Option<String>,
    /// Format of the log on stderr
    #[arg(
        long,
        global = true,
        env = "PETIOLE_LOG_FORMAT",
        value_enum,
        default_value = "text",
        help_heading = "Logging"
    )]
    log_format: LogFormat,
}

impl LogFlags {
    /// Returns the settings of a process whose filter is `usual` unless a flag says another.
    pub fn settings(&self, usual: &str) -> Settings {
        Settings {
            filter: self.log.clone().unwrap_or_else(|| usual.to_owned()),
            format: self.log_format,
            colors: cfg!(feature = "people") && stderr().is_terminal(),
        }
    }
}
