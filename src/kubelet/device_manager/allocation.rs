//! Gives the containers of a Pod their devices: at admission, and again at each start of a container.
use super::{
    DeviceManager, Held, Holder,
    plan::{Need, merged},
};
use crate::proto::device_plugin::ContainerAllocateResponse;
use std::collections::{BTreeMap, BTreeSet};

/// A container as the device manager sees it.
#[derive(Debug, Clone)]
pub(in crate::kubelet) struct Request {
    pub(in crate::kubelet) container: String,
    /// An init container that ends before the next one starts: its devices go on to the others.
    pub(in crate::kubelet) is_init: bool,
    /// Limits, less those of Kubernetes' own resources.
    pub(in crate::kubelet) limits: BTreeMap<String, usize>,
}

impl DeviceManager {
    /// Allocates what all containers of a Pod ask for, init containers first. The error is the admission's message.
    pub(in crate::kubelet) async fn admit(
        &self,
        pod_uid: &str,
        requests: &[Request],
    ) -> Result<(), String> {
        self.wait_until_restored(pod_uid).await;
        let _turn = self
            .admission
            .acquire()
            .await
            .map_err(|_| "the kubelet is stopping")?;
        let mut reusable: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for request in requests {
            let holder = Holder {
                pod_uid: pod_uid.to_owned(),
                container: request.container.clone(),
            };
            let allocated = self.allocate(&holder, request, &reusable).await;
            if let Err(message) = allocated {
                self.inventory
                    .send_modify(|inventory| inventory.roll_back(&holder));
                return Err(format!(
                    "Allocate failed due to {message}, which is unexpected"
                ));
            }
            for (resource, held) in self.inventory.borrow().held_of(&holder) {
                let reusable = reusable.entry(resource.clone()).or_default();
                match request.is_init {
                    true => reusable.extend(held.ids.iter().cloned()),
                    false => reusable.retain(|id| !held.ids.contains(id)),
                }
            }
        }
        // What a container was told must outlive this process: it is not told again.
        self.write_checkpoint();
        Ok(())
    }

    /// After a restart, the plugins of a Pod's devices are given time to come back.
    async fn wait_until_restored(&self, pod_uid: &str) {
        let mut inventory = self.inventory.subscribe();
        // An error means that the sender is gone, and it is in `self`.
        inventory
            .wait_for(|inventory| inventory.is_restored_ready(pod_uid).is_some())
            .await
            .map(drop)
            .ok();
    }

    async fn allocate(
        &self,
        holder: &Holder,
        request: &Request,
        reusable: &BTreeMap<String, BTreeSet<String>>,
    ) -> Result<(), String> {
        const NONE: &BTreeSet<String> = &BTreeSet::new();
        for (resource, quantity) in &request.limits {
            let reusable = reusable.get(resource).unwrap_or(NONE);
            let need = self
                .inventory
                .borrow()
                .need(holder, resource, *quantity, reusable)?;
            if let Some(need) = need {
                self.allocate_one(holder, resource, &need).await?;
            }
        }
        Ok(())
    }

    async fn allocate_one(
        &self,
        holder: &Holder,
        resource: &str,
        need: &Need,
    ) -> Result<(), String> {
        let endpoint = self.endpoints().get(resource).cloned();
        let endpoint = endpoint.ok_or_else(|| format!("unknown Device Plugin {resource}"))?;
        let preferred = match need.options.has_preferred_allocation {
            true => {
                endpoint
                    .preferred(&need.available, &need.taken, need.size)
                    .await?
            }
            false => vec![],
        };
        let ids = need.choice(&preferred);
        self.inventory
            .send_modify(|inventory| inventory.choose(holder, resource, ids.clone()));
        let response = endpoint.allocate(&ids).await?;
        self.inventory
            .send_modify(|inventory| inventory.allocated(holder, resource, response));
        Ok(())
    }

    /// What a container starts with: the answers of its plugins, replayed. Those that want to be asked before each
    /// start are asked, and may refuse.
    pub(in crate::kubelet) async fn prepare(
        &self,
        holder: &Holder,
    ) -> Result<ContainerAllocateResponse, String> {
        let held: BTreeMap<String, Held> = self.inventory.borrow().held_of(holder).clone();
        for (resource, held) in &held {
            if self.inventory.borrow().is_pre_start_required(resource) {
                let endpoint = self.endpoints().get(resource).cloned();
                let endpoint =
                    endpoint.ok_or_else(|| format!("endpoint of {resource} has been stopped"))?;
                endpoint
                    .pre_start(held.ids.iter().cloned().collect())
                    .await
                    .map_err(|e| {
                        format!("device plugin PreStartContainer rpc failed with err: {e}")
                    })?;
            }
        }
        Ok(merged(&held))
    }
}
