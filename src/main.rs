//! Parses the command line, starts logging, runs the subcommand; its error is the exit code.
use petiole::{cli, telemetry};
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = cli::Cli::from_process();
    let outcome = match telemetry::start(&cli.telemetry()) {
        Ok(()) => cli::run(cli).await,
        Err(e) => Err(e),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("petiole: {error:#}");
            ExitCode::FAILURE
        }
    }
}
