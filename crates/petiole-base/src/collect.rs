//! Collects into small ordered maps by insertion.
//!
//! `BTreeMap::from_iter` sorts first, and the type of its comparison has the iterator in it. Each place that collects a map would get
//! a sorting algorithm of its own, 5 kB of code, which an agent has in its memory. Maps of Instances, devices, slots or nodes are
//! collected as usual: 10,000 pairs that are in order take ten times as long by insertion. So are sets, which share one for each
//! type of their elements.
use std::collections::BTreeMap;

/// Collects pairs into a map. Of pairs with the same key the last one stays, as with `collect`.
pub trait CollectMap<K, V>: Iterator<Item = (K, V)> + Sized {
    fn collect_map(self) -> BTreeMap<K, V>
    where
        K: Ord,
    {
        let mut map = BTreeMap::new();
        map.extend(self);
        map
    }
}

impl<K, V, I: Iterator<Item = (K, V)>> CollectMap<K, V> for I {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_has_the_last_of_pairs_with_the_same_key() {
        let pairs = [(2, "b"), (1, "a"), (2, "c")];
        assert_eq!(pairs.into_iter().collect_map(), BTreeMap::from(pairs));
    }
}
