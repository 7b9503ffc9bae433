//! Defines the limits of input: the most of each thing that users, other agents and the LAN may submit. Pure.
//!
//! The schemas of the CustomResourceDefinitions enforce them, and so does every reader of an object, because an object
//! may have been stored before its definition had a limit, or under a definition without any.

use petiole_base::collect::CollectMap as _;
use std::collections::BTreeMap;

/// The default of `--max-configurations` (`agent.maxConfigurations` of the chart), the most Configurations of an agent.
/// Beyond it: the youngest of the namespace with the largest part are refused (`TooManyConfigurations`).
pub const AGENT_CONFIGURATIONS: usize = 100;
/// The default of `--max-instances` (`agent.maxInstances` of the chart), the most Instances of an agent, and as many devices
/// without Instances; a namespace, and in it a Configuration, may have half of what the others leave. Beyond it: devices are left out
/// (`TooManyDevices`).
pub const AGENT_INSTANCES: usize = 2000;
/// The most labels of a Node by which `agent.nodeLabels` of the chart names Configurations with devices there: each watcher of Nodes
/// receives them with every change. Beyond it: the Configurations that come last in the alphabet get none, and the agent's log says so.
pub const NODE_LABELS_MAX: usize = 100;
/// The most slots of a device, which is the largest `capacity`. The kubelet gets each slot. Beyond it: the API
/// server refuses the object, and agents do not use it (`BadSpec`).
pub const CAPACITY_MAX: i32 = 10_000;
/// The most slots that all Instances of a node, and its devices without Instances, offer together. The kubelet writes all of them into its checkpoint at each
/// change of one resource, and several such writes at the same time: with 1,000 resources a kubelet 1.36 had 0.4 GB of
/// 20,000 slots, and 1.9 GB of 100,000. Beyond it: of the namespace with the most slots the devices with the most offer fewer
/// (`TooManySlots`).
pub const SLOTS_MAX: u64 = 20_000;
/// The most entries of `deviceUsage`: every slot, and some that remain after the capacity was lowered. Beyond it:
/// the API server refuses the write.
pub const USAGE_ENTRIES_MAX: usize = 10_064;
/// The longest id of a slot, in characters: the name of an Instance, a hyphen and a number. Beyond it: the API
/// server refuses the write.
pub const SLOT_ID_MAX: usize = 264;
/// The longest owner of a slot, in characters: `C:<configuration>-<number>:<node>`. Beyond it: the API server
/// refuses the write.
pub const SLOT_OWNER_MAX: usize = 600;
/// The largest `maxInstances` of a Configuration, and the most devices that a node reports for it. Beyond it: the
/// API server refuses the object, and agents do not use it (`BadSpec`).
pub const INSTANCES_MAX: i64 = 10_000;
/// The most Configurations on which one node reports. Beyond it: the API server refuses the write.
pub const CONFIGURATIONS_MAX: usize = 10_000;
/// The longest id of a device in a report, in characters. Beyond it: the API server refuses the write.
pub const DEVICE_ID_MAX: usize = 65_536;
/// The longest time that the Instance of a missing device may stay: a week, in seconds. Beyond it: the API server
/// refuses the object, and agents do not use it (`BadSpec`).
pub const GRACE_SECONDS_MAX: i64 = 604_800;
/// The longest name that `instanceName` gives to an Instance, in characters: resources have no longer ones. Beyond it: the
/// Instance is named by a digest (`InstanceNameNotGiven`).
pub const INSTANCE_NAME_MAX: usize = 63;
/// The longest name of an object, a node or a property, and the longest `instanceName`, in characters. Beyond it: the API server refuses the object,
/// and agents do not use it (`BadSpec`).
pub const NAME_MAX: usize = 253;
/// The longest namespace and the longest name of a discovery handler, in characters. Beyond it: the API server
/// refuses the object, and agents do not use it (`BadSpec`).
pub const LABEL_MAX: usize = 63;
/// The most `brokerProperties` of a Configuration. They are copied into each of its Instances. Beyond it: the API
/// server refuses the object, and agents do not use it (`BadSpec`).
pub const BROKER_PROPERTIES_MAX: usize = 64;
/// The most bytes of the names and values of a Configuration's `brokerProperties`; the schema counts characters. Beyond
/// it: the API server refuses the object, and agents do not use it (`BadSpec`).
pub const BROKER_PROPERTIES_BYTES_MAX: usize = 32 * 1024;
/// The most bytes of `metadata` and `spec` of a Configuration, without `managedFields`. Beyond it: the Configuration is
/// not parsed and is named (`Unreadable`), and agents that used an earlier version go on with that until they restart.
pub const CONFIGURATION_BYTES_MAX: usize = 256 * 1024;
/// The most bytes of all Configurations that an agent or a controller keeps; agents need no specs of brokers and Services.
/// Beyond it: the youngest of the namespace with the largest part are not read (`TooManyConfigurations`).
pub const CONFIGURATIONS_BYTES_MAX: usize = 8 << 20;
/// The most bytes of the properties of all Instances of a node; a namespace, and in it a Configuration, may have half of
/// what the others leave. Beyond it: devices of the Configuration that exceeds its part are left out (`TooManyDevices`).
pub const INSTANCES_BYTES_MAX: usize = 16 << 20;
/// The most bytes of new and changed properties of devices that an agent plans in one turn. Beyond it: the others follow
/// in the next turns, and each namespace and each Configuration has a part of each turn.
pub const TURN_BYTES_MAX: usize = 512 * 1024;
/// The most bytes of a NodeDevices; the API server refuses one with 1.5 MB. Beyond it: messages are cut, and then the
/// newest devices without an Instance of the namespace with the largest part are left out, there those of the Configuration
/// with the largest part (`TooManyDevices`).
pub const NODE_DEVICES_BYTES_MAX: usize = 1 << 20;
/// The most bytes of an answer of `Allocate` for one container. Beyond it: the container is refused.
pub const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// The longest value of a property of a Configuration, also one of a Secret or ConfigMap, in characters. Beyond it:
/// the API server refuses the object, and agents do not use it (`BadSpec`). A value of a Secret or ConfigMap is not
/// used (`DiscoveryPropertyUnreadable`).
pub const PROPERTY_VALUE_MAX: usize = 8192;
/// The most properties of an Instance, including those of its device and its Configuration. Beyond it: the API
/// server refuses the write.
pub const INSTANCE_PROPERTIES_MAX: usize = 256;
/// The most properties of a device, so that its Configuration's have their places beside them. Beyond it: the API server refuses
/// the report; a device of a handler in another process is left out (`DiscoveryIncomplete`).
pub const DEVICE_PROPERTIES_MAX: usize = INSTANCE_PROPERTIES_MAX - BROKER_PROPERTIES_MAX;
/// The longest names and values of all properties of an Instance together, in characters. Beyond it: the API server
/// refuses the write.
pub const INSTANCE_PROPERTIES_TEXT_MAX: usize = 256 * 1024;
/// The longest value of a property of an Instance, in characters. A device may have longer values than a
/// Configuration. Beyond it: the API server refuses the write.
pub const INSTANCE_PROPERTY_VALUE_MAX: usize = 65_536;
/// The longest `discoveryDetails`, in characters. Beyond it: the API server refuses the object, and agents do not
/// use it (`BadSpec`).
pub const DETAILS_MAX: usize = 65_536;
/// The longest `discoveryDetails` that a handler parses, in bytes. A character has at most four. Beyond it: the
/// Configuration is not used (`BadDiscoveryDetails`).
pub const DETAILS_BYTES_MAX: usize = 4 * DETAILS_MAX;
/// The most `discoveryProperties`. Beyond it: the API server refuses the object, and agents do not use it
/// (`BadSpec`).
pub const DISCOVERY_PROPERTIES_MAX: usize = 64;
/// The most Secrets and ConfigMaps that one agent watches for `discoveryProperties`. Each takes a request to the API
/// server that stays open. Beyond it: younger Configurations of the namespace with the largest part have the problem
/// `DiscoveryPropertyUnreadable`.
pub const PROPERTY_SOURCES_MAX: usize = 64;
/// The longest name of a resource, in characters: a prefix, a slash and a name. Beyond it: the API server refuses
/// the write.
pub const RESOURCE_NAME_MAX: usize = 317;
/// The most nodes in one object. Beyond it: the API server refuses the write. The controller writes the first ones
/// only.
pub const NODES_MAX: usize = 10_000;
/// The most labels in the node selector of a Configuration. Beyond it: the API server refuses the object.
pub const NODE_SELECTOR_MAX: usize = 16;
/// The most problems that one node reports for a Configuration. Beyond it: the later ones are left out.
pub const PROBLEMS_MAX: usize = 16;
/// The longest message of a problem, in bytes. Beyond it: the end is cut off.
pub const PROBLEM_MESSAGE_MAX: usize = 1024;
/// The longest pin of a device, in characters: a host and eight networks. Four characters represent one byte of a
/// host's name. Beyond it: the device has no pin.
pub const PIN_MAX: usize = 1536;
/// The longest `containerDevices.path`, and the longest link of a device node, in characters. Beyond it: the API server
/// refuses the object, and agents do not use it (`BadSpec`); a link of `udev` is left out, and with one an external
/// handler's device (`DiscoveryIncomplete`).
pub const CONTAINER_PATH_MAX: usize = 255;
/// The most links of one device node. Beyond it: containers get the first ones of `udev`, and an external handler's device is
/// left out (`DiscoveryIncomplete`).
pub const NODE_LINKS_MAX: usize = 32;
/// The largest CDI file that an agent writes, in bytes: it describes one device. Beyond it: the container is refused.
pub const CDI_FILE_BYTES_MAX: usize = 256 * 1024;
/// The longest single word, such as a condition's type or reason, in characters. Beyond it: the API server refuses
/// the write.
pub const WORD_MAX: usize = 128;
/// The longest message of a condition, in characters, as in Kubernetes. Beyond it: the API server refuses the write.
pub const CONDITION_MESSAGE_MAX: usize = 32_768;
/// The most conditions of an object. Beyond it: the API server refuses the write.
pub const CONDITIONS_MAX: usize = 16;

/// Returns the beginning of `text` with at most `limit` bytes. If something is cut off, it ends with an ellipsis.
pub fn cut(mut text: String, limit: usize) -> String {
    const ELLIPSIS: &str = "…";
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit - ELLIPSIS.len()));
        text.push_str(ELLIPSIS);
    }
    text
}

/// The most slots that each Instance of a namespace may offer, so that all Instances of a node together offer at most
/// [`SLOTS_MAX`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlotLimits(BTreeMap<String, u32>);

impl SlotLimits {
    /// Divides the slots among the namespaces of these capacities, and the part of each among its Instances: what one does not
    /// need the others have. Large capacities are cut, to a power of two, and small ones stay. One slot of each device is always
    /// offered.
    pub fn new<'a>(capacities: impl Iterator<Item = (&'a str, i32)>) -> Self {
        let most = u64::from(CAPACITY_MAX.unsigned_abs());
        let mut namespaces: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (namespace, capacity) in capacities {
            let capacity = u64::try_from(capacity).unwrap_or(0).min(most);
            namespaces.entry(namespace).or_default().push(capacity);
        }
        let total = |all: &[u64], limit: u64| all.iter().map(|one| *one.min(&limit)).sum::<u64>();
        let part = |all: &[u64], level: u64| total(all, most).min(level.max(total(all, 1)));
        let level = largest(SLOTS_MAX, |level| {
            let parts = namespaces.values().map(|all| part(all, level));
            parts.sum::<u64>() <= SLOTS_MAX
        });
        let limits = namespaces.iter().map(|(namespace, all)| {
            let limit = largest(most, |limit| total(all, limit) <= part(all, level));
            let limit = u32::try_from(limit).unwrap_or(u32::MAX);
            ((*namespace).to_owned(), stable(limit))
        });
        Self(limits.collect_map())
    }

    /// Returns the most slots of each Instance of a namespace.
    pub fn of(&self, namespace: &str) -> u32 {
        let limit = self.0.get(namespace).copied();
        limit.unwrap_or(CAPACITY_MAX.unsigned_abs())
    }
}

/// Returns a limit that stays the same while a few devices come and go: for each change all lists of the namespace are sent to
/// the kubelet again.
fn stable(limit: u32) -> u32 {
    match limit {
        limit if limit >= CAPACITY_MAX.unsigned_abs() => limit,
        limit => 1 << limit.ilog2(),
    }
}

/// Returns the largest number from 1 to `most` that holds. Each number below one that holds does, too, and 1 counts as one.
fn largest(most: u64, holds: impl Fn(u64) -> bool) -> u64 {
    if holds(most) {
        return most;
    }
    let (mut good, mut bad) = (1, most);
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        if holds(middle) {
            good = middle
        } else {
            bad = middle
        }
    }
    good
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("short".to_owned(), 5), "short");
        assert_eq!(cut("éééé".to_owned(), 8), "éééé");
        assert_eq!(cut("ééééé".to_owned(), 8), "éé…");
    }

    #[test]
    fn only_instances_with_many_slots_are_cut_and_only_where_all_together_have_too_many() {
        let of = |capacities: &[i32]| SlotLimits::new(capacities.iter().map(|c| ("a", *c))).of("a");
        assert_eq!(of(&[]), 10_000);
        assert_eq!(of(&[i32::MAX, -1]), 10_000);
        assert_eq!(of(&[10_000; 2]), 10_000);
        assert_eq!(of(&[10_000; 4]), 4_096);
        assert_eq!(of(&[10_000; 3]), of(&[10_000; 4]));
        let mut mixed = vec![1; 1000];
        mixed.extend([10_000; 100]);
        assert_eq!(of(&mixed), 128);
    }

    #[test]
    fn a_namespace_with_few_slots_is_not_cut_because_of_another() {
        let mut all = vec![("a", 10_000); 900];
        all.extend([("b", 100), ("c", 9_000)]);
        let limits = SlotLimits::new(all.into_iter());
        assert_eq!(limits.of("b"), 100.max(limits.of("none")));
        assert!(limits.of("c") >= 9_000);
        assert_eq!(limits.of("a"), 8);
    }

    proptest! {
        #[test]
        fn the_slots_of_a_node_are_bounded(all in vec((0..4usize, any::<i32>()), 0..2000)) {
            let all: Vec<(&str, i32)> = all.into_iter().map(|(n, c)| (["a", "b", "c", "d"][n], c)).collect();
            let limits = SlotLimits::new(all.iter().copied());
            let offered = |(namespace, capacity): &(&str, i32)| {
                u64::try_from(*capacity).unwrap_or(0).min(u64::from(limits.of(namespace)))
            };
            prop_assert!(all.iter().all(|(namespace, _)| (1..=10_000).contains(&limits.of(namespace))));
            prop_assert!(all.iter().map(offered).sum::<u64>() <= SLOTS_MAX);
        }
    }
}
