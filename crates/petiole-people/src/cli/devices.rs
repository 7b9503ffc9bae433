//! Runs `petiole devices`, which lists the devices of a cluster and who uses them.
use crate::inspect::{
    devices::{Device, devices},
    follow::{self, Scope, look},
    node_only,
    snapshot::Snapshot,
};
use anyhow::bail;
use clap::Args;
use jiff::Timestamp;
use kube::Client;
use petiole_cli::{
    connection::{ConnectionFlags, NamespaceFlags},
    signals::until_signal,
    table::{Columns, Output, Rows, print, render},
};
use petiole_model::{api::names, model::printable::printable};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    io::{Write as _, stderr},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Lists the devices: the nodes that offer them, the Pods that use them, and whether they are there.
#[derive(Debug, Args)]
pub struct Flags {
    #[command(flatten)]
    namespace: NamespaceFlags,
    /// Instances with these labels only, such as `node.akri.sh/node-1`: those that node-1 sees
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Print the list, and each device that changes, until the command is stopped
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    connection: ConnectionFlags,
}

/// The list as JSON and YAML.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeviceList<'a> {
    kind: &'static str,
    items: &'a [Device],
}

pub(crate) async fn run(flags: Flags) -> anyhow::Result<()> {
    let client = flags.connection.client().await?;
    if flags.watch {
        if !matches!(flags.output, Output::Table | Output::Wide) {
            bail!("--watch prints a table: leave out -o, or write -o wide");
        }
        return until_signal(|stop| Box::pin(follow(flags, client, stop))).await;
    }
    let snapshot = look(&client, &flags.scope(&client)).await?;
    let devices = devices(&snapshot, Timestamp::now());
    if devices.is_empty() && matches!(flags.output, Output::Table | Output::Wide) {
        let place = flags.namespace.namespace(&client);
        let place = place.map_or("any namespace".to_owned(), |name| {
            format!("namespace {name}")
        });
        writeln!(stderr(), "No devices found in {place}.")?;
    } else {
        let list = DeviceList {
            kind: "DeviceList",
            items: &devices,
        };
        let name = |device: &Device| format!("instance.{}/{}", names::GROUP, device.instance);
        let columns = || flags.columns([vec![head()], rows(&devices)].concat());
        let names = || devices.iter().map(name).collect();
        print(&render(flags.output, &list, columns, names)?)?;
    }
    if matches!(flags.output, Output::Table | Output::Wide) {
        for sentence in node_only::sentences(&snapshot) {
            writeln!(stderr(), "{sentence}")?;
        }
    }
    incomplete(&snapshot)
}

/// Tells what could not be read.
pub(crate) fn incomplete(snapshot: &Snapshot) -> anyhow::Result<()> {
    for unread in &snapshot.unread {
        writeln!(stderr(), "(incomplete: {})", printable(unread))?;
    }
    Ok(())
}

impl Flags {
    fn scope(&self, client: &Client) -> Scope {
        Scope {
            namespace: self.namespace.namespace(client),
            selector: self.selector.clone(),
        }
    }

    /// Returns rows as a table. Their first cell is the namespace, which is left out unless the user asks for all.
    fn columns(&self, mut rows: Rows) -> Columns {
        let has_namespace = self.namespace.all_namespaces;
        if !has_namespace {
            rows.iter_mut().for_each(|row| drop(row.remove(0)));
        }
        let narrow = usize::from(has_namespace) + Device::COLUMNS.len();
        Columns { narrow, rows }
    }
}

fn head() -> Vec<String> {
    let names = ["NAMESPACE"].into_iter().chain(Device::COLUMNS);
    let names = names.chain(Device::WIDE_COLUMNS);
    names.map(str::to_owned).collect()
}

fn rows(devices: &[Device]) -> Rows {
    let row = |device: &Device| {
        let cells = [device.namespace.clone()].into_iter().chain(device.cells());
        cells.chain(device.wide_cells()).collect()
    };
    devices.iter().map(row).collect()
}

/// Prints all devices, and then each row that changes, as `kubectl get -w` does.
async fn follow(flags: Flags, client: Client, stop: CancellationToken) -> anyhow::Result<()> {
    let (sender, mut looks) = watch::channel(None);
    let scope = flags.scope(&client);
    let looking = follow::run(client, scope, sender, stop.clone());
    let printing = async {
        let mut shown: Shown = BTreeMap::new();
        let mut head = Some(head());
        // The error of the last look, which the next one may repeat.
        let mut failed: Option<String> = None;
        while looks.changed().await.is_ok() {
            let Some(look) = looks.borrow_and_update().clone() else {
                continue;
            };
            let snapshot = match look.as_ref() {
                Ok(snapshot) => snapshot,
                // Nothing was printed yet.
                Err(e) if head.is_some() => bail!("{e:#}"),
                Err(e) => {
                    let text = format!("{e:#}");
                    if failed.as_ref() != Some(&text) {
                        writeln!(stderr(), "({})", printable(&text))?;
                    }
                    failed = Some(text);
                    continue;
                }
            };
            failed = None;
            let devices = devices(snapshot, Timestamp::now());
            let changed = changes(&mut shown, &devices, flags.output);
            let head = std::mem::take(&mut head);
            if head.is_some() {
                incomplete(snapshot)?;
            }
            let rows = head.into_iter().chain(rows(&changed)).collect();
            print(&flags.columns(rows).text(flags.output)?)?;
        }
        Ok(())
    };
    tokio::select! {
        outcome = looking => outcome,
        outcome = printing => outcome,
    }
}

/// The cells of each device that were printed last, without its age, by namespace and name of its Instance.
type Shown = BTreeMap<(String, String), Vec<String>>;

/// Returns the devices whose cells are not those that were printed last, and the ones that are gone.
fn changes(shown: &mut Shown, devices: &[Device], output: Output) -> Vec<Device> {
    let key = |device: &Device| (device.namespace.clone(), device.instance.clone());
    let cells = |device: &Device| {
        let [slots, address, path, resource, _age] = device.wide_cells();
        let wide = [slots, address, path, resource].into_iter();
        let wide = wide.filter(|_| output == Output::Wide);
        device.cells().into_iter().chain(wide).collect::<Vec<_>>()
    };
    let is_new = |device: &&Device| shown.get(&key(device)) != Some(&cells(device));
    let mut changed: Vec<Device> = devices.iter().filter(is_new).cloned().collect();
    let now: Shown = (devices.iter())
        .map(|device| (key(device), cells(device)))
        .collect();
    let gone = shown.iter().filter(|(key, _)| !now.contains_key(*key));
    changed.extend(
        gone.map(|((namespace, instance), cells)| Device::deleted(namespace, instance, cells)),
    );
    *shown = now;
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_device_is_printed_again_when_a_printed_cell_changes_and_not_with_its_age() {
        let cells = Device::COLUMNS.map(str::to_owned);
        let mut device = Device::deleted("default", "cam-0a1b2c", &cells);
        for (output, moved) in [(Output::Table, 0), (Output::Wide, 1)] {
            let mut shown = Shown::new();
            let mut printed =
                |device: &Device| changes(&mut shown, std::slice::from_ref(device), output).len();
            assert_eq!(printed(&device), 1);
            device.age = Some(Duration::from_secs(5));
            assert_eq!(printed(&device), 0);
            device.address = Some(format!("192.0.2.{moved}"));
            assert_eq!(printed(&device), moved, "{output:?}");
            device.health = format!("Unhealthy {moved}");
            assert_eq!(printed(&device), 1);
        }
    }
}
