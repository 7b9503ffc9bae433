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
use std::{
    fs,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

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

/// A state folder of its own, which is removed at the end.
struct OwnFolder(PathBuf);

impl OwnFolder {
    fn create() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("petiole-once-{:016x}", fastrand::u64(..)));
        let created = fs::DirBuilder::new().mode(0o700).create(&path);
        created.with_context(|| format!("cannot create the folder {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // Nothing is left to do about a folder that cannot be removed.
        drop(fs::remove_dir_all(&self.0));
    }
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
    let own = OwnFolder::create()?;
    let store = Arc::new(FolderStore::open(folder::Settings {
        node_name: settings.node_name.clone(),
        configurations: configurations.to_owned(),
        state: own.0.clone(),
    })?);
    let (seen, asked) = (store.clone(), store.clone());
    let answered = async move { asked.answered().await };
    until_signal(|shutdown| agent::look(settings, seen, handlers, answered, shutdown)).await?;
    if !store.is_answered() {
        bail!("it was ended before every handler had answered");
    }
    print(&get::instances(folder::instances(&own.0)?, flags.output)?)?;
    match store.errors() {
        errors if errors.is_empty() => Ok(()),
        errors => bail!("{}", errors.trim_end()),
    }
}
