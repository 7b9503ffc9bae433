//! Runs `petiole handler`: one built-in discovery handler as a process of its own.
use super::signals::until_signal;
use crate::discovery::{external::process, handlers};
use anyhow::Context as _;
use clap::Args;
use std::path::PathBuf;

/// The flags of `petiole handler`.
#[derive(Debug, Args)]
#[command(after_help = "\
It needs no rights but to write into the folder, and no cluster. The agent runs with `--isolate-handlers NAME`, and
connects to the socket NAME.sock in this folder. If an agent serves agent-registration.sock there, it registers too.")]
pub struct Flags {
    /// Handler, as in `discoveryHandler.name` of a Configuration: zeroconf or debugEcho
    #[arg(value_parser = handlers::ISOLATABLE, hide_possible_values = true)]
    name: String,
    /// Folder of the handler's socket: --isolated-dir of the agent, or its --handlers-dir
    #[arg(
        long,
        env = "PETIOLE_HANDLERS_DIR",
        value_name = "DIR",
        default_value = "/var/lib/akri/isolated"
    )]
    handlers_dir: PathBuf,
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    let mut built_in = handlers::builtin().into_iter();
    let handler = built_in.find(|handler| handler.name() == flags.name);
    let handler = handler.context("this handler is not built in")?;
    until_signal(|shutdown| process::run(handler, flags.handlers_dir, shutdown)).await
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use clap::Parser as _;

    #[test]
    fn handlers_that_read_the_node_or_give_it_away_are_not_isolated() {
        let agent = ["agent", "--node-name", "box", "--isolate-handlers"];
        for (name, is_taken) in [
            ("zeroconf", true),
            ("debugEcho", true),
            ("udev", false),
            ("cdi", false),
        ] {
            let isolated = agent.iter().chain([&name]);
            let isolated = ["petiole"].iter().chain(isolated);
            assert_eq!(Cli::try_parse_from(isolated).is_ok(), is_taken, "{name}");
            let process = ["petiole", "handler", name];
            assert_eq!(Cli::try_parse_from(process).is_ok(), is_taken, "{name}");
        }
    }
}
