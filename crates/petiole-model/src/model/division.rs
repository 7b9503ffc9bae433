//! Divides a thing among namespaces, and the part of each among its Configurations. Pure.
//!
//! The rule is written here alone: one may have half of what the others leave. So a namespace has half of what the other
//! namespaces leave, however many Configurations it has; and of this part a Configuration has half of what the others of
//! its namespace leave, or all of it if it is the only one there. A part that is half of what others leave needs no list
//! of who may come: whoever comes later finds something.
use super::typed_names::{ConfigurationKey, ConfigurationName};
use std::collections::BTreeMap;

/// Returns the most that one may have of a thing of which `left` is free, and which it has `own` of: half of what others
/// leave. One of a thing is never divided.
pub fn share(left: i64, own: i64) -> i64 {
    half(left.saturating_add(own).max(0))
}

/// A thing that namespaces and their Configurations have parts of.
#[derive(Debug, PartialEq, Eq)]
pub struct Division {
    /// What nobody has; it is below zero if there is too much.
    free: i64,
    namespaces: BTreeMap<String, Namespace>,
}

impl Default for Division {
    /// Returns one of a thing without an end.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Namespace {
    taken: i64,
    of: BTreeMap<ConfigurationName, Part>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Part {
    taken: i64,
    /// How often the Configuration has joined.
    joined: usize,
}

impl Division {
    pub fn new(all: usize) -> Self {
        Self {
            free: signed(all),
            namespaces: BTreeMap::new(),
        }
    }

    /// Adds a Configuration that may take something. From then on it is not the only one for the others of its namespace.
    pub fn join(&mut self, key: &ConfigurationKey) {
        self.part(key).joined += 1;
    }

    /// Takes back a `join`. What the Configuration has taken it still has.
    pub fn leave(&mut self, key: &ConfigurationKey) {
        let part = self.part(key);
        part.joined = part.joined.saturating_sub(1);
        self.forget_nothing(key);
    }

    pub fn take(&mut self, key: &ConfigurationKey, amount: usize) {
        self.add(key, signed(amount));
    }

    pub fn give_back(&mut self, key: &ConfigurationKey, amount: usize) {
        self.add(key, -signed(amount));
        self.forget_nothing(key);
    }

    /// Returns what a Configuration has.
    pub fn own(&self, key: &ConfigurationKey) -> usize {
        let namespace = self.namespaces.get(&key.namespace);
        let part = namespace.and_then(|namespace| namespace.of.get(&key.name));
        part.map_or(0, |part| unsigned(part.taken))
    }

    /// Returns the most that a Configuration may have.
    pub fn most(&self, key: &ConfigurationKey) -> usize {
        let namespace = self.namespaces.get(&key.namespace);
        let all = share(self.free, namespace.map_or(0, |namespace| namespace.taken));
        let parts = namespace.into_iter().flat_map(|namespace| &namespace.of);
        let (mut own, mut others, mut is_alone) = (0, 0, true);
        for (name, part) in parts {
            if *name == key.name {
                own = part.taken;
                continue;
            }
            is_alone = false;
            // What one has beyond half, because it was the only one, does not count against those that came later.
            others += part.taken.min(half(all));
        }
        let most = if is_alone {
            all
        } else {
            share(all - others - own, own)
        };
        unsigned(most.min(own.saturating_add(self.free.max(0))))
    }

    /// Returns what a Configuration may have beside what it has.
    pub fn room(&self, key: &ConfigurationKey) -> usize {
        self.most(key).saturating_sub(self.own(key))
    }

    fn part(&mut self, key: &ConfigurationKey) -> &mut Part {
        let namespace = self.namespaces.entry(key.namespace.clone()).or_default();
        namespace.of.entry(key.name.clone()).or_default()
    }

    fn add(&mut self, key: &ConfigurationKey, amount: i64) {
        self.free -= amount;
        self.part(key).taken += amount;
        if let Some(namespace) = self.namespaces.get_mut(&key.namespace) {
            namespace.taken += amount;
        }
    }

    /// Forgets a Configuration that has nothing and will take nothing.
    fn forget_nothing(&mut self, key: &ConfigurationKey) {
        if let Some(namespace) = self.namespaces.get_mut(&key.namespace) {
            namespace
                .of
                .retain(|name, part| *name != key.name || part.taken != 0 || part.joined > 0);
            if namespace.of.is_empty() {
                self.namespaces.remove(&key.namespace);
            }
        }
    }
}

fn half(of: i64) -> i64 {
    of / 2 + of % 2
}

fn signed(amount: usize) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

fn unsigned(amount: i64) -> usize {
    usize::try_from(amount).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(namespace: &str, name: &str) -> ConfigurationKey {
        ConfigurationKey::new(namespace, name.to_owned())
    }

    /// Takes as much as a Configuration may have.
    fn take_all(division: &mut Division, key: &ConfigurationKey) -> usize {
        let more = division.most(key).saturating_sub(division.own(key));
        division.take(key, more);
        division.own(key)
    }

    #[test]
    fn half_of_what_others_leave_is_a_share() {
        assert_eq!(share(1000, 0), 500);
        assert_eq!(share(500, 500), 500, "it stays so while it is taken");
        assert_eq!((share(1, 0), share(0, 0), share(-3, 1)), (1, 0, 0));
    }

    #[test]
    fn the_only_configuration_of_the_only_namespace_has_half() {
        let mut division = Division::new(2000);
        division.join(&key("a", "only"));
        assert_eq!(take_all(&mut division, &key("a", "only")), 1000);
        assert_eq!(division.most(&key("a", "only")), 1000);
        division.give_back(&key("a", "only"), 1000);
        division.leave(&key("a", "only"));
        assert!(division.namespaces.is_empty());
        assert_eq!(Division::new(1).most(&key("a", "only")), 1);
    }

    #[test]
    fn a_namespace_has_half_however_many_configurations_it_has() {
        let mut division = Division::new(2000);
        let many: Vec<_> = (0..64).map(|n| key("many", &format!("c{n:02}"))).collect();
        many.iter().for_each(|key| division.join(key));
        division.join(&key("few", "a"));
        let taken: Vec<usize> = (many.iter())
            .map(|key| take_all(&mut division, key))
            .collect();
        assert_eq!(taken[..4], [500, 250, 125, 63]);
        assert_eq!(taken.iter().sum::<usize>(), 1000);
        assert_eq!(take_all(&mut division, &key("few", "a")), 500);
        division.join(&key("later", "a"));
        assert_eq!(take_all(&mut division, &key("later", "a")), 250);
    }

    #[test]
    fn what_one_took_while_it_was_the_only_one_leaves_something_to_the_next() {
        let mut division = Division::new(2000);
        division.join(&key("a", "first"));
        assert_eq!(take_all(&mut division, &key("a", "first")), 1000);
        division.join(&key("a", "second"));
        assert_eq!(division.most(&key("a", "first")), 500);
        assert_eq!(take_all(&mut division, &key("a", "second")), 250);
        assert_eq!(take_all(&mut division, &key("b", "other")), 375);
    }

    proptest! {
        #[test]
        fn never_is_there_more_than_all_and_whoever_comes_finds_something(
            turns in prop::collection::vec((0_usize..3, 0_usize..5, 0_usize..300, any::<bool>()), 0..60),
        ) {
            let mut division = Division::new(1000);
            for (namespace, name, amount, is_given_back) in turns {
                let key = key(&format!("n{namespace}"), &format!("c{name}"));
                if is_given_back {
                    let own = division.own(&key);
                    division.give_back(&key, amount.min(own));
                } else {
                    let room = division.most(&key).saturating_sub(division.own(&key));
                    division.take(&key, amount.min(room));
                }
                prop_assert!(division.free >= 0);
                let taken: i64 = division.namespaces.values().map(|n| n.taken).sum();
                prop_assert_eq!(taken + division.free, 1000);
                prop_assert!(division.most(&self::key("new", "one")) > 0 || division.free == 0);
            }
        }
    }
}
