//! Parses flags and environment variables into validated settings. No other module reads the environment.
//!
//! Each subcommand has a file with its flags and their conversion to settings. Every flag `--some-flag` of the agent
//! and the kubelet can also be given as `PETIOLE_SOME_FLAG`.
mod agent;
mod check;
#[cfg(feature = "people")]
mod colors;
mod connection;
mod containers;
mod controller;
#[cfg(feature = "people")]
mod convert;
mod crds;
#[cfg(feature = "people")]
mod demo;
mod device_paths;
#[cfg(feature = "people")]
mod devices;
mod discover;
#[cfg(feature = "people")]
mod doctor;
mod duration;
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
#[cfg(feature = "people")]
mod plugin;
mod probe;
mod scope;
#[cfg(feature = "people")]
mod shell;
mod signals;
#[cfg(feature = "people")]
mod source;
mod table;
mod tidy;
#[cfg(feature = "people")]
mod top;
mod uninstall;
#[cfg(feature = "people")]
mod web;
#[cfg(feature = "people")]
mod why;

use crate::telemetry::{self, LogFormat};
use clap::{Args, Parser, Subcommand};
use std::io::{IsTerminal as _, stderr};

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
    /// Print the CustomResourceDefinitions of Configuration and Instance
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
    /// List the devices of a cluster: where they are, who uses them, and whether they are there
    #[cfg(feature = "people")]
    Devices(devices::Flags),
    /// Show the devices of a cluster, or of a node without one, live on the terminal
    #[cfg(feature = "people")]
    Top(top::Flags),
    /// Serve the devices of a cluster, or of a node without one, as a web page that changes by itself
    #[cfg(feature = "people")]
    Web(web::Flags),
    /// Explain why a Pod has no device, or what a Configuration or an Instance lacks
    #[cfg(feature = "people")]
    Why(why::Flags),
    /// Look at an installation as a whole: definitions, rights, versions, nodes, leftovers
    #[cfg(feature = "people")]
    Doctor(doctor::Flags),
    /// Check an installation on a cluster: definitions, agents, controller
    Check(check::Flags),
    /// Remove stale entries from the capacity of nodes
    Tidy(tidy::Flags),
    /// Delete all Configurations and wait until everything that came from them is removed
    Uninstall(uninstall::Flags),
}

#[derive(Debug, Args)]
struct LogFlags {
    /// Log filter: `error`, `warn`, `info`, `debug`, or directives such as `petiole=debug,warn` [default: info for
    /// agent, controller, handler and kubelet; off for demo; else warn]
    #[arg(long, global = true, env = "PETIOLE_LOG", help_heading = "Logging")]
    log: Option<String>,
    /// Format of the log on stderr
    #[arg(
        long,
        global = true,
        env = "PETIOLE_LOG_FORMAT",
        value_enum,
        default_value = "text",
        help_heading = "Logging"
    )]
    log_format: LogFormat,
}

impl Cli {
    /// Parses the arguments of this process. Returns `None` if kubectl asked for completions, which are printed then.
    #[cfg(feature = "people")]
    pub fn from_process() -> anyhow::Result<Option<Self>> {
        use clap::{CommandFactory as _, FromArgMatches as _};
        let mut arguments = std::env::args_os();
        match plugin::name(arguments.next().as_deref()) {
            plugin::Name::Petiole => Ok(Some(Self::parse())),
            plugin::Name::Plugin => {
                let command = Self::command().bin_name("kubectl petiole");
                let parsed = Self::from_arg_matches(&command.get_matches());
                Ok(Some(parsed.unwrap_or_else(|e| e.exit())))
            }
            plugin::Name::Completion => {
                let words = arguments.filter_map(|argument| argument.into_string().ok());
                let words: Vec<String> = words.collect();
                table::print(&plugin::completions(&Self::command(), &words))?;
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
            Command::Discover(ref flags) => flags.log(),
            Command::Crds(_) | Command::Check(_) | Command::Tidy(_) | Command::Uninstall(_) => {
                "warn"
            }
            #[cfg(feature = "people")]
            Command::Devices(_) | Command::Why(_) | Command::Doctor(_) | Command::Web(_) => "warn",
            // A line on stderr would spoil the screen.
            #[cfg(feature = "people")]
            Command::Top(_) => "off",
            #[cfg(feature = "people")]
            Command::Demo(_) => "off",
        };
        telemetry::Settings {
            filter: self.log.log.clone().unwrap_or_else(|| usual.to_owned()),
            format: self.log.log_format,
            colors: cfg!(feature = "people") && stderr().is_terminal(),
        }
    }
}

/// Runs the subcommand until it ends or the process receives SIGINT or SIGTERM.
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
        Command::Completions(flags) => shell::completions(&flags),
        #[cfg(feature = "people")]
        Command::Man(flags) => shell::man(&flags),
        #[cfg(feature = "people")]
        Command::Devices(flags) => devices::run(flags).await,
        #[cfg(feature = "people")]
        Command::Top(flags) => top::run(flags).await,
        #[cfg(feature = "people")]
        Command::Web(flags) => web::run(flags).await,
        #[cfg(feature = "people")]
        Command::Why(flags) => why::run(flags).await,
        #[cfg(feature = "people")]
        Command::Doctor(flags) => doctor::run(flags).await,
        Command::Check(flags) => check::run(flags).await,
        Command::Tidy(flags) => tidy::run(flags).await,
        Command::Uninstall(flags) => uninstall::run(flags).await,
    }
}
