//! Allocates devices to a container: the plan chooses them, the plugin is called, the checkpoint is written, and the
//! answers are merged.
use super::{
    edits::{self, Edits, Merged},
    endpoint::{self, Plugin},
    inventory::Holder,
    manager::DeviceManager,
    plan::{self, Choice, Refusal, Request, Reuse},
};
use std::collections::BTreeMap;
use tokio::{sync::oneshot, time::Instant};
use tracing::warn;

/// The requested quantity of each resource.
pub(crate) type Limits = BTreeMap<String, usize>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum AllocationError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("unknown Device Plugin {0}")]
    UnknownPlugin(String),
    #[error("endpoint {0} has been stopped")]
    Stopped(String),
    #[error(transparent)]
    Plugin(#[from] endpoint::Error),
    #[error("cannot write checkpoint: {0}")]
    Checkpoint(String),
}

/// The reason that a container with devices cannot start now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("device plugin of {0} has not registered since the kubelet started")]
    NotRegisteredYet(String),
    #[error("endpoint not found in cache for a registered resource: {0}")]
    NoEndpoint(String),
    #[error(
        "no devices found allocated in local cache for pod {pod_uid}, container {container}, resource {resource}"
    )]
    NoDevices {
        pod_uid: String,
        container: String,
        resource: String,
    },
    #[error(transparent)]
    Allocation(#[from] AllocationError),
}

impl DeviceManager {
    /// Allocates every resource in `limits`. On an error the devices of earlier resources stay allocated until the Pod
    /// ends.
    pub(crate) async fn allocate(
        &self,
        holder: &Holder,
        limits: &Limits,
        reuse: &Reuse,
    ) -> Result<(), AllocationError> {
        let mut allocated = false;
        for (resource, quantity) in limits {
            let request = Request {
                resource,
                quantity: *quantity,
                holder,
                reuse,
                had_devices_at_start: self.shared.restored.contains(holder),
            };
            allocated |= self.allocate_resource(&request).await?;
        }
        if allocated {
            self.save().await.map_err(AllocationError::Checkpoint)?;
        }
        Ok(())
    }

    async fn allocate_resource(&self, request: &Request<'_>) -> Result<bool, AllocationError> {
        let mut preferred = None;
        let unknown = || AllocationError::UnknownPlugin(request.resource.to_owned());
        let (plugin, ids) = loop {
            let (plugin, choice) = self.claim(request, preferred.as_deref())?;
            match choice {
                Choice::Nothing => return Ok(false),
                Choice::AskPreferred {
                    available,
                    must_include,
                } => {
                    let (mut plugin, size) = (plugin.ok_or_else(unknown)?, request.quantity);
                    let answer = plugin.preferred(&available, &must_include, size).await;
                    preferred = Some(answer?);
                }
                Choice::Take(ids) => break (plugin, ids),
            }
        };
        let unanswered = Unanswered {
            manager: self,
            request,
            is_answered: false,
        };
        let mut plugin =
            plugin.ok_or_else(|| AllocationError::Stopped(request.resource.to_owned()))?;
        let begun = Instant::now();
        let answer = plugin.allocate(&ids).await;
        let metrics = &self.shared.metrics;
        metrics.observe_allocate(request.resource, begun.elapsed());
        let response = answer?;
        self.shared.inventory.send_modify(|inventory| {
            inventory.answer(request.resource, request.holder, response);
        });
        unanswered.keep();
        Ok(true)
    }

    /// Chooses devices and holds them in one step, so that no two containers choose the same device.
    fn claim(
        &self,
        request: &Request<'_>,
        preferred: Option<&[String]>,
    ) -> Result<(Option<Plugin>, Choice), AllocationError> {
        let mut outcome = Ok((None, Choice::Nothing));
        self.shared.inventory.send_if_modified(|inventory| {
            let resource = inventory.resource(request.resource);
            let endpoint = resource.and_then(|resource| resource.endpoint());
            let plugin = endpoint.and_then(|endpoint| endpoint.client.clone());
            let unknown = || AllocationError::UnknownPlugin(request.resource.to_owned());
            let choice = match plan::choose(inventory, request, preferred) {
                Ok(Choice::Take(_)) if endpoint.is_none() => Err(unknown()),
                choice => choice.map_err(AllocationError::from),
            };
            let ids = match &choice {
                Ok(Choice::Take(ids)) => Some(ids),
                Ok(Choice::Nothing | Choice::AskPreferred { .. }) | Err(_) => None,
            };
            if let Some(ids) = ids {
                inventory.hold(request.resource, request.holder, ids);
            }
            let is_modified = ids.is_some();
            outcome = choice.map(|choice| (plugin, choice));
            is_modified
        });
        outcome
    }

    /// Waits until the checkpoint on the disk contains everything in the inventory.
    async fn save(&self) -> Result<(), String> {
        let (reply, saved) = oneshot::channel();
        let stopping = || "the kubelet is stopping".to_owned();
        let sent = self.shared.saves.send(reply).await;
        sent.map_err(|_| stopping())?;
        saved.await.map_err(|_| stopping())?
    }

    /// Returns the edits for a container from the cached answers of its plugins. It calls PreStartContainer first where
    /// a plugin requires that. A container whose Pod was admitted before a plugin registered gets the devices of that
    /// plugin now.
    pub(crate) async fn start_options(
        &self,
        holder: &Holder,
        limits: &Limits,
        reuse: &Reuse,
    ) -> Result<Edits, StartError> {
        let mut lacks_devices = false;
        for (resource, _) in limits.iter().filter(|(_, quantity)| **quantity > 0) {
            if self.inventory().is_managed(resource) {
                self.pre_start(holder, resource).await?;
                lacks_devices |= !self.inventory().holds(resource, holder);
            }
        }
        if lacks_devices {
            self.allocate(holder, limits, reuse).await?;
        }
        let inventory = self.inventory();
        let claims = inventory.claims(holder).into_iter();
        let answers = claims.filter_map(|(name, claim)| Some((name, claim.response.as_ref()?)));
        let Merged { edits, conflicts } = edits::merge(answers);
        for conflict in conflicts {
            warn!(pod = %holder.pod_uid, container = %holder.container, "{conflict}");
        }
        Ok(edits)
    }

    /// Waits until the resource's plugin has registered with this kubelet, or its grace period is over. Without a
    /// resource it waits for ever.
    pub(crate) async fn until_known(&self, resource: Option<&str>) {
        let Some(name) = resource else {
            return std::future::pending().await;
        };
        let mut changes = self.shared.inventory.subscribe();
        let known = changes.wait_for(|inventory| {
            let resource = inventory.resource(name);
            let endpoint = resource.and_then(|resource| resource.endpoint());
            endpoint.is_none_or(|endpoint| endpoint.options.is_some())
        });
        // An error means that the sender is gone, which cannot happen: `self` holds it.
        drop(known.await);
    }

    async fn pre_start(&self, holder: &Holder, name: &str) -> Result<(), StartError> {
        let (plugin, ids) = {
            let inventory = self.inventory();
            let resource = inventory.resource(name);
            let endpoint = resource.and_then(|resource| resource.endpoint());
            let endpoint = endpoint.ok_or_else(|| StartError::NoEndpoint(name.to_owned()))?;
            let options = endpoint.options;
            let options = options.ok_or_else(|| StartError::NotRegisteredYet(name.to_owned()))?;
            if !options.pre_start_required {
                return Ok(());
            }
            let claim = resource.and_then(|resource| resource.holders().get(holder));
            let ids = claim.map(|claim| claim.device_ids());
            (endpoint.client.clone(), ids)
        };
        let ids = ids.ok_or_else(|| StartError::NoDevices {
            pod_uid: holder.pod_uid.clone(),
            container: holder.container.clone(),
            resource: name.to_owned(),
        })?;
        let mut plugin = plugin.ok_or_else(|| AllocationError::Stopped(name.to_owned()))?;
        let started = plugin.pre_start(&ids).await;
        started.map_err(|e| AllocationError::from(e).into())
    }
}

/// Rolls a claim back unless the plugin has answered. That also covers a caller that stops waiting for the answer.
struct Unanswered<'a> {
    manager: &'a DeviceManager,
    request: &'a Request<'a>,
    is_answered: bool,
}

impl Unanswered<'_> {
    fn keep(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            let inventory = &self.manager.shared.inventory;
            inventory.send_modify(|inventory| {
                inventory.roll_back(self.request.resource, self.request.holder);
            });
        }
    }
}
