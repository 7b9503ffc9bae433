//! Compares what runs with what is desired. Pure.
use std::collections::BTreeMap;

/// The keys to stop and the values to start. A changed value is stopped and started.
#[derive(Debug, PartialEq, Eq)]
pub struct StartStop<'a, K, V> {
    pub stop: Vec<&'a K>,
    pub start: Vec<(&'a K, &'a V)>,
}

impl<'a, K: Ord, V: PartialEq> StartStop<'a, K, V> {
    pub fn new(desired: &'a BTreeMap<K, V>, running: &'a BTreeMap<K, V>) -> Self {
        let stop = running.iter();
        let stop = stop.filter(|(key, value)| desired.get(*key) != Some(value));
        let start = desired.iter();
        let start = start.filter(|(key, value)| running.get(*key) != Some(value));
        Self {
            stop: stop.map(|(key, _)| key).collect(),
            start: start.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::btree_map, prelude::*};

    proptest! {
        #[test]
        fn what_is_stopped_and_started_leaves_nothing_to_do(
            desired in btree_map("[a-c]", "[x-z]", 0..4),
            running in btree_map("[a-c]", "[x-z]", 0..4),
        ) {
            let StartStop { stop, start } = StartStop::new(&desired, &running);
            let mut after = running.clone();
            for key in stop {
                prop_assert!(after.remove(key).is_some());
            }
            for (key, value) in start {
                prop_assert!(after.insert(key.clone(), value.clone()).is_none());
            }
            let nothing = StartStop { stop: vec![], start: vec![] };
            prop_assert_eq!(StartStop::new(&desired, &after), nothing);
        }
    }
}
