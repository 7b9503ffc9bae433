//! Flags of `petiole uninstall`.
use super::{
    duration::duration,
    scope::ScopeFlags,
    signals::until_told_to_stop,
    tidy::{self, or_stopped},
};
use crate::{
    cluster,
    tidy::{Settings, Uninstall, uninstall},
};
use clap::Args;
use std::{
    io::{Write as _, stderr},
    time::Duration,
};

/// Run by the chart before it deletes the agents. Deletes all Configurations and waits until the agents have taken
/// away what came of them: no Instance is left, and no ready node has any of our resources allocatable.
#[derive(Debug, Args)]
pub struct Flags {
    /// Also wait until the nodes' capacity entries are gone, as `petiole tidy --wait`: takes up to 6 minutes more
    #[arg(long, env = "PETIOLE_WAIT_FOR_TIDY")]
    wait_for_tidy: bool,
    /// How long Configurations, Instances and plugins may take to go (`50s`, `5m`)
    #[arg(long, env = "PETIOLE_TIMEOUT", value_name = "TIME", default_value = "50s", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    scope: ScopeFlags,
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    let client = cluster::client().await?;
    until_told_to_stop(|stop| or_stopped(Box::pin(remove(flags, client)), stop)).await
}

async fn remove(flags: Flags, client: kube::Client) -> anyhow::Result<()> {
    let prefixes = flags.scope.resource_prefixes.clone();
    let namespaces = flags.scope.namespaces();
    let settings = Uninstall {
        prefixes: prefixes.clone(),
        namespaces: namespaces.clone(),
        timeout: flags.timeout,
    };
    uninstall(&settings, &client).await?;
    writeln!(
        stderr(),
        "Configurations, Instances and device plugins are gone"
    )?;
    if !flags.wait_for_tidy {
        return Ok(());
    }
    let settings = Settings {
        prefixes,
        namespaces,
        node: None,
        is_dry_run: false,
        waits: true,
    };
    tidy::print(settings, client).await
}
