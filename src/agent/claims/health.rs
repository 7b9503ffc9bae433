//! Tells the kubelet the health of the devices of prepared claims: it writes it into the status of their Pods.
use super::{
    moved::{Folders, OfClaim, Reached},
    plan::instance_of,
};
use crate::{
    agent::{
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

/// Why a container that has such a device is not started again.
const MOVED: &str =
    "its device is reached in another way than when its Pod was started: delete the Pod";

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
        let instance = |one: &HeldDevice| instance_of(&one.pool, &one.device, &instances);
        let devices = entries.iter().flat_map(|entry| &entry.devices);
        // Several claims may have shares of one device.
        let devices: BTreeMap<_, _> = devices
            .map(|one| ((&*one.pool, &*one.device), instance(one)))
            .collect();
        let now = devices.values().flatten();
        let now = now.filter_map(|key| Some((key.name.clone(), self.inputs.connection(key)?)));
        let now: Reached = now.collect();
        let claims = entries.iter().map(|entry| OfClaim {
            uid: entry.claim.uid.clone(),
            instances: (entry.devices.iter().filter_map(instance))
                .map(|key| key.name)
                .collect(),
        });
        let (folders, claims) = (self.folders.clone(), claims.collect());
        let found = spawn_blocking(move || folders.look_at_all(claims, &now)).await?;
        let new = devices.values().flatten();
        for key in new.filter(|key| found.contains(&key.name) && !moved.contains(&key.name)) {
            warn!(instance = %key, "{}: {MOVED}", Reason::StartRefused);
            let note = format!("node {}: {MOVED}", self.inputs.settings.node_name);
            (self.inputs.store).warn(&About::Instance(key.clone()), Reason::StartRefused, note);
        }
        *moved = found;
        let report = devices.into_iter().map(|((pool, device), key)| {
            let (health, message) = match &key {
                Some(key) if moved.contains(&key.name) => (Health::Unhealthy, MOVED),
                key => self.health(key.as_ref(), &instances),
            };
            DeviceHealth {
                pool: pool.to_owned(),
                device: device.to_owned(),
                health,
                valid_for: VALID_FOR,
                message: message.to_owned(),
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
