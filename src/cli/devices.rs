//! Runs `petiole devices`, which lists the devices of a cluster and who uses them.
use super::{
    connection::{ConnectionFlags, NamespaceFlags},
    signals::until_signal,
    table::{Output, Rows, print, render, table},
};
use crate::{
    api::{instance::Instance, names},
    cluster::watch,
    inspect::{
        devices::{Device, devices},
        read,
    },
    model::printable::printable,
};
use anyhow::bail;
use clap::Args;
use jiff::Timestamp;
use kube::{Client, runtime::watcher};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    io::{Write as _, stderr},
    time::Duration,
};
use tokio::{sync, time::sleep};
use tokio_util::sync::CancellationToken;

/// The shortest time between two looks while changes do not end.
const PAUSE: Duration = Duration::from_secs(1);

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

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    let client = flags.connection.client().await?;
    if flags.watch {
        if !matches!(flags.output, Output::Table | Output::Wide) {
            bail!("--watch prints a table: leave out -o, or write -o wide");
        }
        return until_signal(|stop| Box::pin(follow(flags, client, stop))).await;
    }
    let (devices, unread) = Box::pin(look(&flags, &client)).await?;
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
        let rows = || rows(&flags, &devices, true);
        let names = || devices.iter().map(name).collect();
        print(&render(flags.output, &list, rows, names)?)?;
    }
    for unread in unread {
        writeln!(stderr(), "(incomplete: {})", printable(&unread))?;
    }
    Ok(())
}

async fn look(flags: &Flags, client: &Client) -> anyhow::Result<(Vec<Device>, Vec<String>)> {
    let namespace = flags.namespace.namespace(client);
    let selector = flags.selector.as_deref();
    let snapshot = read::devices_with(client, namespace.as_deref(), selector).await?;
    let devices = devices(&snapshot, Timestamp::now());
    Ok((devices, snapshot.unread))
}

fn rows(flags: &Flags, devices: &[Device], has_head: bool) -> Rows {
    let is_wide = flags.output == Output::Wide;
    let is_all = flags.namespace.all_namespaces;
    let columns = |namespace: &str, cells: Vec<String>, wide: Vec<String>| {
        let namespace = is_all.then(|| namespace.to_owned());
        let wide = wide.into_iter().filter(|_| is_wide);
        namespace.into_iter().chain(cells).chain(wide).collect()
    };
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let head = columns(
        "NAMESPACE",
        texts(&Device::COLUMNS),
        texts(&Device::WIDE_COLUMNS),
    );
    let rows = devices.iter().map(|device| {
        let (cells, wide) = (device.cells().to_vec(), device.wide_cells().to_vec());
        columns(&device.namespace, cells, wide)
    });
    has_head.then_some(head).into_iter().chain(rows).collect()
}

/// Prints all devices, and then each row that changes, as `kubectl get -w` does.
async fn follow(flags: Flags, client: Client, stop: CancellationToken) -> anyhow::Result<()> {
    let namespaces: Vec<String> = flags.namespace.namespace(&client).into_iter().collect();
    let mut config = watcher::Config::default();
    if let Some(selector) = &flags.selector {
        config = config.labels(selector);
    }
    let (sender, mut changes) = sync::watch::channel(None);
    let apis = watch::apis::<Instance>(&client, &namespaces);
    let watching = watch::run(
        apis,
        watch::Selection::new("Instances", config),
        drop,
        sender,
        stop.clone(),
    );
    let printing =
        async {
            let mut shown: BTreeMap<(String, String), [String; 6]> = BTreeMap::new();
            let mut is_first = true;
            while changes.changed().await.is_ok() {
                let (devices, _) = look(&flags, &client).await?;
                let is_new = |device: &&Device| {
                    let key = (device.namespace.clone(), device.instance.clone());
                    shown.get(&key) != Some(&device.cells())
                };
                let mut changed: Vec<Device> = devices.iter().filter(is_new).cloned().collect();
                let now: BTreeMap<_, _> = (devices.iter())
                    .map(|device| {
                        (
                            (device.namespace.clone(), device.instance.clone()),
                            device.cells(),
                        )
                    })
                    .collect();
                let gone = shown.iter().filter(|(key, _)| !now.contains_key(*key));
                changed.extend(gone.map(|((namespace, instance), cells)| {
                    Device::deleted(namespace, instance, cells)
                }));
                print(&table(&rows(&flags, &changed, is_first))?)?;
                is_first = false;
                shown = now;
                sleep(PAUSE).await;
            }
            Ok(())
        };
    tokio::select! {
        outcome = watching => outcome,
        outcome = stop.run_until_cancelled(printing) => outcome.unwrap_or(Ok(())),
    }
}
