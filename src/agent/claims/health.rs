//! Tells the kubelet the health of the devices of prepared claims: it writes it into the status of their Pods.
use super::{
    super::claims_settings::Reached,
    moved::{Folders, OfClaim},
    plan::instance_of,
};
use crate::{
    agent::{
        connections::MOVED,
        device_state::{DeviceState, device_state, why_gone},
        plugins::Inputs,
    },
    api::reason::Reason,
    model::instance_name::{InstanceKey, InstanceName},
    store::{About, Instances},
};
use petiole_dra::{
    book::{Book, HeldDevice},
    health::{DeviceHealth, Health},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// The time after which a report is sent though nothing has changed.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// The least time between two looks.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// The time after which a device is unknown if no report has come: three reports may be missed.
const VALID_FOR: Duration = Duration::from_secs(40);

/// The claims that are prepared, and what says how their devices are.
pub(super) struct Held {
    pub(super) book: Book,
    pub(super) folders: Folders,
    pub(super) inputs: Inputs,
}

impl Held {
    /// Reports until `shutdown`.
    pub(super) async fn report(
        self,
        health: watch::Sender<Vec<DeviceHealth>>,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut discoveries = self.inputs.discoveries.clone();
        let mut moved = BTreeSet::new();
        let looks = async {
            loop {
                discoveries.mark_unchanged();
                match self.look(&mut moved).await {
                    Ok(report) => drop(health.send_replace(report)),
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

    /// Looks at all devices. `moved` are those of which it was said that they have moved.
    async fn look(&self, moved: &mut BTreeSet<InstanceName>) -> anyhow::Result<Vec<DeviceHealth>> {
        let book = self.book.clone();
        let entries = spawn_blocking(move || book.entries()).await??;
        let instances = self.inputs.store.instances().borrow().clone();
        let name = |one: &HeldDevice| (one.pool.clone(), one.device.clone());
        let mut devices: BTreeMap<(String, String), Option<InstanceKey>> = BTreeMap::new();
        // Several claims may have shares of one device.
        for one in entries.iter().flat_map(|entry| &entry.devices) {
            let instance = || instance_of(&one.pool, &one.device, &instances);
            devices.entry(name(one)).or_insert_with(instance);
        }
        let now = devices.values().flatten();
        let now = now.filter_map(|key| Some((key.name.clone(), self.inputs.connection(key)?)));
        let now: Reached = now.collect();
        let claims = entries.iter().map(|entry| OfClaim {
            uid: entry.claim.uid.clone(),
            instances: (entry.devices.iter())
                .filter_map(|one| devices[&name(one)].as_ref())
                .map(|key| key.name.clone())
                .collect(),
        });
        let (folders, claims) = (self.folders.clone(), claims.collect());
        let found = spawn_blocking(move || folders.look_at_all(claims, &now)).await?;
        let new = devices.values().flatten();
        for key in new.filter(|key| found.contains(&key.name) && !moved.contains(&key.name)) {
            let note = format!(
                "node {}: the device {MOVED}",
                self.inputs.settings.node_name
            );
            warn!(instance = %key, "{}: {note}", Reason::StartRefused);
            (self.inputs.store).warn(&About::Instance(key.clone()), Reason::StartRefused, note);
        }
        *moved = found;
        let report = devices.into_iter().map(|((pool, device), key)| {
            let (health, message) = match &key {
                Some(key) if moved.contains(&key.name) => {
                    (Health::Unhealthy, format!("it {MOVED}"))
                }
                key => {
                    let (health, message) = self.health(key.as_ref(), &instances);
                    (health, message.to_owned())
                }
            };
            DeviceHealth {
                pool,
                device,
                health,
                valid_for: VALID_FOR,
                message,
            }
        });
        Ok(report.collect())
    }

    /// Returns the health of the device of an Instance.
    fn health(&self, key: Option<&InstanceKey>, instances: &Instances) -> (Health, &'static str) {
        let discoveries = self.inputs.discoveries.borrow().clone();
        let are_read = self.inputs.store.configurations().borrow().are_read();
        match key.and_then(|key| instances.get(key)) {
            None if !are_read => (Health::Unknown, "the Instances have not been read yet"),
            None => (Health::Unhealthy, "its Instance is gone"),
            Some(instance) => match device_state(instance, &discoveries) {
                DeviceState::Seen(_) => (Health::Healthy, ""),
                DeviceState::Adopted => (Health::Unknown, "it was not looked for yet"),
                DeviceState::Gone => (Health::Unhealthy, why_gone(instance, &discoveries)),
            },
        }
    }
}
