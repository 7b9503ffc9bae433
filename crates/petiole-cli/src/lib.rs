//! What the command lines of all programs have: the subcommands that need nothing but a cluster, and the flags, tables and signals
//! that other subcommands have, too.
//!
//! | module | what it has |
//! |---|---|
//! | [`check`], [`tidy`], [`uninstall`] | the subcommands of these names |
//! | [`removal`] | removes stale entries of the capacity of nodes, and whole installations |
//! | [`connection`], [`discover`], [`duration`], [`log`], [`scope`] | flags |
//! | [`table`], `colors` | what is printed |
//! | [`signals`] | the clean end of a process |
pub mod check;
#[cfg(feature = "people")]
pub mod colors;
pub mod connection;
pub mod discover;
pub mod duration;
pub mod log;
pub mod removal;
pub mod scope;
pub mod signals;
pub mod table;
pub mod tidy;
pub mod uninstall;

use clap::Subcommand;
use petiole_base::yaml;
use petiole_cluster as cluster;
use petiole_model::{api, model};
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check an installation on a cluster: definitions, agents, controller
    Check(check::Flags),
    /// Remove stale entries from the capacity of nodes
    Tidy(tidy::Flags),
    /// Delete all Configurations and wait until everything that came from them is removed
    Uninstall(uninstall::Flags),
}

/// Prints the error of a program, and returns its exit code.
pub fn exit_code(program: &str, outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<table::ReaderGone>() => ExitCode::SUCCESS,
        Err(error) => {
            table::print_error(&format!("{program}: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Runs the subcommand until it ends or the process receives a signal to end.
pub async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Check(flags) => check::run(flags).await,
        Command::Tidy(flags) => tidy::run(flags).await,
        Command::Uninstall(flags) => uninstall::run(flags).await,
    }
}
