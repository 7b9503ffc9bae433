//! Merges the content of an Instance that depends on nodes: for a shared device from the nodes' reports, for another one
//! by taking lost nodes out. Pure.
use super::{
    device_reports::{NodeReports, exceptions, is_same_host, rank},
    notices,
    plan::{Change, Planner, holders},
};
use crate::{
    api::{condition, instance::Instance, names},
    model::{
        container_edits::stored_copy,
        device::Scope,
        instance_name::InstanceKey,
        patch::{add, remove},
        typed_names::NodeName,
    },
    store::{
        kubernetes::plan::{self as written, with_map},
        plan::with_conditions,
    },
};
use json_patch::{Patch, PatchOperation};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

impl Planner<'_> {
    /// Returns what the nodes say of a device that is shared. Of one of its own, its agent writes it.
    pub(super) fn reports(&self, key: &InstanceKey, instance: &Instance) -> NodeReports<'_> {
        match instance.spec.shared {
            true => self.device_reports.of(key, instance),
            false => NodeReports::new(),
        }
    }

    /// The nodes as they are to be: those that stay in their order, then those that join. What is gone or absent is noted in
    /// `change`.
    pub(super) fn nodes(
        &self,
        key: &InstanceKey,
        instance: &Instance,
        reports: &NodeReports<'_>,
        change: &mut Change,
    ) -> Vec<NodeName> {
        let scope = instance.spec.scope();
        let of = instance.spec.configuration_key(&key.namespace);
        let is_offered =
            |node: &NodeName| reports.get(node).is_some_and(|report| report.is_offered());
        let mut nodes = vec![];
        for node in &instance.spec.nodes {
            if self.is_gone(node) {
                change.gone.insert(node.clone());
            } else if self.memory.leaves(node, key, scope, self.instant) {
                change.absent.push(node.clone());
            } else if self.world.selects(&of, node)
                && (scope == Scope::Node
                    || is_offered(node)
                    || !reports.contains_key(node)
                        && !self.device_reports.has_complete_report(&of, node))
            {
                nodes.push(node.clone());
            }
        }
        let free_places = self.trim_to_max_nodes(key, instance, &mut nodes, reports);
        let annotations = instance.metadata.annotations.as_ref();
        let pin = annotations.and_then(|all| all.get(names::PIN));
        let mut joining: Vec<&NodeName> = (reports.iter())
            .filter(|(node, report)| {
                report.is_healthy()
                    && report.is_offered()
                    && is_same_host(report, pin)
                    && self.world.selects(&of, node)
                    && !self.is_gone(node)
                    && !self.memory.is_silent(node, self.instant)
                    && !instance.spec.names_node(node)
            })
            .map(|(node, _)| *node)
            .collect();
        if free_places < joining.len() {
            // In an order of the device's own, so that devices are spread over the nodes.
            joining.sort_by_cached_key(|node| rank(&key.name, node));
            joining.truncate(free_places);
        }
        nodes.extend(joining.into_iter().cloned());
        nodes
    }

    /// Removes the nodes above `maxNodes`, those first that hold no slot. Returns the number of nodes that may still join.
    /// A node that does not see the device is not counted.
    fn trim_to_max_nodes(
        &self,
        key: &InstanceKey,
        instance: &Instance,
        nodes: &mut Vec<NodeName>,
        reports: &NodeReports<'_>,
    ) -> usize {
        let of = instance.spec.configuration_key(&key.namespace);
        let configuration = self.world.configurations.get(&of);
        let Some(most) = configuration.and_then(|c| c.spec.max_nodes) else {
            return usize::MAX;
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let is_healthy = |node: &NodeName| reports.get(node).is_none_or(|v| v.is_healthy());
        let mut offering: Vec<NodeName> = nodes.iter().filter(|n| is_healthy(n)).cloned().collect();
        if offering.len() > most && instance.spec.shared {
            let holders: BTreeSet<NodeName> = holders(instance).map(|(_, node)| node).collect();
            offering.sort_by_key(|node| !holders.contains(node)); // stable: the first of them stay
            let too_many = offering.split_off(most);
            nodes.retain(|node| !too_many.contains(node));
        }
        most.saturating_sub(offering.len())
    }

    /// Changes the values that a shared Instance has from its Configuration and its first node.
    pub(super) fn described(
        &self,
        key: &InstanceKey,
        instance: &Instance,
        nodes: &[NodeName],
        reports: &NodeReports<'_>,
    ) -> Vec<PatchOperation> {
        let mut operations = vec![];
        let Some(identity) = self
            .device_reports
            .device(key)
            .filter(|_| instance.spec.shared)
        else {
            return operations;
        };
        let configuration = self.world.configurations.get(&identity.configuration);
        let capacity = configuration.map(|configuration| configuration.spec.capacity);
        let capacity = capacity.filter(|capacity| *capacity != instance.spec.capacity);
        operations.extend(capacity.map(|now| add(&["spec", "capacity"], json!(now))));
        let first = nodes.first().and_then(|first| reports.get(first));
        let said = first.and_then(|report| report.properties.as_ref());
        // A report has the device's own; of another Configuration than the agent has, the next report will be about it.
        let both = said.zip(configuration.map(|of| &of.spec.broker_properties));
        let all = both.map(|(own, configured)| stored_copy(own, configured));
        let all = all.filter(|now| *now != instance.spec.broker_properties);
        operations.extend(all.map(|now| add(&["spec", "brokerProperties"], json!(now))));
        let annotations = instance.metadata.annotations.as_ref();
        let notes = [
            (names::DEVICE_ID, Some(&identity.device)),
            (names::PIN, pin_of(nodes, reports)),
        ];
        let is_noted = |name: &str| annotations.is_some_and(|all| all.contains_key(name));
        let mut notes = notes.into_iter().filter(|(name, _)| !is_noted(name));
        let notes: Vec<_> = notes
            .by_ref()
            .filter_map(|(name, note)| Some((name, note?)))
            .collect();
        if !notes.is_empty() {
            operations.extend(with_map(annotations, "annotations"));
        }
        let noted = |(name, note)| add(&["metadata", "annotations", name], json!(note));
        operations.extend(notes.into_iter().map(noted));
        operations
    }

    /// Sets the labels of the nodes that see the device or hold a slot: their agents' watches select by it. A ready
    /// node keeps its label until its agent reports that it left, because a returning agent finds the slots that
    /// containers still use by the label. Akri's Instances have no labels.
    pub(super) fn relabelled(
        &self,
        instance: &Instance,
        nodes: &[NodeName],
        reports: &NodeReports<'_>,
        change: &mut Change,
    ) -> Vec<PatchOperation> {
        let namespace = instance.metadata.namespace.as_deref().unwrap_or_default();
        let of = instance.spec.configuration_key(namespace);
        let labels = instance.metadata.labels.as_ref();
        let holders: BTreeSet<NodeName> = holders(instance).map(|(_, node)| node).collect();
        let mut operations = vec![];
        for key in labels.into_iter().flat_map(BTreeMap::keys) {
            let Some(node) = key.strip_prefix(names::NODE_LABEL_PREFIX) else {
                continue;
            };
            let has_left = |node: &&NodeName| {
                instance.spec.shared
                    && self.device_reports.has_complete_report(&of, node)
                    && !reports.contains_key(node)
                    && !nodes.contains(node)
                    && !holders.contains(*node)
            };
            match self.labels.get(key) {
                None => {
                    operations.push(remove(&["metadata", "labels", key]));
                    change.gone.insert(self.whole_name(instance, node));
                }
                Some(node) if has_left(node) => {
                    operations.push(remove(&["metadata", "labels", key]));
                }
                Some(_) => {}
            }
        }
        let left = reports.iter().filter(|(_, report)| !report.is_offered());
        let added: BTreeSet<String> = (nodes.iter().cloned())
            .chain(holders)
            .chain(left.map(|(node, _)| (*node).clone()))
            .filter(|node| !self.is_gone(node))
            .map(|node| names::node_label(&node))
            .filter(|key| !labels.is_some_and(|labels| labels.contains_key(key)))
            .collect();
        if !added.is_empty() {
            operations.extend(with_map(labels, "labels"));
        }
        operations.extend((added.iter()).map(|key| add(&["metadata", "labels", key], json!(""))));
        operations
    }

    /// Returns the name of the node in a label, where a long name is cut.
    fn whole_name(&self, instance: &Instance, in_label: &str) -> NodeName {
        let mut nodes = instance.spec.nodes.iter();
        let whole = nodes.find(|node| names::node_in_label(node) == in_label);
        whole.cloned().unwrap_or_else(|| in_label.into())
    }

    /// Takes out the reports of nodes that the Instance has not: of lost ones, and what an agent wrote that did not know yet
    /// that its node was taken out. Of a shared device, what the nodes say themselves is put there.
    pub(super) fn status(
        &self,
        instance: &Instance,
        nodes: &[NodeName],
        reports: &NodeReports<'_>,
        change: &mut Change,
    ) -> Option<Patch> {
        let is_well = reports
            .values()
            .all(|report| report.is_healthy() && report.trouble().is_none());
        if instance.status.is_none() && is_well && !nodes.is_empty() {
            return None;
        }
        let before = instance.status.clone().unwrap_or_default();
        let lost = before
            .nodes
            .iter()
            .filter(|entry| self.is_gone(&entry.name));
        change.gone.extend(lost.map(|entry| entry.name.clone()));
        let now = condition::time(self.now);
        let mut after = before.clone();
        after.nodes = exceptions(&before, nodes, reports, &now);
        change.events = notices::of_health(&before, &after, nodes);
        let mut spec = instance.spec.clone();
        spec.nodes = nodes.to_vec();
        for (slot, _) in &change.freed {
            spec.device_usage.remove(slot);
        }
        written::status(instance, &with_conditions(after, &spec, &now))
    }
}

/// The identity of a pinned device that has none on its Instance yet, as the first node says it.
fn pin_of<'a>(nodes: &[NodeName], reports: &NodeReports<'a>) -> Option<&'a String> {
    let reports = nodes.iter().filter_map(|node| reports.get(node));
    reports.into_iter().find_map(|report| report.pin.as_ref())
}
