//! Decides whether changes of Instances concern a node. Most changes of shared Instances do not: they say which slots
//! other nodes hold, and not the last one. Pure.
use crate::{
    api::instance::{Instance, InstanceSpec},
    model::slot::SlotOwner,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

/// Returns whether nothing changed but the slots that other nodes hold.
pub(crate) fn is_same_for(a: &Instance, b: &Instance, node: &str) -> bool {
    is_same_metadata(&a.metadata, &b.metadata)
        && is_same_spec(&a.spec, &b.spec)
        && is_same_usage(&a.spec.device_usage, &b.spec.device_usage, node)
        && is_full(&a.spec) == is_full(&b.spec)
        && a.status == b.status
}

/// Compares all that others write but the version and the generation, which change with everything.
fn is_same_metadata(a: &ObjectMeta, b: &ObjectMeta) -> bool {
    a.uid == b.uid
        && a.creation_timestamp == b.creation_timestamp
        && a.deletion_timestamp == b.deletion_timestamp
        && a.finalizers == b.finalizers
        && a.owner_references == b.owner_references
        && a.annotations == b.annotations
        && a.labels == b.labels
}

fn is_same_spec(a: &InstanceSpec, b: &InstanceSpec) -> bool {
    let InstanceSpec {
        configuration_name,
        cdi_name,
        capacity,
        broker_properties,
        shared,
        nodes,
        device_usage: _,
    } = a;
    *configuration_name == b.configuration_name
        && *cdi_name == b.cdi_name
        && *capacity == b.capacity
        && *broker_properties == b.broker_properties
        && *shared == b.shared
        && *nodes == b.nodes
}

/// Returns whether no slot is free: as long as the scheduler does not know it, it sends Pods that are refused.
fn is_full(spec: &InstanceSpec) -> bool {
    let used = spec.device_usage.values().filter(|usage| !usage.is_empty());
    used.count() >= usize::try_from(spec.capacity).unwrap_or(0)
}

/// Returns whether a node holds the same slots, and whether any are in use as before.
fn is_same_usage(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>, node: &str) -> bool {
    // A value that no agent writes can be anybody's.
    let is_own = |(_, usage): &(&String, &String)| {
        SlotOwner::from_usage(usage).map_or(true, |owner| owner.is_some_and(|o| o.node() == node))
    };
    let is_used = |usage: &BTreeMap<String, String>| usage.values().any(|usage| !usage.is_empty());
    is_used(a) == is_used(b) && a.iter().filter(is_own).eq(b.iter().filter(is_own))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: &str = "node-b";

    fn one(change: impl FnOnce(&mut Instance)) -> Instance {
        let mut instance = Instance::new("cam-1", InstanceSpec::default());
        instance.metadata.resource_version = Some("1".to_owned());
        instance.spec.nodes = vec!["node-a".into(), OTHERS.into()];
        instance.spec.capacity = 3;
        use_slot(&mut instance, 0, OTHERS);
        change(&mut instance);
        instance
    }

    fn use_slot(instance: &mut Instance, slot: u8, owner: &str) {
        let usage = &mut instance.spec.device_usage;
        usage.insert(format!("cam-1-{slot}"), owner.to_owned());
    }

    /// What is changed, whether that is news, and the change.
    type Case = (&'static str, bool, fn(&mut Instance));

    #[test]
    fn the_slots_of_other_nodes_are_no_news_and_anything_else_is() {
        let cases: [Case; 9] = [
            ("nothing", false, |_| ()),
            ("another slot of another node", false, |i| {
                i.metadata.resource_version = Some("2".to_owned());
                i.metadata.generation = Some(2);
                use_slot(i, 1, "C:cam-3:node-c");
                use_slot(i, 2, "");
            }),
            ("the last slot, of another node", true, |i| {
                use_slot(i, 1, OTHERS);
                use_slot(i, 2, OTHERS);
            }),
            ("a slot of this node", true, |i| use_slot(i, 1, "node-a")),
            ("one by its Configuration", true, |i| {
                use_slot(i, 1, "C:cam-0:node-a");
            }),
            ("a slot that nobody can read", true, |i| {
                use_slot(i, 1, "C:")
            }),
            ("no slot is in use any more", true, |i| {
                i.spec.device_usage.clear();
            }),
            ("its nodes", true, |i| drop(i.spec.nodes.pop())),
            ("its status", true, |i| i.status = Some(Default::default())),
        ];
        for (what, expected, change) in cases {
            let is_same = is_same_for(&one(|_| ()), &one(change), "node-a");
            assert_eq!(!is_same, expected, "{what}");
        }
    }
}
