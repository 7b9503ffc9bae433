//! Merges what nodes report of an Instance's device: the nodes that it names, its labels, its content, its status. Pure.
use super::{
    events,
    finalizers::without_akris,
    plan::{Change, Merge, held_slots},
    reports::{NodeReports, is_same_host, rank},
    stale::{is_slot, without_connection_digest, without_stale},
    status::{exceptions, with_conditions},
};
use crate::{
    api::{
        condition,
        instance::{Instance, InstanceStatus},
        names,
    },
    model::{
        budget::kept_bytes,
        container_edits::stored_copy,
        instance_name::InstanceKey,
        patch::{add, remove, test, with_map},
        slot::holders,
        typed_names::{ConfigurationKey, NodeName},
    },
};
use json_patch::PatchOperation;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// The bytes by which a device's own properties may grow at a time without room.
const HARDLY_MORE: usize = 1024;

impl Merge<'_> {
    pub(super) fn change(&self, key: &InstanceKey, instance: &Instance) -> Change {
        let mut change = Change::default();
        let mut operations = without_akris(&instance.metadata);
        if instance.metadata.deletion_timestamp.is_none() {
            let reports = self.reports_of(key, instance);
            let nodes = self.nodes(key, instance, &reports, &mut change);
            if nodes != instance.spec.nodes {
                operations.push(add(&["spec", "nodes"], json!(nodes)));
            }
            operations.extend(self.relabelled(instance, &nodes, &reports, &mut change));
            operations.extend(self.described(key, instance, &nodes, &reports));
            operations.extend(self.released(key, instance, &mut change));
            operations.extend(without_stale(instance));
            change.status = self.status(instance, &nodes, &reports, &mut change);
        }
        Change {
            operations,
            ..change
        }
    }

    fn released(
        &self,
        key: &InstanceKey,
        instance: &Instance,
        change: &mut Change,
    ) -> Vec<PatchOperation> {
        let mut operations = vec![];
        for (slot, node) in held_slots(instance) {
            if !self.surroundings.is_released(&node, key, instance) || !is_slot(instance, slot) {
                continue;
            }
            if self.is_gone(&node) {
                change.gone.insert(node.clone());
            }
            let held = json!(instance.spec.device_usage.get(slot));
            operations.push(test(&["spec", "deviceUsage", slot], held));
            operations.push(remove(&["spec", "deviceUsage", slot]));
            operations.extend(without_connection_digest(instance, slot));
            change.freed.push((slot.to_owned(), node));
        }
        operations
    }

    /// The nodes as they are to be: those that stay in their order, then those that join. What is gone or absent is noted in
    /// `change`.
    fn nodes(
        &self,
        key: &InstanceKey,
        instance: &Instance,
        reports: &NodeReports<'_>,
        change: &mut Change,
    ) -> Vec<NodeName> {
        let of = instance.spec.configuration_key(&key.namespace);
        let is_offered =
            |node: &NodeName| reports.get(node).is_some_and(|report| report.is_offered());
        let mut nodes = vec![];
        for node in &instance.spec.nodes {
            if self.is_gone(node) {
                change.gone.insert(node.clone());
            } else if self.surroundings.is_silent(node) {
                change.absent.push(node.clone());
            } else if self.surroundings.selects(&of, node)
                && (is_offered(node)
                    || !reports.contains_key(node)
                        && !self.reports.has_complete_report(instance, &of, node))
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
                    && self.surroundings.selects(&of, node)
                    && !self.is_gone(node)
                    && !self.surroundings.is_silent(node)
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
        let configuration = self.surroundings.configuration(&of);
        let Some(most) = configuration.and_then(|c| c.spec.most_nodes()) else {
            return usize::MAX;
        };
        let is_healthy = |node: &NodeName| reports.get(node).is_none_or(|v| v.is_healthy());
        let mut offering: Vec<NodeName> = nodes.iter().filter(|n| is_healthy(n)).cloned().collect();
        if offering.len() > most && instance.spec.shared {
            let holders = holders(&instance.spec.device_usage);
            offering.sort_by_key(|node| !holders.contains(node)); // stable: the first of them stay
            let too_many = offering.split_off(most);
            nodes.retain(|node| !too_many.contains(node));
        }
        most.saturating_sub(offering.len())
    }

    /// Changes the values that an Instance has from its Configuration and its first node.
    fn described(
        &self,
        key: &InstanceKey,
        instance: &Instance,
        nodes: &[NodeName],
        reports: &NodeReports<'_>,
    ) -> Vec<PatchOperation> {
        let mut operations = vec![];
        let Some(identity) = self.reports.device(key) else {
            return operations;
        };
        let configuration = self.surroundings.configuration(&identity.configuration);
        let capacity = configuration.map(|configuration| configuration.spec.capacity);
        let capacity = capacity.filter(|capacity| *capacity != instance.spec.capacity);
        operations.extend(capacity.map(|now| add(&["spec", "capacity"], json!(now))));
        let first = nodes.first().and_then(|first| reports.get(first));
        let said = first.and_then(|report| report.properties.as_ref());
        // A report has the device's own; of another Configuration than the agent has, the next report will be about it.
        let both = said.zip(configuration.map(|of| &of.spec.broker_properties));
        let before = &instance.spec.broker_properties;
        let all = both.map(|(own, configured)| {
            let now = stored_copy(own, configured);
            self.with_room(&identity.configuration, before, now, own)
        });
        let all = all.filter(|now| now != before);
        operations.extend(all.map(|now| add(&["spec", "brokerProperties"], json!(now))));
        let annotations = instance.metadata.annotations.as_ref();
        let noted = |name: &str| annotations.and_then(|all| all.get(name));
        let connection = first.and_then(|report| report.connection.as_ref());
        let connection = connection.filter(|_| identity.node.is_some());
        let first_time = [
            (names::DEVICE_ID, Some(&identity.device)),
            (names::PIN, pin_of(nodes, reports)),
        ];
        let first_time = first_time
            .into_iter()
            .filter(|(name, _)| noted(name).is_none());
        let connection = connection.filter(|now| noted(names::CONNECTION) != Some(*now));
        let notes: Vec<_> = first_time
            .chain([(names::CONNECTION, connection)])
            .filter_map(|(name, note)| Some((name, note?)))
            .collect();
        if !notes.is_empty() {
            operations.extend(with_map(annotations, "annotations"));
        }
        let operation = |(name, note)| add(&["metadata", "annotations", name], json!(note));
        operations.extend(notes.into_iter().map(operation));
        operations
    }

    /// Returns the properties as they are to be, if they have room; otherwise those of before, with the device's own as they are now
    /// if that is hardly more: an address of before may belong to another host by now.
    fn with_room(
        &self,
        of: &ConfigurationKey,
        before: &BTreeMap<String, String>,
        now: BTreeMap<String, String>,
        own: &BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let more =
            |after: &BTreeMap<String, String>| kept_bytes(after).saturating_sub(kept_bytes(before));
        if now == *before || self.takes(of, more(&now)) {
            return now;
        }
        let mut kept = before.clone();
        kept.extend(now.into_iter().filter(|(name, _)| own.contains_key(name)));
        if more(&kept) > HARDLY_MORE {
            return before.clone();
        }
        kept
    }

    /// Sets the labels of the nodes that see the device or hold a slot: their agents' watches select by it. A ready
    /// node keeps its label until its agent reports that it left, because a returning agent finds the slots that
    /// containers still use by the label. So does the only node of a device, which says whether it is gone. Akri's Instances
    /// have no labels.
    fn relabelled(
        &self,
        instance: &Instance,
        nodes: &[NodeName],
        reports: &NodeReports<'_>,
        change: &mut Change,
    ) -> Vec<PatchOperation> {
        let namespace = instance.metadata.namespace.as_deref().unwrap_or_default();
        let of = instance.spec.configuration_key(namespace);
        let labels = instance.metadata.labels.as_ref();
        let mut kept = holders(&instance.spec.device_usage);
        let is_left = !instance.spec.shared && nodes.is_empty();
        if is_left {
            kept.extend(self.only_node(instance).cloned());
        }
        let mut operations = vec![];
        for label in labels.into_iter().flat_map(BTreeMap::keys) {
            let Some(node) = label.strip_prefix(names::NODE_LABEL_PREFIX) else {
                continue;
            };
            let has_left = |node: &&NodeName| {
                self.reports.has_complete_report(instance, &of, node)
                    && !reports.contains_key(node)
                    && !nodes.contains(node)
                    && !kept.contains(*node)
            };
            match self.labels.get(label) {
                None if is_left => {} // a node of the name may be registered again
                None => {
                    operations.push(remove(&["metadata", "labels", label]));
                    change.gone.insert(self.whole_name(instance, node));
                }
                Some(node) if has_left(node) => {
                    operations.push(remove(&["metadata", "labels", label]));
                }
                Some(_) => {}
            }
        }
        // With the label a node may claim slots.
        let left = (reports.iter())
            .filter(|(node, report)| !report.is_offered() && self.surroundings.selects(&of, node));
        let added: BTreeSet<String> = (nodes.iter().cloned())
            .chain(kept)
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

    /// Puts there what the nodes report, and takes out what is of nodes that the Instance does not name.
    fn status(
        &self,
        instance: &Instance,
        nodes: &[NodeName],
        reports: &NodeReports<'_>,
        change: &mut Change,
    ) -> Option<InstanceStatus> {
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
        change.events = events::of_health(&before, &after, nodes);
        let mut spec = instance.spec.clone();
        spec.nodes = nodes.to_vec();
        for (slot, _) in &change.freed {
            spec.device_usage.remove(slot);
        }
        let after = with_conditions(after, &spec, &now);
        let is_same = before.nodes == after.nodes && before.conditions == after.conditions;
        (!is_same).then_some(after)
    }
}

/// The identity of a pinned device that has none on its Instance yet, as the first node says it.
fn pin_of<'a>(nodes: &[NodeName], reports: &NodeReports<'a>) -> Option<&'a String> {
    let reports = nodes.iter().filter_map(|node| reports.get(node));
    reports.into_iter().find_map(|report| report.pin.as_ref())
}
