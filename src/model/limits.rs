//! The bounds of what comes from outside: the most of each thing that users, other agents and the LAN may hand in. Pure.
//!
//! The schemas of the CustomResourceDefinitions hold them, and so does whoever reads an object: one may have been stored
//! before its definition had a bound, or under a definition without any.

/// The most usage slots of a device, as `capacity` says. The kubelet is sent each of them.
pub const CAPACITY_MAX: i32 = 10_000;
/// The most slots that all Instances of a node offer together: each is listed, sent and kept by the kubelet.
pub const SLOTS_MAX: u64 = 100_000;
/// Entries of `deviceUsage`: every slot, and some that were left over when the capacity was lowered.
pub const USAGE_ENTRIES_MAX: usize = 10_064;
/// A slot's id: the name of an Instance, a hyphen and a number.
pub const SLOT_ID_MAX: usize = 264;
/// A slot's owner: `C:<configuration>-<number>:<node>`.
pub const SLOT_OWNER_MAX: usize = 600;
/// The most that `maxInstances` of a Configuration may say.
pub const INSTANCES_MAX: i64 = 10_000;
/// The most Configurations that one node reports on, and the characters of a device's id.
pub const CONFIGURATIONS_MAX: usize = 10_000;
pub const DEVICE_ID_MAX: usize = 65_536;
/// A week: the longest that the Instance of a vanished device may stay.
pub const GRACE_SECONDS_MAX: i64 = 604_800;
/// The names of objects and of nodes.
pub const NAME_MAX: usize = 253;
/// Namespaces, and names of discovery handlers.
pub const LABEL_MAX: usize = 63;
/// The most `brokerProperties` of a Configuration. They are copied into each of its Instances.
pub const BROKER_PROPERTIES_MAX: usize = 64;
/// The characters of a property's value.
pub const PROPERTY_VALUE_MAX: usize = 8192;
/// The most properties of an Instance: its device's and its Configuration's.
pub const INSTANCE_PROPERTIES_MAX: usize = 256;
/// The characters of one property of an Instance. A device may say more than a Configuration.
pub const INSTANCE_PROPERTY_VALUE_MAX: usize = 65_536;
/// The characters of `discoveryDetails`.
pub const DETAILS_MAX: usize = 65_536;
/// The bytes of what they say: a character has four at most.
pub const DETAILS_BYTES_MAX: usize = 4 * DETAILS_MAX;
/// The most `discoveryProperties`.
pub const DISCOVERY_PROPERTIES_MAX: usize = 64;
/// The characters of a resource's name: a prefix, a slash and a name.
pub const RESOURCE_NAME_MAX: usize = 317;
/// The nodes that one object names.
pub const NODES_MAX: usize = 10_000;
/// The labels that a Configuration asks of nodes.
pub const NODE_SELECTOR_MAX: usize = 16;
/// The problems that one node reports of a Configuration, and the bytes of a problem's message.
pub const PROBLEMS_MAX: usize = 16;
pub const PROBLEM_MESSAGE_MAX: usize = 1024;
/// The pin of a device: a host and eight networks. Four characters stand for one byte of a host's name.
pub const PIN_MAX: usize = 1536;
/// One word, such as a condition's type or reason.
pub const WORD_MAX: usize = 128;
/// A condition's message, as Kubernetes bounds it.
pub const CONDITION_MESSAGE_MAX: usize = 32_768;
pub const CONDITIONS_MAX: usize = 16;

/// The beginning of `text` that has at most `limit` bytes; where something is cut off, it ends with an ellipsis.
pub fn cut(mut text: String, limit: usize) -> String {
    const ELLIPSIS: &str = "…";
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit - ELLIPSIS.len()));
        text.push_str(ELLIPSIS);
    }
    text
}

/// The most slots that one Instance may offer, so that those with `capacities` have [`SLOTS_MAX`] together: the large
/// ones are cut, the small ones are left as they are.
pub fn slots_of_each(capacities: impl Iterator<Item = i32> + Clone) -> u32 {
    let most = CAPACITY_MAX.unsigned_abs();
    let total = |limit: u32| -> u64 {
        let cut = |capacity| u64::from(u32::try_from(capacity).unwrap_or(0).min(limit));
        capacities.clone().map(cut).sum()
    };
    if total(most) <= SLOTS_MAX {
        return most;
    }
    // The largest limit that holds; one slot of each device is always offered.
    let (mut holds, mut breaks) = (1, most);
    while breaks - holds > 1 {
        let middle = holds.midpoint(breaks);
        match total(middle) <= SLOTS_MAX {
            true => holds = middle,
            false => breaks = middle,
        }
    }
    holds
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
        let of = |capacities: &[i32]| slots_of_each(capacities.iter().copied());
        assert_eq!(of(&[]), 10_000);
        assert_eq!(of(&[i32::MAX, -1]), 10_000);
        assert_eq!(of(&[10_000; 10]), 10_000);
        assert_eq!(of(&[10_000; 20]), 5_000);
        let mut mixed = vec![1; 1000];
        mixed.extend([10_000; 100]);
        assert_eq!(of(&mixed), 990);
    }

    proptest! {
        #[test]
        fn the_slots_of_a_node_are_bounded(capacities in vec(any::<i32>(), 0..2000)) {
            let limit = slots_of_each(capacities.iter().copied());
            prop_assert!((1..=10_000).contains(&limit));
            let sum: u64 = capacities.iter().map(|c| u64::from(u32::try_from(*c).unwrap_or(0).min(limit))).sum();
            prop_assert!(sum <= SLOTS_MAX);
        }
    }
}
