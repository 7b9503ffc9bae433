//! Counts the Instances and slots of this node for the gauges. Pure.
use super::values::Slot;
use crate::{
    model::{instance_name::InstanceName, slot_table::SlotTable, typed_names::ConfigurationName},
    store::Instances,
    telemetry::metrics::SlotCounts,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Returns how many Instances of this node each Configuration has, by whether they are shared.
pub(super) fn instances(
    instances: &Instances,
    node: &str,
) -> BTreeMap<(ConfigurationName, bool), i64> {
    let mut counts = BTreeMap::new();
    for instance in instances.values() {
        let spec = &instance.spec;
        if spec.names_node(node) {
            let key = (spec.configuration_name.clone(), spec.shared);
            *counts.entry(key).or_default() += 1;
        }
    }
    counts
}

/// Returns how many slots each Configuration has on this node, and in which state. `gone` are the Instances whose
/// device is; `listed` are the slots without Instances.
pub(super) fn slots(
    slots: &SlotTable,
    gone: &BTreeSet<InstanceName>,
    listed: impl Iterator<Item = (ConfigurationName, Arc<[Slot]>)>,
) -> BTreeMap<ConfigurationName, SlotCounts> {
    let mut counts: BTreeMap<ConfigurationName, SlotCounts> = BTreeMap::new();
    for usage in slots.usage() {
        let counts = counts.entry(usage.configuration.clone()).or_default();
        if gone.contains(usage.instance) {
            counts.unhealthy += usage.free + usage.used;
        } else {
            counts.free += usage.free;
            counts.used += usage.used;
        }
    }
    for (name, slots) in listed {
        let counts = counts.entry(name).or_default();
        for slot in slots.iter() {
            if slot.is_healthy {
                counts.offered += 1
            } else {
                counts.unhealthy += 1
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::instance::{Instance, InstanceSpec},
        model::{
            instance_name::InstanceKey,
            slot_table::{ObservedSlots, Precedence},
        },
    };

    #[test]
    fn only_instances_of_this_node_are_counted() {
        let instance = |name: &str, configuration: &str, shared, nodes: &[&str]| {
            let spec = InstanceSpec {
                configuration_name: configuration.into(),
                shared,
                nodes: nodes.iter().map(|&node| node.into()).collect(),
                ..InstanceSpec::default()
            };
            let key = InstanceKey::new("default", name);
            (key, Arc::new(Instance::new(name, spec)))
        };
        let all = Instances::from([
            instance("cam-1", "cam", true, &["node-a", "node-b"]),
            instance("cam-2", "cam", true, &["node-a"]),
            instance("cam-3", "cam", true, &["node-b"]),
            instance("usb-1", "usb", false, &["node-a"]),
        ]);
        let expected = [(("cam".into(), true), 2), (("usb".into(), false), 1)];
        assert_eq!(instances(&all, "node-a"), expected.into());
    }

    #[test]
    fn every_slot_is_used_free_unhealthy_or_without_an_instance() {
        let observed = |name: &str, capacity, usage: &[(&str, &str)]| ObservedSlots {
            key: InstanceKey::new("default", name),
            precedence: Precedence::default(),
            configuration: "cam".into(),
            capacity,
            users_max: capacity,
            is_offered: true,
            is_by_claims: false,
            is_own: false,
            told: BTreeMap::new(),
            usage: usage
                .iter()
                .map(|&(id, owner)| (id.to_owned(), owner.to_owned()))
                .collect(),
        };
        let mut table = SlotTable::new("node-a");
        table.observe([
            observed(
                "cam-1",
                5,
                &[
                    ("cam-1-0", "node-b"),
                    ("cam-1-1", "C:cam-0:node-a"),
                    ("cam-1-2", ""),
                ],
            ),
            observed("cam-2", 2, &[("cam-2-1", "node-a")]),
            // One beyond the capacity, which was lowered: no other is free until its container ends.
            observed("cam-3", 1, &[("cam-3-2", "node-a")]),
        ]);
        let expected = SlotCounts {
            used: 3,
            free: 3,
            unhealthy: 2,
            offered: 0,
        };
        let gone = BTreeSet::from(["cam-2".into()]);
        let slot = |is_healthy| Slot {
            id: "kvm-a-0".to_owned(),
            is_healthy,
        };
        let listed: Arc<[Slot]> = [true, true, false].map(slot).into();
        let without = SlotCounts {
            offered: 2,
            unhealthy: 1,
            ..SlotCounts::default()
        };
        assert_eq!(
            slots(&table, &gone, [("kvm".into(), listed)].into_iter()),
            [("cam".into(), expected), ("kvm".into(), without)].into()
        );
    }
}
