//! Holds the table of the device manager: resources, their devices and health, the holders of devices, and the state of
//! plugins. Pure: time comes in as the uptime of the kubelet, and `C` is the client of a plugin.
use petiole_kubelet_api::device_plugin::{
    ContainerAllocateResponse, Device as ListedDevice, DevicePluginOptions, HEALTHY,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

/// The NUMA node of a device without topology, as the checkpoint stores it.
pub(crate) const NO_NUMA: i64 = -1;

#[derive(Debug, Clone)]
pub(crate) struct Inventory<C> {
    resources: BTreeMap<String, Resource<C>>,
    /// The number of device lists that were received. Each of them triggers a write of the checkpoint, as in the Go
    /// kubelet.
    lists: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Resource<C> {
    /// The devices in the plugin's last list. They are kept beyond the grace period while a container holds one of
    /// them, because the Pod's status shows their health.
    devices: BTreeMap<String, Device>,
    /// The devices count as capacity: from the first list until the grace period is over.
    is_listed: bool,
    /// The plugins that are connected, in the order in which they registered; or the last of them, which is stopped.
    endpoints: Vec<Endpoint<C>>,
    holders: BTreeMap<Holder, Claim>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    /// The health in the plugin's last list. The death of the plugin does not change it, and Pods' statuses show it.
    pub(crate) reported_healthy: bool,
    /// The device may be allocated.
    pub(crate) healthy: bool,
    pub(crate) numa: Vec<i64>,
}

/// A plugin that is connected or stopped.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint<C> {
    pub(crate) socket: PathBuf,
    /// A number that no other registration has.
    pub(crate) generation: u64,
    pub(crate) client: Option<C>,
    /// The options of the plugin; `None` if it is known from the checkpoint and has not registered since.
    pub(crate) options: Option<DevicePluginOptions>,
    pub(crate) stopped: Option<Stopped>,
}

#[derive(Debug, Clone)]
pub(crate) struct Stopped {
    pub(crate) at: Duration,
    pub(crate) reason: String,
}

/// The refusal of a socket whose plugin is connected, with the Go kubelet's text.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("device plugin already connected: {}", .0.display())]
pub(crate) struct AlreadyConnected(PathBuf);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder {
    pub(crate) pod_uid: String,
    pub(crate) container: String,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Claim {
    pub(crate) ids: BTreeMap<i64, BTreeSet<String>>,
    /// The answer of the plugin; `None` until it has answered.
    pub(crate) response: Option<ContainerAllocateResponse>,
}

/// The number of devices of one resource on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) capacity: usize,
    pub(crate) allocatable: usize,
}

impl Claim {
    pub(crate) fn device_ids(&self) -> BTreeSet<String> {
        self.ids.values().flatten().cloned().collect()
    }
}

impl<C> Default for Resource<C> {
    fn default() -> Self {
        Self {
            devices: BTreeMap::new(),
            is_listed: false,
            endpoints: Vec::new(),
            holders: BTreeMap::new(),
        }
    }
}

impl<C> Resource<C> {
    pub(crate) fn devices(&self) -> &BTreeMap<String, Device> {
        &self.devices
    }

    /// Returns the plugin that answers for the resource: the newest one.
    pub(crate) fn endpoint(&self) -> Option<&Endpoint<C>> {
        self.endpoints.last()
    }

    pub(crate) fn endpoints(&self) -> &[Endpoint<C>] {
        &self.endpoints
    }

    pub(crate) fn holders(&self) -> &BTreeMap<Holder, Claim> {
        &self.holders
    }

    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed
    }

    pub(crate) fn healthy(&self) -> BTreeSet<String> {
        let healthy = self.devices.iter().filter(|(_, device)| device.healthy);
        healthy.map(|(id, _)| id.clone()).collect()
    }

    pub(crate) fn held(&self) -> BTreeSet<String> {
        self.holders.values().flat_map(Claim::device_ids).collect()
    }

    pub(crate) fn count(&self) -> Count {
        let counted = self.devices.values().filter(|_| self.is_listed);
        Count {
            capacity: counted.clone().count(),
            allocatable: counted.filter(|d| d.healthy).count(),
        }
    }

    /// Returns the plugin of a registration, if it is connected.
    pub(crate) fn connected(&self, generation: u64) -> Option<&Endpoint<C>> {
        let mut connected = self.endpoints.iter().filter(|e| e.stopped.is_none());
        connected.find(|e| e.generation == generation)
    }

    fn stop(&mut self, at: Duration, reason: &str) {
        for device in self.devices.values_mut() {
            device.healthy = false;
        }
        // Devices of an earlier plugin that Pods hold do not make this plugin a listed one.
        self.is_listed |= self.devices.is_empty();
        for endpoint in &mut self.endpoints {
            endpoint.client = None;
            endpoint.stopped = Some(Stopped {
                at,
                reason: reason.to_owned(),
            });
        }
    }
}

impl<C> Default for Inventory<C> {
    fn default() -> Self {
        Self {
            resources: BTreeMap::new(),
            lists: 0,
        }
    }
}

impl<C> Inventory<C> {
    pub(crate) fn lists(&self) -> u64 {
        self.lists
    }

    pub(crate) fn resources(&self) -> &BTreeMap<String, Resource<C>> {
        &self.resources
    }

    pub(crate) fn resource(&self, name: &str) -> Option<&Resource<C>> {
        self.resources.get(name)
    }

    /// Returns whether the device manager handles requests for this resource. Other requests are dropped, as in the Go
    /// kubelet.
    pub(crate) fn is_managed(&self, name: &str) -> bool {
        let resource = self.resources.get(name);
        resource.is_some_and(|r| r.is_listed || !r.holders.is_empty())
    }

    /// Records the registration of a plugin, which answers for the resource from now on. The others stay connected.
    pub(crate) fn connect(
        &mut self,
        name: &str,
        endpoint: Endpoint<C>,
    ) -> Result<(), AlreadyConnected> {
        let Resource { endpoints, .. } = self.resources.entry(name.to_owned()).or_default();
        endpoints.retain(|e| e.stopped.is_none());
        if endpoints.iter().any(|e| e.socket == endpoint.socket) {
            return Err(AlreadyConnected(endpoint.socket));
        }
        endpoints.push(endpoint);
        Ok(())
    }

    /// Records a complete device list. Returns `false` if the plugin of this registration is not connected. Of several
    /// plugins the list that came last counts, and of two devices with one id the last one.
    pub(crate) fn list(&mut self, name: &str, generation: u64, devices: Vec<ListedDevice>) -> bool {
        let Some(resource) = self.resources.get_mut(name) else {
            return false;
        };
        if resource.connected(generation).is_none() {
            return false;
        }
        let devices = devices.into_iter().map(|d| (d.id.clone(), device(&d)));
        let devices: BTreeMap<_, _> = devices.collect();
        resource.is_listed = true;
        resource.devices = devices;
        self.lists += 1;
        true
    }

    /// Records the end of a registration's stream. The devices are unhealthy when it was the last one of the resource.
    /// Returns `false` if its plugin is not connected.
    pub(crate) fn disconnect(
        &mut self,
        name: &str,
        generation: u64,
        now: Duration,
        reason: &str,
    ) -> bool {
        match self.resources.get_mut(name) {
            Some(resource) if resource.connected(generation).is_some() => {
                if resource.endpoints.len() == 1 {
                    resource.stop(now, reason);
                } else {
                    resource.endpoints.retain(|e| e.generation != generation);
                }
                true
            }
            Some(_) | None => false,
        }
    }

    /// Drops the resources whose plugin has been disconnected for the whole grace period. Devices that Pods hold stay
    /// held, with the health that was reported last.
    pub(crate) fn expire(&mut self, now: Duration, grace: Duration) -> Vec<String> {
        let mut expired = Vec::new();
        for (name, resource) in &mut self.resources {
            let stopped = resource.endpoint().and_then(|e| e.stopped.as_ref());
            if stopped.is_some_and(|stopped| now >= stopped.at + grace) {
                resource.endpoints.clear();
                resource.is_listed = false;
                expired.push(name.clone());
            }
        }
        self.forget_empty();
        expired
    }

    /// Returns the uptime at which [`Self::expire`] next drops a resource.
    pub(crate) fn next_expiry(&self, grace: Duration) -> Option<Duration> {
        let endpoints = self.resources.values().filter_map(Resource::endpoint);
        let stopped = endpoints.filter_map(|e| e.stopped.as_ref());
        stopped.map(|stopped| stopped.at + grace).min()
    }

    /// Records that `holder` holds the devices `ids`, before the plugin has answered.
    pub(crate) fn hold(&mut self, name: &str, holder: &Holder, ids: &BTreeSet<String>) {
        let resource = self.resources.entry(name.to_owned()).or_default();
        let mut by_numa: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
        for id in ids {
            let nodes = resource.devices.get(id).map(|d| d.numa.clone());
            let nodes = nodes.filter(|n| !n.is_empty()).unwrap_or(vec![NO_NUMA]);
            for node in nodes {
                by_numa.entry(node).or_default().insert(id.clone());
            }
        }
        let claim = Claim {
            ids: by_numa,
            response: None,
        };
        resource.holders.insert(holder.clone(), claim);
    }

    pub(crate) fn answer(
        &mut self,
        name: &str,
        holder: &Holder,
        response: ContainerAllocateResponse,
    ) {
        let resource = self.resources.get_mut(name);
        if let Some(claim) = resource.and_then(|r| r.holders.get_mut(holder)) {
            claim.response = Some(response);
        }
    }

    /// Removes a claim that the plugin did not answer.
    pub(crate) fn roll_back(&mut self, name: &str, holder: &Holder) {
        if let Some(resource) = self.resources.get_mut(name) {
            resource.holders.remove(holder);
        }
        self.forget_empty();
    }

    /// Adds a claim from the checkpoint.
    pub(crate) fn restore_claim(&mut self, name: &str, holder: Holder, claim: Claim) {
        let resource = self.resources.entry(name.to_owned()).or_default();
        resource.holders.insert(holder, claim);
    }

    pub(crate) fn restore_resource(&mut self, name: &str, now: Duration) {
        let resource = self.resources.entry(name.to_owned()).or_default();
        resource.is_listed = true;
        resource.endpoints = vec![Endpoint {
            socket: PathBuf::new(),
            generation: 0,
            client: None,
            options: None,
            stopped: Some(Stopped {
                at: now,
                reason: "not registered since the kubelet started".to_owned(),
            }),
        }];
    }

    /// Frees the devices of Pods that are not active. Returns whether there were any.
    pub(crate) fn retain_pods(&mut self, is_active: impl Fn(&str) -> bool) -> bool {
        let mut changed = false;
        for resource in self.resources.values_mut() {
            let before = resource.holders.len();
            resource
                .holders
                .retain(|holder, _| is_active(&holder.pod_uid));
            changed |= resource.holders.len() != before;
        }
        self.forget_empty();
        changed
    }

    pub(crate) fn holds(&self, name: &str, holder: &Holder) -> bool {
        let resource = self.resources.get(name);
        resource.is_some_and(|r| r.holders.contains_key(holder))
    }

    /// Returns the claims of a container by resource.
    pub(crate) fn claims(&self, holder: &Holder) -> BTreeMap<&str, &Claim> {
        let held = self.resources.iter();
        held.filter_map(|(name, resource)| Some((name.as_str(), resource.holders.get(holder)?)))
            .collect()
    }

    /// Returns the health that Pods' statuses show. A device that is not listed is healthy, as in the Go kubelet.
    pub(crate) fn is_reported_healthy(&self, name: &str, id: &str) -> bool {
        let device = self.resources.get(name).and_then(|r| r.devices.get(id));
        device.is_none_or(|device| device.reported_healthy)
    }

    fn forget_empty(&mut self) {
        self.resources
            .retain(|_, r| r.is_listed || !r.endpoints.is_empty() || !r.holders.is_empty());
    }
}

fn device(listed: &ListedDevice) -> Device {
    let nodes = listed.topology.iter().flat_map(|t| &t.nodes);
    Device {
        reported_healthy: listed.health == HEALTHY,
        healthy: listed.health == HEALTHY,
        numa: nodes.map(|node| node.id).collect(),
    }
}
