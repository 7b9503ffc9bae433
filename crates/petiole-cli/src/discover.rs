//! What the command line of `discover` is, wherever the handler runs: here, or in a Pod on a node.
use crate::duration::duration;
use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use petiole_model::api::names::BUILT_IN_HANDLERS;
use std::{io::BufRead as _, time::Duration};

/// The flags that are the same wherever the handler runs.
#[derive(Debug, Args)]
pub struct HandlerFlags {
    #[arg(help = format!("Handler, as in `discoveryHandler.name` of a Configuration: {}", BUILT_IN_HANDLERS.join(", ")))]
    pub handler: String,
    /// File with `discoveryDetails` or with a whole Configuration; - is stdin
    #[arg(long, value_name = "FILE")]
    pub details: String,
    /// Duration of the discovery: 5s, 500ms, 1m30s
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub look: Option<Duration>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Output,
    /// With `-o yaml`, print a Configuration that finds only the devices with these ids or names of Instances
    #[arg(long, value_name = "DEVICE")]
    pub mark: Vec<String>,
    /// Show the conversation on stderr: what was asked, what came, and what was ignored and why (zeroconf,
    /// onvif, opcua, mqtt, probe)
    #[arg(short, long)]
    pub verbose: bool,
    /// Name of the Configuration, with which the names of Instances begin [default: the file's Configuration, else the
    /// handler]
    #[arg(long, value_name = "NAME")]
    pub configuration: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A line for each change: Instance, address of the device, its id
    Table,
    /// The same, with all properties
    Wide,
    /// One list at the end
    Json,
    /// One list at the end
    Yaml,
}

impl HandlerFlags {
    /// Returns an error if flags contradict each other.
    pub fn check(&self) -> anyhow::Result<()> {
        if !self.mark.is_empty() && self.output != Output::Yaml {
            bail!("--mark chooses devices for a Configuration: add -o yaml");
        }
        Ok(())
    }

    /// Returns what to log where the user has not said.
    pub fn log(&self) -> &'static str {
        if self.verbose {
            "warn,petiole_mdns=debug,petiole::discovery::handlers=debug,petiole::progress=debug"
        } else {
            "warn,petiole::progress=debug"
        }
    }
}

/// The byte that ends the text on a stdin which stays open. The discovery then ends with stdin: so a command that was
/// started in a Pod does not outlive the one who started it.
pub const END: u8 = 0;

/// Returns the text of a file, or of stdin for `-`.
pub fn text_of(path: &str) -> anyhow::Result<String> {
    if path != "-" {
        return std::fs::read_to_string(path).with_context(|| format!("{path} cannot be read"));
    }
    let mut text = vec![];
    let read = std::io::stdin().lock().read_until(END, &mut text);
    read.context("stdin cannot be read")?;
    String::from_utf8(text).context("stdin is not UTF-8")
}
