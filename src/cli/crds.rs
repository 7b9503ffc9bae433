//! Runs `petiole crds`, which prints the CustomResourceDefinitions or writes them to files.
use crate::{api::crds, files};
use clap::Args;
use petiole_cli::table::print;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct Flags {
    /// Write each definition to `<its name>.yaml` in this folder instead of printing it
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<()> {
    for (name, document) in crds::ALL {
        match &flags.dir {
            Some(dir) => {
                let path = dir.join(format!("{name}.yaml"));
                files::write_atomically(&path, document.as_bytes(), 0o644)?;
            }
            None => print(document)?,
        }
    }
    Ok(())
}
