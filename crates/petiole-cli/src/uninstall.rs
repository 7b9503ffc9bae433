//! Runs `petiole uninstall`.
use crate::{
    connection::ConnectionFlags,
    duration::duration,
    removal::{Release, Settings, Uninstall, uninstall, why_not_removed},
    scope::ScopeFlags,
    signals::until_signal,
    tidy::{self, or_stopped},
};
use clap::Args;
use std::{
    io::{Write as _, stderr},
    time::Duration,
};

/// The steps that remain for the user if Helm does not remove the release.
const BY_HAND: &str = "nothing is deleted. To remove an installation that Helm has not installed: `kubectl delete \
     configurations.akri.sh --all --all-namespaces`, wait until `kubectl get instances.akri.sh --all-namespaces` shows none, \
     and then delete the chart's objects";

/// The chart runs this command before it removes the agents. It deletes all Configurations and waits until the agents
/// have removed everything that came from them: no Instance is left, and no ready node has any of our resources
/// allocatable.
#[derive(Debug, Args)]
pub struct Flags {
    /// Delete only if Helm is removing this release; for the chart's hook, which is an ordinary Job to everything but
    /// Helm
    #[arg(long, value_name = "NAME", requires_all = ["namespace", "helm_revision"])]
    helm_release: Option<String>,
    /// Revision of --helm-release that the hook was made for; its later rollbacks count too
    #[arg(long, value_name = "N", requires = "helm_release")]
    helm_revision: Option<u64>,
    /// Namespace of --helm-release
    #[arg(long, env = "PETIOLE_NAMESPACE", hide_short_help = true)]
    namespace: Option<String>,
    /// Also wait until the nodes' capacity entries are gone, as `petiole tidy --wait` does; takes up to 6 minutes more
    #[arg(long, env = "PETIOLE_WAIT_FOR_TIDY")]
    wait_for_tidy: bool,
    /// Time that Configurations, Instances and plugins get to disappear (`50s`, `5m`)
    #[arg(long, env = "PETIOLE_TIMEOUT", value_name = "TIME", default_value = "50s", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    scope: ScopeFlags,
    #[command(flatten)]
    connection: ConnectionFlags,
}

impl Flags {
    fn release(&self) -> Option<Release> {
        Some(Release {
            name: self.helm_release.clone()?,
            namespace: self.namespace.clone()?,
            revision: self.helm_revision?,
        })
    }
}

pub async fn run(flags: Flags) -> anyhow::Result<()> {
    let client = flags.connection.client().await?;
    until_signal(|stop| or_stopped(Box::pin(remove(flags, client)), stop)).await
}

async fn remove(flags: Flags, client: kube::Client) -> anyhow::Result<()> {
    if let Some(release) = flags.release()
        && let Some(reason) = why_not_removed(&release, &client, flags.timeout).await?
    {
        writeln!(stderr(), "{reason}: {BY_HAND}")?;
        return Ok(());
    }
    let prefixes = flags.scope.resource_prefixes();
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        flags: Flags,
    }

    #[test]
    fn a_hook_names_its_release_whole_or_is_refused() {
        let parsed = |flags: &[&str]| {
            let args = ["petiole"].iter().chain(flags);
            let cli = Cli::try_parse_from(args.copied()).map_err(|e| e.to_string())?;
            Ok(cli.flags.release().map(|r| r.record_name(r.revision)))
        };
        let (name, revision) = (["--helm-release", "leaf"], ["--helm-revision", "3"]);
        let namespace = ["--namespace", "devices"];
        let record: Result<_, String> = Ok(Some("sh.helm.release.v1.leaf.v3".to_owned()));
        assert_eq!(parsed(&[name, revision, namespace].concat()), record);
        assert_eq!(parsed(&[]), Ok(None));
        for part in [
            &[name, revision][..],
            &[name, namespace],
            &[revision, namespace],
        ] {
            assert!(parsed(&part.concat()).is_err(), "{part:?}");
        }
    }
}
