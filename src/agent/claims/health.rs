//! Tells the kubelet the health of the devices of prepared claims: it writes it into the status of their Pods.
use super::plan::instance_of;
use crate::agent::{
    device_state::{DeviceState, device_state, why_gone},
    plugins::Inputs,
};
use petiole_dra::{
    book::{Book, Entry},
    health::{DeviceHealth, Health},
};
use std::{collections::BTreeSet, time::Duration};
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// The time after which a report is sent though nothing has changed.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// The least time between two looks.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// The time after which a device is unknown if no report has come: three reports may be missed.
const VALID_FOR: Duration = Duration::from_secs(40);

/// Reports until `shutdown`.
pub(super) async fn run(
    book: Book,
    inputs: Inputs,
    health: watch::Sender<Vec<DeviceHealth>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut discoveries = inputs.discoveries.clone();
    let looks = async {
        loop {
            discoveries.mark_unchanged();
            let read = book.clone();
            match spawn_blocking(move || read.entries()).await? {
                Ok(entries) => drop(health.send_replace(report(&entries, &inputs))),
                Err(error) => debug!(%error, "the health of devices is not reported"),
            }
            timeout(LOOK_AGAIN, discoveries.changed())
                .await
                .unwrap_or(Ok(()))?;
            sleep(BETWEEN_LOOKS).await;
        }
    };
    shutdown.run_until_cancelled(looks).await.unwrap_or(Ok(()))
}

fn report(entries: &[Entry], inputs: &Inputs) -> Vec<DeviceHealth> {
    let are_read = inputs.store.configurations().borrow().are_read();
    let instances = inputs.store.instances().borrow().clone();
    let discoveries = inputs.discoveries.borrow().clone();
    let devices = entries.iter().flat_map(|entry| &entry.devices);
    // Several claims may have shares of one device.
    let devices: BTreeSet<_> = devices.map(|one| (&one.pool, &one.device)).collect();
    let health = devices.into_iter().map(|(pool, device)| {
        let key = instance_of(pool, device, &instances);
        let (health, message) = match key.map(|key| &instances[&key]) {
            None if !are_read => (Health::Unknown, "the Instances have not been read yet"),
            None => (Health::Unhealthy, "its Instance is gone"),
            Some(instance) => match device_state(instance, &discoveries) {
                DeviceState::Seen(_) => (Health::Healthy, ""),
                DeviceState::Adopted => (Health::Unknown, "it was not looked for yet"),
                DeviceState::Gone => (Health::Unhealthy, why_gone(instance, &discoveries)),
            },
        };
        DeviceHealth {
            pool: pool.clone(),
            device: device.clone(),
            health,
            valid_for: VALID_FOR,
            message: message.to_owned(),
        }
    });
    health.collect()
}
