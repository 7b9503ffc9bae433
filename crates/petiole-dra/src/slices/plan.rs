//! Computes the writes that make the slices of the API server equal to the pools. Pure.
use super::{
    pool::{DEVICES_OF_SLICE_MAX, Pool, Reach},
    stored::Stored,
};
use crate::digest::digest;
use k8s_openapi::{
    api::resource::v1::{Device, DeviceTaint, ResourcePool, ResourceSlice, ResourceSliceSpec},
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, OwnerReference},
    },
};
use petiole_base::quantity::count;
use std::collections::BTreeMap;

/// The driver and the node whose slices are planned.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) driver: String,
    pub(crate) owner: Option<OwnerReference>,
}

/// One request to the API server. Deletions come first in a plan, then updates.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Write {
    Delete(ResourceSlice),
    Update(ResourceSlice),
    Create(ResourceSlice),
}

impl Write {
    pub(crate) fn slice(&self) -> &ResourceSlice {
        let (Self::Delete(slice) | Self::Update(slice) | Self::Create(slice)) = self;
        slice
    }
}

/// Returns the writes for all pools, in the order of their names.
pub(crate) fn plan(source: &Source, pools: &[Pool], stored: &Stored) -> Vec<Write> {
    let mut of_pool: BTreeMap<&str, Vec<&ResourceSlice>> = BTreeMap::new();
    for slice in stored.slices.values() {
        of_pool
            .entry(&slice.spec.pool.name)
            .or_default()
            .push(slice);
    }
    let mut writes: BTreeMap<&str, Vec<Write>> = BTreeMap::new();
    for pool in pools {
        let slices = of_pool.remove(&*pool.name).unwrap_or_default();
        if pool.reach == Reach::AsTheyAre {
            continue;
        }
        writes.insert(&pool.name, plan_pool(source, pool, &slices, stored));
    }
    for (pool, slices) in of_pool {
        writes.insert(
            pool,
            slices.into_iter().cloned().map(Write::Delete).collect(),
        );
    }
    writes.into_values().flatten().collect()
}

fn plan_pool(
    source: &Source,
    pool: &Pool,
    slices: &[&ResourceSlice],
    stored: &Stored,
) -> Vec<Write> {
    let generation = slices.iter().map(|slice| slice.spec.pool.generation);
    let generation = generation.max().unwrap_or(0);
    let is_current = |slice: &ResourceSlice| {
        slice.spec.pool.generation == generation && slice.spec.node_name == source.node_name()
    };
    let mut current: BTreeMap<usize, &ResourceSlice> = BTreeMap::new();
    let mut writes = vec![];
    for slice in slices {
        let index = index_of(slice).filter(|n| {
            is_current(slice) && slice.metadata.name == Some(source.name(&pool.name, *n))
        });
        match index {
            Some(index) => drop(current.insert(index, slice)),
            None => writes.push(Write::Delete((*slice).clone())),
        }
    }
    let parts = layout(&pool.devices, &current);
    let gone = current.split_off(&parts.len());
    writes.extend(gone.into_values().cloned().map(Write::Delete));
    let count = i64::try_from(parts.len()).unwrap_or(i64::MAX);
    let spec = |devices: Vec<Device>| ResourceSliceSpec {
        pool: ResourcePool {
            name: pool.name.clone(),
            generation,
            resource_slice_count: count,
        },
        // The server keeps no list that is empty.
        devices: Some(devices).filter(|devices| !devices.is_empty()),
        ..source.reached_by(&pool.reach)
    };
    let specs: Vec<_> = parts.into_iter().map(spec).collect();
    let is_same = |(n, spec): (usize, &ResourceSliceSpec)| {
        let slice = current.get(&n);
        slice.is_some_and(|slice| stored.is_same(slice, spec, is_same_spec))
    };
    let same: Vec<bool> = specs.iter().enumerate().map(is_same).collect();
    // One update is seen at once. Of several, the scheduler must not use some without the others.
    let is_atomic = current.len() == specs.len() && same.iter().filter(|same| !**same).count() <= 1;
    let generation = if is_atomic {
        generation
    } else {
        generation.saturating_add(1)
    };
    let mut created = vec![];
    for (n, mut spec) in specs.into_iter().enumerate() {
        spec.pool.generation = generation;
        match current.get(&n) {
            Some(_) if same[n] && is_atomic => {}
            Some(slice) => writes.push(Write::Update(updated(slice, spec))),
            None => created.push(Write::Create(source.slice(n, spec))),
        }
    }
    writes.extend(created);
    writes
}

/// Returns whether a pool that has slices needs more of them: all of its slices are written then.
pub(crate) fn grows(pools: &[Pool], stored: &Stored) -> bool {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for slice in stored.slices.values() {
        *counts.entry(&slice.spec.pool.name).or_default() += 1;
    }
    let mut known = pools
        .iter()
        .filter_map(|pool| Some((pool, counts.get(&*pool.name)?)));
    known.any(|(pool, count)| pool.devices.len().div_ceil(DEVICES_OF_SLICE_MAX) > *count)
}

/// Divides the devices into slices. A device stays where it is, so that a change concerns one slice. One slice more than needed is
/// kept, so that a device that comes and goes does not change their number.
fn layout(devices: &[Device], current: &BTreeMap<usize, &ResourceSlice>) -> Vec<Vec<Device>> {
    let needed = devices.len().div_ceil(DEVICES_OF_SLICE_MAX).max(1);
    let have = current
        .keys()
        .next_back()
        .map_or(0, |last| last.saturating_add(1));
    let count = needed.max(have.min(needed + 1));
    let places: BTreeMap<&str, usize> = current
        .iter()
        .flat_map(|(n, slice)| devices_of(slice).map(|d| (&*d.name, *n)))
        .filter(|(_, n)| *n < count)
        .collect();
    let mut free = vec![DEVICES_OF_SLICE_MAX; count];
    let mut placed: Vec<Option<usize>> = devices
        .iter()
        .map(|device| {
            let place = places.get(&*device.name).copied();
            place.filter(|n| take(&mut free, *n))
        })
        .collect();
    let mut first = 0;
    for place in placed.iter_mut().filter(|place| place.is_none()) {
        while !take(&mut free, first) {
            first += 1;
        }
        *place = Some(first);
    }
    let mut parts = vec![vec![]; count];
    for (device, place) in devices.iter().zip(placed) {
        parts[place.unwrap_or_default()].push(device.clone());
    }
    parts
}

/// Takes one of the free places of a slice. There is one for each device, in all slices together.
fn take(free: &mut [usize], n: usize) -> bool {
    let has_room = free[n] > 0;
    free[n] -= usize::from(has_room);
    has_room
}

fn devices_of(slice: &ResourceSlice) -> impl Iterator<Item = &Device> {
    slice.spec.devices.iter().flatten()
}

/// Returns the number of a slice within its pool, with which its name begins.
fn index_of(slice: &ResourceSlice) -> Option<usize> {
    let (index, _) = slice.metadata.name.as_deref()?.split_once('-')?;
    usize::from_str_radix(index, 16).ok()
}

/// Returns the slice with another content. Taints that stay keep the time at which they were added.
fn updated(slice: &ResourceSlice, mut spec: ResourceSliceSpec) -> ResourceSlice {
    for device in spec.devices.iter_mut().flatten() {
        let Some(known) = devices_of(slice).find(|known| known.name == device.name) else {
            continue;
        };
        let new = device.taints.iter_mut().flatten();
        for taint in new.filter(|t| t.time_added.is_none()) {
            let mut known = known.taints.iter().flatten();
            let known = known.find(|t| is_same_taint(t, taint));
            taint.time_added = known.and_then(|known| known.time_added.clone());
        }
    }
    ResourceSlice {
        spec,
        ..slice.clone()
    }
}

/// Returns whether two contents are the same to Kubernetes: the server sets the times of taints, and writes amounts in its own way.
pub(crate) fn is_same_spec(a: &ResourceSliceSpec, b: &ResourceSliceSpec) -> bool {
    let fixed = |spec: &ResourceSliceSpec| {
        let mut spec = spec.clone();
        spec.devices.iter_mut().flatten().for_each(fix_device);
        spec
    };
    fixed(a) == fixed(b)
}

fn fix_device(device: &mut Device) {
    // The server keeps nothing that is empty, and a driver may publish it.
    device.attributes.take_if(|all| all.is_empty());
    device.capacity.take_if(|all| all.is_empty());
    device.taints.take_if(|all| all.is_empty());
    let taints = device.taints.iter_mut().flatten();
    taints.for_each(|taint| taint.time_added = None);
    for capacity in device.capacity.iter_mut().flat_map(BTreeMap::values_mut) {
        fix(&mut capacity.value);
        let Some(policy) = &mut capacity.request_policy else {
            continue;
        };
        policy.default.iter_mut().for_each(fix);
        policy.valid_values.iter_mut().flatten().for_each(fix);
        if let Some(range) = &mut policy.valid_range {
            fix(&mut range.min);
            let others = [&mut range.max, &mut range.step];
            others.into_iter().flatten().for_each(fix);
        }
    }
}

fn fix(quantity: &mut Quantity) {
    if let Some(number) = count(&quantity.0) {
        quantity.0 = number.to_string();
    }
}

fn is_same_taint(a: &DeviceTaint, b: &DeviceTaint) -> bool {
    a.key == b.key && a.value == b.value && a.effect == b.effect
}

impl Source {
    fn node_name(&self) -> Option<String> {
        self.owner.as_ref().map(|node| node.name.clone())
    }

    /// Returns the content of a slice without its devices: whose they are, and the nodes that reach them.
    fn reached_by(&self, reach: &Reach) -> ResourceSliceSpec {
        let is = |other: &Reach| (self.owner.is_none() && reach == other).then_some(true);
        ResourceSliceSpec {
            driver: self.driver.clone(),
            node_name: self.node_name(),
            node_selector: match reach {
                Reach::Nodes(nodes) if self.owner.is_none() => Some(nodes.clone()),
                Reach::Nodes(_) | Reach::AllNodes | Reach::OfEachDevice | Reach::AsTheyAre => None,
            },
            all_nodes: is(&Reach::AllNodes),
            per_device_node_selection: is(&Reach::OfEachDevice),
            ..ResourceSliceSpec::default()
        }
    }

    /// Returns the name of a slice. It begins with the index, because the scheduler reads the slices of a pool in the order of their
    /// names, and it is always the same one, so that a slice is never created twice.
    fn name(&self, pool: &str, index: usize) -> String {
        let node = self.node_name().unwrap_or_default();
        let digest = digest(&[&self.driver, &node, pool]);
        format!("{index:05x}-{}-{digest}", self.driver)
    }

    fn slice(&self, index: usize, spec: ResourceSliceSpec) -> ResourceSlice {
        ResourceSlice {
            metadata: ObjectMeta {
                name: Some(self.name(&spec.pool.name, index)),
                owner_references: self.owner.clone().map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec,
        }
    }
}

#[cfg(test)]
mod tests;
