//! Parses the command line, starts logging, runs the subcommand; its error is the exit code.
use petiole::{cli, telemetry};
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    petiole_cli::exit_code("petiole", run().await)
}

async fn run() -> anyhow::Result<()> {
    let Some(cli) = cli::Cli::from_process()? else {
        return Ok(());
    };
    telemetry::start(&cli.telemetry())?;
    cli::run(cli).await
}
