//! Decides why a Pod does not get a resource. Pure.
use super::{
    super::finding::{Cause, Finding, first_of},
    device::{gone, seen_by},
    nodes::{Request, allows, on_nodes},
    problems::{no_device, not_looked_for, problem},
    slots::{can_be_had, too_few},
    without_instances,
};
use crate::inspect::{
    node_only, slots,
    snapshot::{Owner, Snapshot},
    words::{listed, plural},
    workloads::deployment_of,
};
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use petiole_model::{
    api::{configuration::Configuration, instance::Instance},
    model::{
        dra, instance_name::InstanceKey, resource_name::ResourceName, typed_names::ConfigurationKey,
    },
};
use std::collections::{BTreeMap, BTreeSet};

/// The most nodes and devices whose troubles are reported.
const TROUBLES_MAX: usize = 3;
/// The most letters by which a name may differ from the one that was meant.
const TYPOS_MAX: usize = 3;

type Devices<'a> = Vec<(&'a InstanceKey, &'a Instance)>;

/// Returns what keeps a Pod from a resource. Nothing does if a node has the device, a free slot, and no reason to refuse the Pod.
pub(super) fn explain(snapshot: &Snapshot, request: Request<'_>, now: Timestamp) -> Vec<Finding> {
    match snapshot.owner_of(request.resource) {
        None => vec![unknown(snapshot, request)],
        Some(Owner::Instance(key)) => {
            let instance = &snapshot.instances[&key];
            of_devices(snapshot, request, vec![(&key, instance)], now)
        }
        Some(Owner::Configuration(key)) => {
            let configuration = &snapshot.configurations[&key];
            let problem = problem(snapshot, &key, configuration);
            let devices: Devices<'_> = snapshot.instances_of(&key).collect();
            let resource = request.resource;
            let offering = node_only::offering(snapshot, configuration, resource);
            if !offering.is_empty() {
                let mut findings = without_instances::explain(snapshot, request, &offering);
                findings.extend(problem);
                return findings;
            }
            if devices.is_empty() {
                return vec![problem.unwrap_or_else(|| no_device(snapshot, &key, configuration))];
            }
            let mut findings = of_devices(snapshot, request, devices, now);
            findings.extend(problem);
            findings
        }
    }
}

/// Returns what is said of the resource of an Instance that has none, because the scheduler gives out its slots.
fn given_out(snapshot: &Snapshot, resource: &ResourceName) -> Option<Finding> {
    let mut instances = snapshot.instances.iter();
    let its = instances.find(|(key, _)| snapshot.instance_resource(key) == *resource)?;
    let (key, of) = snapshot.configuration_of(its.0, its.1)?;
    let any = snapshot.configuration_resource(&key, of);
    let text = format!(
        "The scheduler gives out the devices of Configuration {key} (allocation: DRA), so they have no resources of their own, as {resource} would be. Ask for {any}, or for this device by a ResourceClaim of class {} that selects it.",
        dra::class_name(&key)
    );
    let next = format!("kubectl get deviceclass {} -o yaml", dra::class_name(&key));
    Some(Finding::new(Cause::UnknownResource, text).then(next))
}

/// Returns the Configuration that makes Instances of such a name: its own name and a digest, or one by its template.
pub(super) fn maker_of<'a>(
    snapshot: &'a Snapshot,
    instance: &str,
) -> Option<(&'a ConfigurationKey, &'a Configuration)> {
    let of_device = instance
        .rsplit_once('-')
        .filter(|(_, digest)| digest.len() >= 6 && digest.bytes().all(|b| b.is_ascii_hexdigit()));
    let configuration = of_device.and_then(|(configuration, _)| {
        let mut known = snapshot.configurations.iter();
        known.find(|(key, _)| key.name == configuration)
    });
    let may_make = |of: &Configuration| {
        let template = of.spec.name_template();
        template.is_some_and(|template| template.may_make(instance))
    };
    configuration.or_else(|| (snapshot.configurations.iter()).find(|(_, of)| may_make(of)))
}

/// Returns what is said of a resource that no Configuration and no Instance has.
fn unknown(snapshot: &Snapshot, Request { pod, resource, .. }: Request<'_>) -> Finding {
    if let Some(finding) = given_out(snapshot, resource) {
        return finding;
    }
    let offered = snapshot.resources();
    let name = resource.last_segment();
    if let Some((key, configuration)) = maker_of(snapshot, name) {
        let any = snapshot.configuration_resource(key, configuration);
        let text = format!(
            "The Pod asks for {resource}: Configuration {key} exists, and it has no Instance of that name. The device is gone for longer than its grace period, or never was there. Ask for {any} to get any of its devices."
        );
        let next = format!("kubectl -n {} get instances", key.namespace);
        return Finding::new(Cause::InstanceDeleted, text).then(next);
    }
    let readable = snapshot.readable_objects();
    let text = format!(
        "The Pod asks for {resource}, and no Configuration or Instance{readable} offers that."
    );
    let nearest = offered
        .keys()
        .map(|known| (distance(known, resource), known))
        .filter(|(distance, known)| {
            let has_its_name = known.last_segment() == name;
            *distance <= TYPOS_MAX || has_its_name
        })
        .min();
    if snapshot.hidden.objects {
        let similar = match nearest {
            Some((_, nearest)) => format!("; or {nearest} was meant, which has a similar name"),
            None => String::new(),
        };
        let text = format!("{text} One of another namespace may{similar}.");
        return Finding::new(Cause::UnknownResource, text);
    }
    let text = match nearest {
        Some((_, nearest)) => format!(
            "{text} The nearest name is {nearest}: correct the limits where the Pod is described, because those of a Pod cannot be changed."
        ),
        None if offered.is_empty() => format!("{text} There are no Configurations: create one."),
        None => format!("{text} These are offered: {}.", list(&offered)),
    };
    Finding::new(Cause::UnknownResource, text).then(described_in(pod))
}

/// Returns the command that changes the description of a Pod, or makes place for a corrected one.
pub(super) fn described_in(pod: &Pod) -> String {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let Some(owner) = pod.metadata.owner_references.iter().flatten().next() else {
        return format!("kubectl -n {namespace} delete pod {name}");
    };
    match deployment_of(pod, owner) {
        Some(deployment) => format!("kubectl -n {namespace} edit deployment {deployment}"),
        None => format!(
            "kubectl -n {namespace} edit {} {}",
            owner.kind.to_lowercase(),
            owner.name
        ),
    }
}

fn list(offered: &BTreeMap<ResourceName, Owner>) -> String {
    let is_configuration = |owner: &Owner| matches!(owner, Owner::Configuration(_));
    let names = offered.iter().filter(|(_, owner)| is_configuration(owner));
    listed(&names.map(|(name, _)| name.as_str()).collect::<Vec<_>>())
}

/// Returns how many letters have to be added, removed or replaced to make one text of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn of_devices(
    snapshot: &Snapshot,
    request: Request<'_>,
    devices: Devices<'_>,
    now: Timestamp,
) -> Vec<Finding> {
    if !snapshot.nodes.is_empty()
        && !(snapshot.nodes.values()).any(|node| allows(request.spec, node))
    {
        let text = "The node selector or the affinity of the Pod matches no Node.";
        let finding = Finding::new(Cause::NoNodeMatches, text);
        return vec![finding.then("kubectl get nodes --show-labels")];
    }
    let is_there = |device: &&(&InstanceKey, &Instance)| !seen_by(device.1).is_empty();
    let there: Devices<'_> = devices.iter().filter(is_there).copied().collect();
    if there.is_empty() {
        let gone = devices
            .iter()
            .filter_map(|(key, instance)| gone(snapshot, key, instance, now));
        return first_of(gone, TROUBLES_MAX, "devices that are not available");
    }
    if let Some(finding) = too_many(snapshot, request, &there) {
        return vec![finding];
    }
    let excluded = out_of_reach(snapshot, request, &there);
    if !excluded.is_empty() {
        return excluded;
    }
    let free = can_be_had(snapshot, request, &there);
    if (free as u64) < request.amount.max(1) {
        return vec![too_few(snapshot, request, &there, now)];
    }
    let with_free = (there.into_iter()).filter(|(_, instance)| slots::free(instance) > 0);
    let with_free: Devices<'_> = with_free.collect();
    let excluded = out_of_reach(snapshot, request, &with_free);
    if !excluded.is_empty() {
        return excluded;
    }
    on_nodes(snapshot, request, reachable(snapshot, request, &with_free))
}

/// A Configuration's resource gives a container one slot of as many devices as it asks for.
fn too_many(
    snapshot: &Snapshot,
    Request {
        pod,
        resource,
        amount,
        ..
    }: Request<'_>,
    there: &Devices<'_>,
) -> Option<Finding> {
    let (first, instance) = there.first()?;
    let is_one = snapshot.instance_resource(first) == *resource;
    let (has, what) = if is_one {
        (
            u64::try_from(instance.spec.capacity).unwrap_or_default(),
            "slot",
        )
    } else {
        (there.len() as u64, "device")
    };
    (amount > has).then(|| {
        let there = plural(usize::try_from(has).unwrap_or(usize::MAX), what);
        let verb = if has == 1 { "is" } else { "are" };
        let text = format!(
            "The Pod asks for {amount} of {resource}, and there {verb} {there}. Ask for fewer."
        );
        Finding::new(Cause::TooManyRequested, text).then(described_in(pod))
    })
}

/// Returns the nodes that have devices and that the Pod may run on, as far as that is known.
fn reachable(snapshot: &Snapshot, request: Request<'_>, devices: &Devices<'_>) -> BTreeSet<String> {
    let seen = devices.iter().flat_map(|(_, its)| seen_by(its));
    // A node that was deleted has no labels to compare.
    seen.filter(|name| {
        snapshot
            .nodes
            .get(name)
            .is_none_or(|node| allows(request.spec, node))
    })
    .collect()
}

/// Returns why the nodes that the Pod may run on have none of the devices; nothing if one of them has.
fn out_of_reach(snapshot: &Snapshot, request: Request<'_>, devices: &Devices<'_>) -> Vec<Finding> {
    if !reachable(snapshot, request, devices).is_empty() {
        return vec![];
    }
    let nodes = snapshot.nodes.iter();
    let allowed = nodes.filter(|(_, node)| allows(request.spec, node));
    let excluded = allowed.map(|(node, _)| not_seen_on(snapshot, node, devices));
    first_of(excluded, TROUBLES_MAX, "nodes without the device")
}

/// Returns why a node that the Pod may run on does not have the device.
fn not_seen_on(snapshot: &Snapshot, node: &str, devices: &[(&InstanceKey, &Instance)]) -> Finding {
    let configuration =
        (devices.first()).and_then(|(key, instance)| snapshot.configuration_of(key, instance));
    if let Some((key, configuration)) = &configuration
        && let Some(finding) = not_looked_for(snapshot, key, configuration, node)
    {
        return finding;
    }
    let ids: Vec<&String> = (devices.iter())
        .filter_map(|(_, instance)| instance.device_id())
        .collect();
    let of = configuration.as_ref().map(|(key, _)| key);
    let views = snapshot.node_devices.get(node);
    let view = views.zip(of).and_then(|(views, of)| views.view_of(of));
    let sees = view.is_some_and(|view| {
        let mut seen = view.devices.iter().filter(|seen| seen.is_healthy());
        seen.any(|seen| seen.id.as_ref().is_some_and(|id| ids.contains(&id)))
    });
    let seen: BTreeSet<String> = devices.iter().flat_map(|(_, i)| seen_by(i)).collect();
    let seen = listed(&Vec::from_iter(seen));
    if sees
        && let Some((key, its)) = &configuration
        && let Some(most) = its.spec.most_nodes()
        && (devices.iter()).any(|(_, instance)| instance.spec.nodes.len() >= most)
    {
        let usual = match its.spec.max_nodes {
            Some(_) => "",
            None => " by default",
        };
        let text = format!(
            "The Pod may run on node {node}, which sees the device and does not offer it: spec.maxNodes of Configuration {key} is {most}{usual}, and it is offered by {seen}. Let the Pod run there, or raise maxNodes."
        );
        let next = format!(
            "kubectl -n {} edit configuration {}",
            key.namespace, key.name
        );
        return Finding::new(Cause::MaxNodes, text).then(next);
    }
    let verb = if snapshot.hidden.node_devices {
        "offer"
    } else {
        "see"
    };
    let text = format!(
        "The Pod may run on node {node}, which does not {verb} the device; {seen} does. Change the node selector or the affinity of the Pod, or connect the device to that node or its network."
    );
    Finding::new(Cause::NodeDoesNotSee, text).then("kubectl get instances -A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_of_names_counts_letters() {
        for (a, b, letters) in [
            ("", "", 0),
            ("cam", "cam", 0),
            ("cam", "cams", 1),
            ("zeroconf-http", "zeroconf-htp", 1),
            ("cam", "mac", 2),
            ("", "abc", 3),
        ] {
            assert_eq!(distance(a, b), letters, "{a} {b}");
            assert_eq!(distance(b, a), letters, "{b} {a}");
        }
    }
}
