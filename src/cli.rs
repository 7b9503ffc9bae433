//! Parses flags and environment variables into validated settings. No other module reads the environment.
//!
//! Each subcommand has a file with its flags and their conversion to settings. Every flag `--some-flag` of the agent
//! and the kubelet can also be given as `PETIOLE_SOME_FLAG`.
mod agent;
mod containers;
mod controller;
#[cfg(feature = "people")]
mod convert;
mod crds;
#[cfg(feature = "people")]
mod demo;
mod device_paths;
mod discover;
#[cfg(feature = "people")]
mod get;
mod handler;
mod isolation;
#[cfg(feature = "people")]
mod kubelet;
#[cfg(feature = "people")]
mod node_folders;
#[cfg(feature = "people")]
mod once;
mod open_files;
mod probe;
#[cfg(feature = "people")]
mod shell;
#[cfg(feature = "people")]
mod source;

use crate::telemetry;
#[cfg(feature = "people")]
use clap::CommandFactory as _;
use clap::{Parser, Subcommand};
use petiole_cli::log::LogFlags;
#[cfg(feature = "people")]
use petiole_people::cli::{self as people, plugin};

/// Joins leaf devices (cameras, sensors, printers, services on the LAN) to Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "petiole", version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    log: LogFlags,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Offer the devices of this node to its kubelet
    Agent(Box<agent::Flags>),
    /// Manage a cluster: brokers, Services, lost nodes, status
    Controller(controller::Flags),
    /// Run a kubelet's device manager, without a cluster and without containers
    #[cfg(feature = "people")]
    Kubelet(kubelet::Flags),
    /// Show a device from discovery to its container on this machine; needs no cluster and no root
    #[cfg(feature = "people")]
    Demo(demo::Flags),
    /// Run one discovery handler and print the devices that it finds
    Discover(discover::Flags),
    /// Run one discovery handler as a process of its own, without rights, for the agent of this node
    Handler(handler::Flags),
    /// Print what runs here without a cluster, as kubectl does: Pods, plugins and node of a `petiole kubelet`,
    /// Instances of a standalone agent
    #[cfg(feature = "people")]
    Get(get::Flags),
    /// Print the CustomResourceDefinitions of Configuration, Instance and NodeDevices
    Crds(crds::Flags),
    /// Write Configurations for what generic-device-plugin or smarter-device-manager offer, with the same resource names
    #[cfg(feature = "people")]
    Convert(convert::Flags),
    /// Print a script that completes commands and flags: petiole completions bash >/etc/bash_completion.d/petiole
    #[cfg(feature = "people")]
    Completions(shell::CompletionsFlags),
    /// Print the man page, or write the pages of all subcommands
    #[cfg(feature = "people")]
    Man(shell::ManFlags),
    #[cfg(feature = "people")]
    #[command(flatten)]
    People(people::Command<source::PlaceFlags>),
    #[command(flatten)]
    Cluster(petiole_cli::Command),
}

impl Cli {
    /// Parses the arguments of this process. Returns `None` if kubectl asked for completions, which are printed then.
    #[cfg(feature = "people")]
    pub fn from_process() -> anyhow::Result<Option<Self>> {
        use clap::FromArgMatches as _;
        match plugin::called_as() {
            plugin::Name::Petiole => Ok(Some(Self::parse())),
            plugin::Name::Plugin => {
                let command = Self::command().bin_name("kubectl petiole");
                let parsed = Self::from_arg_matches(&command.get_matches());
                Ok(Some(parsed.unwrap_or_else(|e| e.exit())))
            }
            plugin::Name::Completion => {
                plugin::complete(&Self::command())?;
                Ok(None)
            }
        }
    }

    /// Parses the arguments of this process.
    #[cfg(not(feature = "people"))]
    pub fn from_process() -> anyhow::Result<Option<Self>> {
        Ok(Some(Self::parse()))
    }

    pub fn telemetry(&self) -> telemetry::Settings {
        let usual = match self.command {
            // It prints the problems itself.
            #[cfg(feature = "people")]
            Command::Agent(ref flags) if flags.is_once() => "error",
            Command::Agent(_) | Command::Controller(_) => "info",
            Command::Handler(_) => "info",
            #[cfg(feature = "people")]
            Command::Kubelet(_) => "info",
            #[cfg(feature = "people")]
            Command::Get(_) => "warn",
            #[cfg(feature = "people")]
            Command::Completions(_) | Command::Convert(_) | Command::Man(_) => "warn",
            Command::Discover(ref flags) => flags.run.log(),
            Command::Crds(_) | Command::Cluster(_) => "warn",
            #[cfg(feature = "people")]
            Command::People(ref command) => command.usual_log(),
            // A line on stderr would spoil the screen.
            #[cfg(feature = "people")]
            Command::Demo(_) => "off",
        };
        self.log.settings(usual)
    }
}

/// Runs the subcommand until it ends or the process receives a signal to end.
pub async fn run(cli: Cli) -> anyhow::Result<()> {
    open_files::allow_all();
    match cli.command {
        Command::Agent(flags) => agent::run(*flags).await,
        Command::Controller(flags) => controller::run(flags).await,
        #[cfg(feature = "people")]
        Command::Kubelet(flags) => kubelet::run(flags).await,
        #[cfg(feature = "people")]
        Command::Demo(flags) => demo::run(flags).await,
        Command::Discover(flags) => discover::run(flags).await,
        Command::Handler(flags) => handler::run(flags).await,
        #[cfg(feature = "people")]
        Command::Get(flags) => get::run(flags).await,
        Command::Crds(flags) => crds::run(&flags),
        #[cfg(feature = "people")]
        Command::Convert(flags) => convert::run(&flags),
        #[cfg(feature = "people")]
        Command::Completions(flags) => shell::completions(&flags, Cli::command()),
        #[cfg(feature = "people")]
        Command::Man(flags) => shell::man(&flags, Cli::command()),
        #[cfg(feature = "people")]
        Command::People(command) => people::run(command).await,
        Command::Cluster(command) => petiole_cli::run(command).await,
    }
}
