//! `spec.resourceName`: who may have which. Pure.
use super::plan::{Accepted, World};
use crate::{
    api::configuration::{Configuration, Problem},
    model::{
        names::ObjectKey,
        node_resources::has_prefix,
        resource_names::{ResourceNames, is_resource_name},
    },
    store::Configurations,
};
use std::collections::{BTreeMap, btree_map::Entry};

/// The reason of a name that another has.
pub(super) const TAKEN: &str = "ResourceTaken";

/// Whether a Configuration wants a name that it does not have yet.
pub(super) fn are_new(configurations: &Configurations, before: &Accepted) -> bool {
    (configurations.objects.iter()).any(|(key, configuration)| {
        let wanted = configuration.spec.resource_name.as_ref();
        wanted.is_some() && wanted != own_name(before, key)
    })
}

fn own_name<'a>(accepted: &'a Accepted, key: &ObjectKey) -> Option<&'a String> {
    accepted.get(key)?.configuration.spec.resource_name.as_ref()
}

/// Holds one Configuration's name to all that does not depend on the others.
pub(super) fn check(
    world: &World<'_>,
    key: &ObjectKey,
    configuration: &Configuration,
) -> Result<(), Problem> {
    let Some(name) = &configuration.spec.resource_name else {
        return Ok(());
    };
    if !is_resource_name(name) {
        let message = format!(
            "resourceName is {name:?}; it must be a prefix and a name, such as {}/camera",
            world.prefix
        );
        return Err(Problem::new("BadSpec", message));
    }
    if !has_prefix(name, world.prefixes) {
        let message = format!(
            "resourceName is {name:?}, and the prefixes of this agent are {}: use one of them, or add yours to --resource-prefixes (resourcePrefixes of the chart)",
            world.prefixes.join(", ")
        );
        return Err(Problem::new("ResourcePrefix", message));
    }
    // Its own slots are there too, those of an agent before this one: they are named after the Configuration.
    let is_own = |id: &String| {
        let number = id
            .strip_prefix(&key.name)
            .and_then(|id| id.strip_prefix('-'));
        number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let is_held = own_name(world.before, key) == Some(name);
    let other = world
        .offered
        .get(name)
        .and_then(|ids| ids.iter().find(|id| !is_own(id)));
    if let Some(id) = other.filter(|_| !is_held) {
        let message = format!(
            "resourceName is {name:?}, and another device plugin on this node has that resource (its device {id:?}): stop it, or take another name"
        );
        return Err(Problem::new(TAKEN, message));
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
            Err(Problem::new(TAKEN, message))
        }
        None => Ok(()),
    }
}

/// What each Configuration's resource is called.
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
            names.set(key, Some(own.clone()));
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
        problems.insert(loser, Problem::new(TAKEN, message));
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
