//! One inventory of devices, plugins and holders, and every decision about it. Pure: time comes in as uptime.
//!
//! The rules are those of the kubelet's device manager (`pkg/kubelet/cm/devicemanager`, Kubernetes 1.36), with its
//! error texts. Where this one differs, the comment says so.
use crate::proto::device_plugin::ContainerAllocateResponse;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A container of a Pod, as a holder of devices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::kubelet) struct Holder {
    pub(in crate::kubelet) pod_uid: String,
    pub(in crate::kubelet) container: String,
}

/// What a container was given of one resource, and the answer that is replayed whenever it starts again.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::kubelet) struct Held {
    pub(in crate::kubelet) ids: BTreeSet<String>,
    pub(in crate::kubelet) response: ContainerAllocateResponse,
}

/// What a plugin says of itself at registration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::kubelet) struct Options {
    pub(in crate::kubelet) is_pre_start_required: bool,
    pub(in crate::kubelet) has_preferred_allocation: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Endpoint {
    /// Registrations are counted, so that the end of an earlier one does not disconnect a later one.
    Connected {
        registration: u64,
        options: Options,
        /// Whether this registration has sent a list; before, the devices are those of an earlier one.
        has_listed: bool,
    },
    /// Its devices are kept, unhealthy, for the grace period.
    Stopped { since: Duration },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Resource {
    endpoint: Endpoint,
    /// Id to health. `None` until the plugin has sent a list: the resource is not offered before.
    devices: Option<BTreeMap<String, bool>>,
}

/// Counts of a resource as the node offers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kubelet) struct Count {
    pub(in crate::kubelet) capacity: usize,
    pub(in crate::kubelet) allocatable: usize,
    pub(in crate::kubelet) is_connected: bool,
}

/// See the module's head.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::kubelet) struct Inventory {
    resources: BTreeMap<String, Resource>,
    held: BTreeMap<Holder, BTreeMap<String, Held>>,
    /// Devices chosen for a container whose plugin has not answered yet.
    chosen: BTreeMap<Holder, BTreeMap<String, BTreeSet<String>>>,
}

/// What a container needs of a resource beyond what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kubelet) struct Need {
    /// How many, those taken over from init containers included.
    pub(in crate::kubelet) size: usize,
    /// Taken over from init containers of the same Pod.
    pub(in crate::kubelet) taken: BTreeSet<String>,
    pub(in crate::kubelet) available: BTreeSet<String>,
    pub(in crate::kubelet) options: Options,
}

impl Inventory {
    /// A plugin has registered. An earlier one for the same resource is replaced; its devices stay until the new
    /// list comes, so that a plugin that re-registers is no blip.
    pub(in crate::kubelet) fn connected(
        &mut self,
        resource: &str,
        registration: u64,
        options: Options,
    ) {
        let endpoint = Endpoint::Connected {
            registration,
            options,
            has_listed: false,
        };
        match self.resources.get_mut(resource) {
            Some(known) => known.endpoint = endpoint,
            None => {
                let resource = resource.to_owned();
                self.resources.insert(
                    resource,
                    Resource {
                        endpoint,
                        devices: None,
                    },
                );
            }
        }
    }

    /// A plugin has sent its full list. A device listed twice counts once, healthy only if both say so.
    pub(in crate::kubelet) fn listed(
        &mut self,
        resource: &str,
        registration: u64,
        devices: impl IntoIterator<Item = (String, bool)>,
    ) {
        if let Some(known) = self.current(resource, registration) {
            let mut list = BTreeMap::new();
            for (id, is_healthy) in devices {
                let health = list.entry(id).or_insert(is_healthy);
                *health &= is_healthy;
            }
            known.devices = Some(list);
            if let Endpoint::Connected { has_listed, .. } = &mut known.endpoint {
                *has_listed = true;
            }
        }
    }

    /// A plugin's stream has ended: all its devices are unhealthy, and the grace period begins.
    pub(in crate::kubelet) fn disconnected(
        &mut self,
        resource: &str,
        registration: u64,
        now: Duration,
    ) {
        if let Some(known) = self.current(resource, registration) {
            known.endpoint = Endpoint::Stopped { since: now };
            known
                .devices
                .get_or_insert_default()
                .values_mut()
                .for_each(|health| *health = false);
        }
    }

    /// A resource that a checkpoint lists: nothing is known of its devices until its plugin is back.
    pub(in crate::kubelet) fn restored(&mut self, resource: &str, now: Duration) {
        let restored = Resource {
            endpoint: Endpoint::Stopped { since: now },
            devices: Some(BTreeMap::new()),
        };
        self.resources.insert(resource.to_owned(), restored);
    }

    /// Drops the resources whose grace period is over. The real kubelet leaves a `0` with the API server; this node
    /// has none, so the entry goes.
    pub(in crate::kubelet) fn expire(&mut self, now: Duration, grace: Duration) {
        self.resources
            .retain(|_, resource| match resource.endpoint {
                Endpoint::Stopped { since } => since + grace > now,
                Endpoint::Connected { .. } => true,
            });
    }

    /// When the next resource is to be dropped.
    pub(in crate::kubelet) fn next_expiry(&self, grace: Duration) -> Option<Duration> {
        let stops = self
            .resources
            .values()
            .filter_map(|resource| match resource.endpoint {
                Endpoint::Stopped { since } => Some(since + grace),
                Endpoint::Connected { .. } => None,
            });
        stops.min()
    }

    /// What the node offers. Devices in use are not subtracted.
    pub(in crate::kubelet) fn counts(&self) -> BTreeMap<String, Count> {
        let offered = self.resources.iter().filter_map(|(name, resource)| {
            let devices = resource.devices.as_ref()?;
            let count = Count {
                capacity: devices.len(),
                allocatable: devices.values().filter(|is_healthy| **is_healthy).count(),
                is_connected: matches!(resource.endpoint, Endpoint::Connected { .. }),
            };
            Some((name.clone(), count))
        });
        offered.collect()
    }

    /// The healthy devices of each resource, for pod resources and the checkpoint.
    pub(in crate::kubelet) fn healthy(&self) -> BTreeMap<String, Vec<String>> {
        let healthy = |resource: &Resource| {
            let devices = resource.devices.iter().flatten();
            devices
                .filter(|(_, is_healthy)| **is_healthy)
                .map(|(id, _)| id.clone())
                .collect()
        };
        self.resources
            .iter()
            .map(|(name, resource)| (name.clone(), healthy(resource)))
            .collect()
    }

    /// `Healthy` or `Unhealthy`. Unlike the real kubelet, which takes a device it has no word of for a healthy one.
    pub(in crate::kubelet) fn health(&self, resource: &str, id: &str) -> &'static str {
        let devices = self
            .resources
            .get(resource)
            .and_then(|resource| resource.devices.as_ref());
        match devices.and_then(|devices| devices.get(id)) {
            Some(true) => "Healthy",
            Some(false) | None => "Unhealthy",
        }
    }

    /// What is missing for `quantity` of `resource`: `None` where nothing is. A resource no plugin ever registered is
    /// not the device manager's, and asks for nothing.
    pub(in crate::kubelet) fn need(
        &self,
        holder: &Holder,
        resource: &str,
        quantity: usize,
        reusable: &BTreeSet<String>,
    ) -> Result<Option<Need>, String> {
        let held = self
            .held_of(holder)
            .get(resource)
            .map(|held| held.ids.clone())
            .unwrap_or_default();
        let Some(known) = self.resources.get(resource) else {
            return match held.is_empty() {
                true => Ok(None),
                false => Err(format!("cannot allocate unregistered device {resource}")),
            };
        };
        if !held.is_empty() && held.len() != quantity {
            return Err(format!(
                "pod {:?} container {:?} changed request for resource {resource:?} from {} to {quantity}",
                holder.pod_uid,
                holder.container,
                held.len()
            ));
        }
        let healthy: BTreeSet<String> = (known.devices.iter().flatten())
            .filter(|(_, is_healthy)| **is_healthy)
            .map(|(id, _)| id.clone())
            .collect();
        if healthy.is_empty() {
            return Err(format!(
                "no healthy devices present; cannot allocate unhealthy devices {resource}"
            ));
        }
        if !held.is_subset(&healthy) {
            return Err(format!(
                "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            ));
        }
        let Endpoint::Connected { options, .. } = known.endpoint else {
            return Err(format!("endpoint of {resource} has been stopped"));
        };
        if !held.is_empty() || quantity == 0 {
            return Ok(None);
        }
        let taken: BTreeSet<String> = reusable.iter().take(quantity).cloned().collect();
        let in_use = self.in_use(resource);
        let available: BTreeSet<String> = healthy.difference(&in_use).cloned().collect();
        let needed = quantity - taken.len();
        if available.len() < needed {
            return Err(format!(
                "requested number of devices unavailable for {resource}. Requested: {needed}, Available: {}",
                available.len()
            ));
        }
        Ok(Some(Need {
            size: quantity,
            taken,
            available,
            options,
        }))
    }

    /// Sets devices aside while their plugin is asked. They are held by [`Self::allocated`], or free again after
    /// [`Self::roll_back`].
    pub(in crate::kubelet) fn choose(
        &mut self,
        holder: &Holder,
        resource: &str,
        ids: BTreeSet<String>,
    ) {
        self.chosen
            .entry(holder.clone())
            .or_default()
            .insert(resource.to_owned(), ids);
    }

    pub(in crate::kubelet) fn allocated(
        &mut self,
        holder: &Holder,
        resource: &str,
        response: ContainerAllocateResponse,
    ) {
        let chosen = self
            .chosen
            .get_mut(holder)
            .and_then(|chosen| chosen.remove(resource));
        if let Some(ids) = chosen {
            let held = Held { ids, response };
            self.held
                .entry(holder.clone())
                .or_default()
                .insert(resource.to_owned(), held);
        }
    }

    pub(in crate::kubelet) fn roll_back(&mut self, holder: &Holder) {
        self.chosen.remove(holder);
    }

    /// Takes over what a checkpoint says a container holds.
    pub(in crate::kubelet) fn restore_held(
        &mut self,
        holder: Holder,
        resource: String,
        held: Held,
    ) {
        self.held.entry(holder).or_default().insert(resource, held);
    }

    /// Frees the devices of all Pods but these.
    pub(in crate::kubelet) fn retain_pods(&mut self, is_active: impl Fn(&str) -> bool) {
        self.held.retain(|holder, _| is_active(&holder.pod_uid));
        self.chosen.retain(|holder, _| is_active(&holder.pod_uid));
    }

    /// What a container holds, by resource.
    pub(in crate::kubelet) fn held_of(&self, holder: &Holder) -> &BTreeMap<String, Held> {
        const NONE: &BTreeMap<String, Held> = &BTreeMap::new();
        self.held.get(holder).unwrap_or(NONE)
    }

    pub(in crate::kubelet) fn holders(
        &self,
    ) -> impl Iterator<Item = (&Holder, &BTreeMap<String, Held>)> {
        self.held.iter()
    }

    /// Whether a resource's plugin must be asked before each start of a container.
    pub(in crate::kubelet) fn is_pre_start_required(&self, resource: &str) -> bool {
        self.resources
            .get(resource)
            .is_some_and(|resource| match resource.endpoint {
                Endpoint::Connected { options, .. } => options.is_pre_start_required,
                Endpoint::Stopped { .. } => true,
            })
    }

    /// Whether a Pod that held devices in this kubelet's earlier life can be admitted now: `None` while its plugins
    /// may still come back. The real kubelet finds such containers running and asks nothing.
    pub(in crate::kubelet) fn is_restored_ready(&self, pod_uid: &str) -> Option<bool> {
        let mut is_ready = true;
        for (_, resources) in self
            .held
            .iter()
            .filter(|(holder, _)| holder.pod_uid == pod_uid)
        {
            for (name, held) in resources {
                let resource = match self.resources.get(name) {
                    Some(resource) => resource,
                    None => return Some(false),
                };
                let is_healthy = |id| {
                    resource
                        .devices
                        .as_ref()
                        .is_some_and(|d| d.get(id) == Some(&true))
                };
                is_ready &= match resource.endpoint {
                    Endpoint::Stopped { .. } => return None,
                    Endpoint::Connected {
                        has_listed: false, ..
                    } => return None,
                    Endpoint::Connected { .. } => held.ids.iter().all(is_healthy),
                };
            }
        }
        Some(is_ready)
    }

    fn in_use(&self, resource: &str) -> BTreeSet<String> {
        let held = self
            .held
            .values()
            .filter_map(|held| held.get(resource))
            .flat_map(|held| &held.ids);
        let chosen = self
            .chosen
            .values()
            .filter_map(|chosen| chosen.get(resource))
            .flatten();
        held.chain(chosen).cloned().collect()
    }

    fn current(&mut self, resource: &str, registration: u64) -> Option<&mut Resource> {
        self.resources.get_mut(resource).filter(|resource| {
            matches!(resource.endpoint, Endpoint::Connected { registration: current, .. } if current == registration)
        })
    }
}

impl Need {
    /// The ids to allocate, what the plugin prefers before others. A preference that does not fit is ignored.
    pub(in crate::kubelet) fn choice(&self, preferred: &[String]) -> BTreeSet<String> {
        let mut chosen = self.taken.clone();
        let preferred = preferred.iter().filter(|id| self.available.contains(*id));
        for id in preferred.chain(&self.available) {
            if chosen.len() < self.size {
                chosen.insert(id.clone());
            }
        }
        chosen
    }
}

/// What a container gets of all its resources together. Of two that set one variable, path or name, the first stays;
/// resources come in the order of their names, where the real kubelet's order is random.
pub(in crate::kubelet) fn merged(held: &BTreeMap<String, Held>) -> ContainerAllocateResponse {
    let mut all = ContainerAllocateResponse::default();
    for response in held.values().map(|held| held.response.clone()) {
        for (key, value) in response.envs {
            all.envs.entry(key).or_insert(value);
        }
        for (key, value) in response.annotations {
            all.annotations.entry(key).or_insert(value);
        }
        let add_mount = |mount: &_| !all.mounts.iter().any(|m| same_path(m, mount));
        let mounts: Vec<_> = response.mounts.into_iter().filter(add_mount).collect();
        all.mounts.extend(mounts);
        for device in response.devices {
            if !all
                .devices
                .iter()
                .any(|d| d.container_path == device.container_path)
            {
                all.devices.push(device);
            }
        }
        for cdi in response.cdi_devices {
            if !all.cdi_devices.contains(&cdi) {
                all.cdi_devices.push(cdi);
            }
        }
    }
    all
}

fn same_path(
    a: &crate::proto::device_plugin::Mount,
    b: &crate::proto::device_plugin::Mount,
) -> bool {
    a.container_path == b.container_path
}

/// Whether a resource may be registered: an extended resource's name (`IsExtendedResourceName`): one `/`, a DNS
/// subdomain before it, a qualified name after it, and nothing of Kubernetes' own.
pub(in crate::kubelet) fn is_extended_resource_name(name: &str) -> bool {
    let Some((prefix, rest)) = name.split_once('/') else {
        return false;
    };
    // `requests.` before it must be a DNS subdomain too.
    const PREFIX_LIMIT: usize = 253 - "requests.".len();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        !label.is_empty()
            && label.len() <= 63
            && bytes
                .iter()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
            && bytes.first() != Some(&b'-')
            && bytes.last() != Some(&b'-')
    };
    let is_end = |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric());
    let is_qualified = (1..=63).contains(&rest.len())
        && rest
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && is_end(rest.bytes().next())
        && is_end(rest.bytes().last());
    !name.contains("kubernetes.io/")
        && !name.starts_with("requests.")
        && prefix.len() <= PREFIX_LIMIT
        && prefix.split('.').all(is_label)
        && is_qualified
}
