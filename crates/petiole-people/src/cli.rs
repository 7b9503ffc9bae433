//! The subcommands that show a cluster to people. `petiole` has them, and `kubectl-petiole` has these alone. [`discover`] is a
//! part of the subcommand of that name of `petiole`, which also runs handlers itself.
mod devices;
pub mod discover;
mod doctor;
pub mod plugin;
mod source;
mod top;
mod web;
mod why;

use clap::Subcommand;
pub use source::{ClusterFlags, SourceFlags};

#[derive(Debug, Subcommand)]
pub enum Command<S: SourceFlags> {
    /// List the devices of a cluster: where they are, who uses them, and whether they are there
    Devices(devices::Flags),
    /// Show devices live on the terminal
    Top(top::Flags<S>),
    /// Serve devices as a web page that changes by itself
    Web(web::Flags<S>),
    /// Explain why a Pod has no device, or what a Configuration or an Instance lacks
    Why(why::Flags),
    /// Look at an installation as a whole: definitions, rights, versions, nodes, leftovers
    Doctor(doctor::Flags),
}

impl<S: SourceFlags> Command<S> {
    /// Returns the filter of the log that is used unless a flag says another.
    pub fn usual_log(&self) -> &'static str {
        match self {
            Self::Devices(_) | Self::Web(_) | Self::Why(_) | Self::Doctor(_) => "warn",
            // A line on stderr would spoil the screen.
            Self::Top(_) => "off",
        }
    }
}

/// Runs the subcommand.
pub async fn run(command: Command<impl SourceFlags>) -> anyhow::Result<()> {
    match command {
        Command::Devices(flags) => devices::run(flags).await,
        Command::Top(flags) => top::run(flags).await,
        Command::Web(flags) => web::run(flags).await,
        Command::Why(flags) => why::run(flags).await,
        Command::Doctor(flags) => doctor::run(flags).await,
    }
}
