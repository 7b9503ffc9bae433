//! `petiole crds`: prints the CustomResourceDefinitions, or writes them as files.
use crate::{api::crds, files};
use clap::Args;
use std::{
    io::{Write as _, stdout},
    path::PathBuf,
};

#[derive(Debug, Args)]
pub struct Flags {
    /// Write each into this folder, as `<its name>.yaml`, instead of printing both
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
            None => stdout().lock().write_all(document.as_bytes())?,
        }
    }
    Ok(())
}
