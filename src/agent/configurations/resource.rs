//! Decides which Configuration gets which resource name (`spec.resourceName`). Pure.
use super::world::World;
use crate::{
    agent::values::{Accepted, Ids},
    api::{
        configuration::{Configuration, Problem},
        reason::Reason,
    },
    model::{
        names::ObjectKey,
        node_resources::has_prefix,
        resource_names::{ResourceNames, is_resource_name},
    },
    store::Configurations,
};
use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

/// The names that Configurations want, or go on with, as their own.
pub(super) fn wanted(configurations: &Configurations, before: &Accepted) -> BTreeSet<String> {
    let objects = configurations.objects.values();
    let now = objects.filter_map(|configuration| configuration.spec.resource_name.clone());
    let earlier = before.keys().filter_map(|key| own_name(before, key));
    now.chain(earlier.cloned()).collect()
}

fn own_name<'a>(accepted: &'a Accepted, key: &ObjectKey) -> Option<&'a String> {
    accepted.get(key)?.configuration.spec.resource_name.as_ref()
}

/// Holds one Configuration's name to all that does not depend on the others.
pub(super) fn check(world: &World<'_>, configuration: &Configuration) -> Result<(), Problem> {
    let Some(name) = &configuration.spec.resource_name else {
        return Ok(());
    };
    if !is_resource_name(name) {
        let message = format!(
            "resourceName is {name:?}; it must be a prefix and a name, such as {}/camera",
            world.prefix
        );
        return Err(Problem::new(Reason::BadSpec, message));
    }
    if !has_prefix(name, world.prefixes) {
        let message = format!(
            "resourceName is {name:?}, and the prefixes of this agent are {}: use one of them, or add yours to --resource-prefixes (resourcePrefixes of the chart)",
            world.prefixes.join(", ")
        );
        return Err(Problem::new(Reason::ResourcePrefix, message));
    }
    let instance_of = |other: &ObjectKey| {
        let digest = name.strip_prefix(world.prefix).and_then(|name| {
            name.strip_prefix('/')?
                .strip_prefix(&other.name)?
                .strip_prefix('-')
        });
        digest
            .is_some_and(|d| matches!(d.len(), 6 | 10) && d.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    match world
        .configurations
        .objects
        .keys()
        .find(|other| instance_of(other))
    {
        Some(other) => {
            let message = format!(
                "resourceName is {name:?}, which may be the resource of an Instance of {other}: take another name"
            );
            Err(Problem::new(Reason::ResourceTaken, message))
        }
        None => Ok(()),
    }
}

/// The ids that are no slots of ours, one for each resource. Slots are named after their Configuration, also those of an
/// agent before this one.
pub(super) fn foreign(listed: &Ids, ours: &BTreeSet<String>) -> BTreeMap<String, String> {
    let is_ours = |id: &String| {
        id.rsplit_once('-').is_some_and(|(of, number)| {
            !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) && ours.contains(of)
        })
    };
    let others = listed.iter().filter_map(|(resource, ids)| {
        let id = ids.iter().find(|id| !is_ours(id))?;
        Some((resource.clone(), id.clone()))
    });
    others.collect()
}

/// A Configuration whose name another plugin has goes on as it was under another name, or without one: its Instances
/// have names of their own.
pub(super) fn report_foreign(
    world: &World<'_>,
    accepted: &mut Accepted,
    problems: &mut BTreeMap<ObjectKey, Problem>,
) {
    let Some(foreign) = world.foreign else {
        return;
    };
    for (key, accepted) in accepted {
        let Some(name) = accepted.configuration.spec.resource_name.clone() else {
            continue;
        };
        let Some(id) = foreign.get(&name) else {
            continue;
        };
        let message = format!(
            "resourceName is {name:?}, and another device plugin on this node has that resource (its device {id:?}): stop it, or take another name"
        );
        // What is wrong with its last edit comes first.
        let problem = problems.entry(key.clone());
        problem.or_insert_with(|| Problem::new(Reason::ResourceTaken, message));
        let earlier = world.before.get(key);
        let other_name = earlier.filter(|e| e.configuration.spec.resource_name != Some(name));
        if let Some(earlier) = other_name {
            *accepted = earlier.clone();
        }
    }
}

/// Returns whether a plugin of ours may register a name, or has: it must not end another's, and may not before the
/// kubelet was asked who else has it. Where another registers over ours a kubelet listens to both, and would let go of
/// the other if ours went.
fn is_free(world: &World<'_>, name: &str) -> bool {
    let is_free = |foreign: &BTreeMap<String, String>| !foreign.contains_key(name);
    world.registered.contains(name) || world.foreign.is_some_and(is_free)
}

/// Returns the name of each Configuration's resource.
pub(super) fn names(world: &World<'_>, accepted: &Accepted) -> ResourceNames {
    let configurations = world.configurations;
    // One that cannot be read keeps the default name it most likely has.
    let are_known = configurations.is_complete
        || !configurations.objects.is_empty()
        || !configurations.hidden.is_empty();
    let mut names = ResourceNames::new(world.prefix, are_known);
    let refused = configurations
        .objects
        .iter()
        .filter(|(key, configuration)| {
            configuration.spec.resource_name.is_some() && !accepted.contains_key(*key)
        });
    for (key, _) in refused {
        names.set(key, None);
    }
    for key in accepted.keys() {
        if let Some(own) = own_name(accepted, key) {
            names.set(key, is_free(world, own).then(|| own.clone()));
        }
    }
    names
}

/// Two that want one resource: the one that has it goes on, else the older does. The other goes on as it was before, if
/// it was under another name.
pub(super) fn refuse_second(
    world: &World<'_>,
    accepted: &mut Accepted,
    problems: &mut BTreeMap<ObjectKey, Problem>,
) {
    while let Some((loser, winner, name)) = collision(world, accepted) {
        let earlier = (world.before.get(&loser))
            .filter(|earlier| full_name(world, &loser, &earlier.configuration) != name);
        match earlier {
            Some(earlier) => drop(accepted.insert(loser.clone(), earlier.clone())),
            None => drop(accepted.remove(&loser)),
        }
        let message = format!(
            "the resource {name} is that of the Configuration {winner}, which is older or had it before: give this one another resourceName"
        );
        problems.insert(loser, Problem::new(Reason::ResourceTaken, message));
    }
}

/// Two of one resource: who goes without it, who has it, and its name.
fn collision(world: &World<'_>, accepted: &Accepted) -> Option<(ObjectKey, ObjectKey, String)> {
    let has_it = |key: &ObjectKey, name: &str| {
        let before = world.before.get(key);
        before.is_some_and(|b| full_name(world, key, &b.configuration) == name)
    };
    let age = |key: &ObjectKey, name: &str| {
        let created = accepted[key]
            .configuration
            .metadata
            .creation_timestamp
            .clone();
        (!has_it(key, name), created, key.clone())
    };
    let mut first: BTreeMap<String, &ObjectKey> = BTreeMap::new();
    for (key, configuration) in accepted {
        match first.entry(full_name(world, key, &configuration.configuration)) {
            Entry::Vacant(entry) => drop(entry.insert(key)),
            Entry::Occupied(entry) => {
                let (name, other) = (entry.key().clone(), *entry.get());
                let (winner, loser) = match age(key, &name) < age(other, &name) {
                    true => (key, other),
                    false => (other, key),
                };
                return Some((loser.clone(), winner.clone(), name));
            }
        }
    }
    None
}

fn full_name(world: &World<'_>, key: &ObjectKey, configuration: &Configuration) -> String {
    let own = configuration.spec.resource_name.clone();
    own.unwrap_or_else(|| format!("{}/{}", world.prefix, key.name))
}

#[cfg(test)]
#[path = "resource_tests.rs"]
mod tests;
