//! Runs `petiole convert`, which writes Configurations for what other device plugins offer.
use crate::{convert::convert, files, yaml};
use anyhow::{Context as _, bail};
use clap::Args;
use petiole_cli::table::print;
use std::{
    io::{Read as _, Write as _, stderr, stdin},
    path::PathBuf,
};

/// The most bytes of each input of `petiole convert`. Beyond it: nothing is converted.
const INPUT_BYTES_MAX: u64 = 8 << 20;

/// Writes Configurations with the resource names of generic-device-plugin and smarter-device-manager, so that no Pod changes,
/// and checks Akri's Configurations. It prints the Configurations on stdout; on stderr what cannot be converted, what is different,
/// and the values of the chart that they need. The exit code is 1 if something cannot be converted. No cluster is asked.
#[derive(Debug, Args)]
pub struct Flags {
    /// Manifest with DaemonSets, Pods, ConfigMaps, Nodes or Configurations, or the configuration file of a plugin; several are read
    /// together [default: standard input, if there are no arguments after --]
    #[arg(short, long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Arguments of a generic-device-plugin, such as --device and --domain
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<()> {
    let mut documents = vec![];
    if flags.files.is_empty() && flags.arguments.is_empty() {
        let mut text = String::new();
        let mut input = stdin().lock().take(INPUT_BYTES_MAX + 1);
        let read = input.read_to_string(&mut text);
        read.context("standard input cannot be read")?;
        if text.len() as u64 > INPUT_BYTES_MAX {
            bail!("standard input has more than {INPUT_BYTES_MAX} bytes");
        }
        documents = yaml::from_multiple(&text).context("standard input")?;
    }
    for file in &flags.files {
        let text = files::read_text(file, INPUT_BYTES_MAX);
        let text = text.with_context(|| file.display().to_string())?;
        let read = yaml::from_multiple(&text);
        documents.extend(read.with_context(|| file.display().to_string())?);
    }
    let converted = convert(documents, &flags.arguments);
    let printed = print(&converted.manifests);
    for line in &converted.said {
        writeln!(stderr(), "{line}")?;
    }
    match converted.refused {
        0 => printed,
        refused => bail!("{refused} entries could not be converted, see above"),
    }
}
