//! Runs `petiole agent --standalone --once`: one look at the devices of this machine, for scripts.
use super::get;
use crate::{
    agent,
    discovery::session::Handlers,
    store::folder::{self, FolderStore},
};
use anyhow::{Context as _, bail};
use clap::Args;
use petiole_cli::{
    signals::until_signal,
    table::{Output, print},
};
use std::{fs::Permissions, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc};
use tempfile::Builder;

#[derive(Debug, Args)]
pub(super) struct OnceFlags {
    /// Without a cluster: print the devices of all Configurations when every handler has looked once, and end. No
    /// kubelet is needed, nothing is written, and a running agent is not disturbed. Only built-in handlers look. The exit code is 1 if a
    /// Configuration has a problem
    #[arg(
        long,
        env = "PETIOLE_ONCE",
        requires = "standalone",
        conflicts_with_all = ["render_brokers", "http_address", "metrics_address"]
    )]
    pub(super) once: bool,
    /// Output format of --once
    #[arg(
        short,
        long,
        env = "PETIOLE_OUTPUT",
        value_enum,
        default_value = "table"
    )]
    output: Output,
}

pub(super) async fn run(
    flags: &OnceFlags,
    configurations: &Path,
    settings: agent::Settings,
    handlers: Handlers,
) -> anyhow::Result<()> {
    if !configurations.is_dir() {
        bail!(
            "{} is no folder of Configurations",
            configurations.display()
        );
    }
    let own = Builder::new()
        .prefix("petiole-once-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
        .context("cannot create a folder for temporary files")?;
    let store = Arc::new(FolderStore::open(folder::Settings {
        node_name: settings.node_name.clone(),
        configurations: configurations.to_owned(),
        state: own.path().to_owned(),
    })?);
    let (seen, asked) = (store.clone(), store.clone());
    let answered = async move { asked.answered().await };
    until_signal(|shutdown| agent::look(settings, seen, handlers, answered, shutdown)).await?;
    if !store.is_answered() {
        bail!("it was ended before every handler had answered");
    }
    let shown = get::instances(folder::instances(own.path())?, flags.output)?;
    // A reader that has gone hides no problem.
    let printed = print(&shown);
    match folder::errors(own.path())? {
        errors if errors.is_empty() => printed,
        errors => bail!("{}", errors.trim_end()),
    }
}
