//! The plugin for kubectl alone. It has what `petiole` has for a whole cluster, and runs on every system that kubectl runs on.
use clap::{CommandFactory as _, Parser, Subcommand};
use petiole_cli::log::LogFlags;
use petiole_people::cli::{
    self, ClusterFlags, discover,
    plugin::{self, Name},
};
use std::process::ExitCode;

/// Shows the leaf devices of a Kubernetes cluster, explains what is missing, and cleans up.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-petiole",
    bin_name = "kubectl petiole",
    version,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: LogFlags,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    People(cli::Command<ClusterFlags>),
    /// Run one discovery handler on a node, and print the devices that it finds
    Discover(discover::Flags),
    #[command(flatten)]
    Cluster(petiole_cli::Command),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    petiole_cli::exit_code("kubectl-petiole", run().await)
}

async fn run() -> anyhow::Result<()> {
    if plugin::called_as() == Name::Completion {
        return plugin::complete(&Cli::command());
    }
    let cli = Cli::parse();
    let usual = match &cli.command {
        Command::People(command) => command.usual_log(),
        Command::Discover(_) | Command::Cluster(_) => "warn",
    };
    petiole_telemetry::start(&cli.log.settings(usual))?;
    match cli.command {
        Command::People(command) => cli::run(command).await,
        Command::Discover(flags) => discover::run(flags).await,
        Command::Cluster(command) => petiole_cli::run(command).await,
    }
}
