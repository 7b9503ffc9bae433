//! Defines the flags of `petiole demo`.
use crate::demo::{self, Mode};
use clap::Args;
use petiole_cli::{signals::until_signal, table::print};
use std::io::{IsTerminal as _, stdout};

#[derive(Debug, Args)]
pub struct Flags {
    /// Print a line for each event instead of the live table; the default if stdout is not a terminal
    #[arg(long, env = "PETIOLE_PLAIN")]
    plain: bool,
    /// Run the scenario once, print the time of each step, and exit with 1 if a step takes longer than 60 s
    #[arg(long, conflicts_with = "plain")]
    once: bool,
}

impl Flags {
    fn mode(&self) -> Mode {
        match self {
            Self { once: true, .. } => Mode::Once,
            Self { plain: true, .. } => Mode::Plain,
            Self { .. } if !stdout().is_terminal() => Mode::Plain,
            Self { .. } => Mode::Screen,
        }
    }
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    let mode = flags.mode();
    until_signal(|shutdown| demo::run(mode, print, shutdown)).await
}
