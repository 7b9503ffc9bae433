//! Runs `petiole handler`: one built-in discovery handler as a process of its own.
use super::signals::until_signal;
#[cfg(feature = "udev")]
use crate::discovery::handlers::udev::{AllowedSubsystem, Subsystems};
use crate::discovery::{
    external::process,
    handlers::{self, Allowed},
};
use anyhow::Context as _;
use clap::Args;
use std::path::PathBuf;

/// The flags of `petiole handler`.
#[derive(Debug, Args)]
#[command(after_help = "\
It needs no rights but to write into the folder, and no cluster. The agent runs with `--isolate-handlers NAME`, and
connects to the socket NAME.sock in this folder. If an agent serves agent-registration.sock there, it registers too.
zeroconf and udev need the network of the node, and udev its /sys and /run/udev.")]
pub struct Flags {
    /// Handler, as in `discoveryHandler.name` of a Configuration: zeroconf, udev or debugEcho
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
    /// Subsystems whose devices udev may offer, as for the agent
    #[cfg(feature = "udev")]
    #[arg(
        long,
        env = "PETIOLE_UDEV_SUBSYSTEMS",
        value_name = "SUBSYSTEM,...",
        value_delimiter = ',',
        default_value = "*"
    )]
    udev_subsystems: Vec<AllowedSubsystem>,
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    let allowed = Allowed {
        #[cfg(feature = "udev")]
        subsystems: Subsystems::from_iter(flags.udev_subsystems),
        ..Allowed::ALL
    };
    let mut built_in = handlers::builtin_with(allowed).into_iter();
    let handler = built_in.find(|handler| handler.name() == flags.name);
    let handler = handler.context("this handler is not built in")?;
    until_signal(|shutdown| process::run(handler, flags.handlers_dir, shutdown)).await
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use clap::Parser as _;

    #[test]
    fn a_handler_whose_devices_the_protocol_cannot_describe_is_not_isolated() {
        let agent = ["agent", "--node-name", "box", "--isolate-handlers"];
        for (name, is_taken) in [
            ("zeroconf", true),
            ("debugEcho", true),
            #[cfg(feature = "udev")]
            ("udev", true),
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
