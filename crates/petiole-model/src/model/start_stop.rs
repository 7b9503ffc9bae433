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
