//! Runs `petiole handler`: one built-in discovery handler as a process of its own.
use crate::discovery::{
    external::process,
    handlers::{
        self, Allowed,
        probe::Networks,
        udev::{AllowedSubsystem, Subsystems},
    },
};
use anyhow::Context as _;
use clap::Args;
use petiole_cli::signals::until_signal;
use std::path::{Path, PathBuf};

/// The folder with the folders of isolated handlers on a node.
const ISOLATED_DIR: &str = "/var/lib/akri/isolated";

/// The flags of `petiole handler`.
#[derive(Debug, Args)]
#[command(after_help = "\
It needs no rights but to write into the folder, and no cluster. The agent runs with `--isolate-handlers NAME`, and
connects to the socket NAME/NAME.sock in its --isolated-dir.
zeroconf, onvif and udev need the network of the node, and udev its /sys and /run/udev. opcua needs it for servers that announce themselves; mqtt
and probe need what reaches the MQTT broker and the hosts.")]
pub struct Flags {
    /// Handler, as in `discoveryHandler.name` of a Configuration
    #[arg(value_parser = handlers::ISOLATABLE)]
    name: String,
    /// Folder of the handler's socket: the handler's own folder in the agent's --isolated-dir
    /// [default: /var/lib/akri/isolated/NAME]
    #[arg(long, env = "PETIOLE_HANDLERS_DIR", value_name = "DIR")]
    handlers_dir: Option<PathBuf>,
    /// Subsystems whose devices udev may offer, as for the agent
    #[arg(
        long,
        env = "PETIOLE_UDEV_SUBSYSTEMS",
        value_name = "SUBSYSTEM,...",
        value_delimiter = ',',
        default_value = "*"
    )]
    udev_subsystems: Vec<AllowedSubsystem>,
    #[command(flatten)]
    probe: super::probe::ProbeFlags,
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    let allowed = Allowed {
        networks: flags.probe.networks(Networks::ALL),
        subsystems: Subsystems::from_iter(flags.udev_subsystems),
        ..Allowed::all()
    };
    let mut built_in = handlers::builtin_with(allowed).into_iter();
    let handler = built_in.find(|handler| handler.name() == flags.name);
    let handler = handler.context("this handler is not built in")?;
    let folder = (flags.handlers_dir).unwrap_or_else(|| Path::new(ISOLATED_DIR).join(flags.name));
    until_signal(|shutdown| process::run(handler, folder, shutdown)).await
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use crate::discovery::handlers;
    use clap::Parser as _;

    #[test]
    fn a_handler_whose_devices_the_protocol_cannot_describe_is_not_isolated() {
        let agent = ["agent", "--node-name", "box", "--isolate-handlers"];
        for handler in handlers::builtin() {
            let name = handler.name();
            let is_taken = !["cdi", "paths"].contains(&name);
            let expected =
                format!("{name} is named in ISOLATABLE of src/discovery/handlers.rs, or here");
            let isolated = agent.iter().chain([&name]);
            let isolated = ["petiole"].iter().chain(isolated);
            assert_eq!(
                Cli::try_parse_from(isolated).is_ok(),
                is_taken,
                "{expected}"
            );
            let process = ["petiole", "handler", name];
            assert_eq!(Cli::try_parse_from(process).is_ok(), is_taken, "{expected}");
        }
    }
}
