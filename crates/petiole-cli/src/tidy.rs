//! Runs `petiole tidy`.
use crate::{
    connection::ConnectionFlags,
    removal::{self, Action, Entry, Offer, Progress, Settings},
    scope::ScopeFlags,
    signals::until_signal,
    table::{self, row},
};
use anyhow::bail;
use clap::Args;
use std::io::{Write as _, stderr, stdout};
use tokio_util::sync::CancellationToken;

/// Agents do this by themselves, five and a half minutes after a device's plugin stopped. This command is for a cluster
/// whose agents are gone. It removes the entries with our prefixes that belong to no Instance from the capacity of all
/// nodes, labels `akri.sh/has-…` of Configurations that do not exist, and the ResourceSlices and DeviceClasses of such. Of Pods with claims
/// that cannot start or end without an agent it says what to run. A kubelet puts an entry back for 5 minutes after its plugin stopped;
/// --wait removes these too.
#[derive(Debug, Args)]
pub struct Flags {
    /// Clean up only this node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Print the entries that would be removed, and remove nothing
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Continue until no entry was put back for 25 s, which takes up to 6 minutes
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    scope: ScopeFlags,
    #[command(flatten)]
    connection: ConnectionFlags,
}

/// The hint that is printed after entries were removed without `--wait`.
const MAY_COME_BACK: &str = "a kubelet puts an entry back for 5 minutes after its plugin stopped: `petiole tidy --wait` stays until none comes back";

pub async fn run(flags: Flags) -> anyhow::Result<()> {
    let settings = Settings {
        prefixes: flags.scope.resource_prefixes(),
        namespaces: flags.scope.namespaces(),
        node: flags.node,
        is_dry_run: flags.dry_run,
        waits: flags.wait,
    };
    let client = flags.connection.client().await?;
    until_signal(|stop| or_stopped(Box::pin(print(settings, client)), stop)).await
}

/// Runs the work until it is stopped. Work that was stopped before its end is an error.
pub async fn or_stopped(
    work: impl Future<Output = anyhow::Result<()>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    match stop.run_until_cancelled(work).await {
        Some(outcome) => outcome,
        None => bail!("stopped before it was done"),
    }
}

/// Removes the entries, and prints a table of them.
pub async fn print(settings: Settings, client: kube::Client) -> anyhow::Result<()> {
    let mut is_first = true;
    let mut has_removed = false;
    removal::tidy(&settings, &client, |progress| {
        match progress {
            Progress::Entries([]) => {}
            Progress::Entries(entries) => {
                let table = table(is_first.then_some(HEAD), entries)?;
                stdout().write_all(table.as_bytes())?;
                is_first = false;
                has_removed |= entries.iter().any(|(_, action)| *action == Action::Removed);
            }
            Progress::Waits => writeln!(
                stderr(),
                "waiting until every entry has stayed away for 25 s: for 5 minutes after a plugin stopped its kubelet puts them back"
            )?,
        }
        Ok(())
    })
    .await?;
    removal::tidy_offers(&settings, &client, |offer| {
        match offer {
            Offer::Stale(kind, name, action) => {
                is_first = false;
                writeln!(stdout(), "{kind} {name}: {}", words(action))?;
            }
            Offer::Stuck(command) => writeln!(
                stderr(),
                "a Pod with a claim is on a node without an agent, and cannot start or end; run: {command}"
            )?,
        }
        Ok(())
    })
    .await?;
    if is_first {
        writeln!(stdout(), "no stale entries")?;
    }
    if has_removed && !settings.waits {
        writeln!(stderr(), "{MAY_COME_BACK}")?;
    }
    Ok(())
}

const HEAD: [&str; 4] = ["NODE", "RESOURCE", "CAPACITY", "ACTION"];

fn table(head: Option<[&str; 4]>, entries: &[(Entry, Action)]) -> anyhow::Result<String> {
    let mut rows: Vec<_> = head.map(row).into_iter().collect();
    rows.extend(entries.iter().map(|(entry, action)| {
        row([
            &entry.node,
            &entry.resource,
            &entry.capacity,
            words(*action),
        ])
    }));
    table::table(&rows)
}

fn words(action: Action) -> &'static str {
    match action {
        Action::WouldBeRemoved => "would be removed",
        Action::Removed => "removed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_has_a_line_that_says_what_was_done() {
        let entry = |resource: &str| Entry {
            node: "node-1".into(),
            resource: resource.parse().unwrap(),
            capacity: "2".to_owned(),
        };
        let entries = [
            (entry("akri.sh/a"), Action::Removed),
            (entry("akri.sh/long"), Action::WouldBeRemoved),
        ];
        let expected = "\
NODE     RESOURCE       CAPACITY   ACTION
node-1   akri.sh/a      2          removed
node-1   akri.sh/long   2          would be removed
";
        assert_eq!(table(Some(HEAD), &entries).unwrap(), expected);
        assert_eq!(table(None, &entries).unwrap().lines().count(), 2);
    }
}
