//! Decides which of several Configurations with one name works: they would share one resource, so only one does. Pure.
use super::{configuration::Problem, reason::Reason};
use crate::model::typed_names::ConfigurationKey;
use std::collections::{BTreeMap, btree_map::Entry};

/// Returns, for each name, the Configuration that has it: the one with the smallest `age`, and of equals the first key.
pub fn first_of_each_name<'a, A: Ord>(
    keys: impl Iterator<Item = &'a ConfigurationKey>,
    age: impl Fn(&ConfigurationKey) -> A,
) -> BTreeMap<&'a str, &'a ConfigurationKey> {
    let rank = |key: &'a ConfigurationKey| (age(key), key);
    let mut first: BTreeMap<&str, &ConfigurationKey> = BTreeMap::new();
    for key in keys {
        match first.entry(&key.name) {
            Entry::Vacant(entry) => {
                entry.insert(key);
            }
            Entry::Occupied(mut entry) if rank(key) < rank(entry.get()) => {
                entry.insert(key);
            }
            Entry::Occupied(_) => {}
        }
    }
    first
}

/// The state of the one Configuration that has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Winner {
    Works,
    /// The Configuration cannot work as it stands.
    Broken,
}

/// Returns the problem of a Configuration whose name `winner` has.
pub fn name_taken(winner: &ConfigurationKey, state: Winner) -> Problem {
    let state = match state {
        Winner::Works => "works",
        Winner::Broken => "is older, though it cannot work as it stands",
    };
    let message = format!(
        "{winner} has the same name and {state}: only one Configuration of a name works, whatever the namespaces; rename this one"
    );
    Problem::new(Reason::ConfigurationNameTaken, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_a_name_has_it_and_of_equals_the_first_namespace() {
        let keys = [("a", "cam"), ("b", "cam"), ("c", "cam"), ("c", "tv")];
        let keys = keys.map(|(namespace, name)| ConfigurationKey::new(namespace, name));
        let first = |ages: [u32; 3]| {
            let age =
                |key: &ConfigurationKey| ages[keys.iter().position(|k| k == key).unwrap_or(0) % 3];
            first_of_each_name(keys.iter(), age)["cam"]
                .namespace
                .clone()
        };
        assert_eq!(first([3, 2, 1]), "c");
        assert_eq!(first([3, 1, 1]), "b");
        assert_eq!(first([1, 1, 1]), "a");
    }
}
