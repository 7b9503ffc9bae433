//! Decides which Configuration gets which resource name (`spec.resourceName`). Pure.
use super::world::World;
use crate::{
    agent::values::{Accepted, AcceptedConfiguration, IdsByResource},
    api::{
        configuration::{Configuration, Problem},
        reason::Reason,
    },
    model::{
        instance_name::{InstanceName, is_digest},
        resource_name::ResourceName,
        resource_names::ResourceNames,
        typed_names::{ConfigurationKey, ConfigurationName},
    },
    store::Configurations,
};
use petiole_base::collect::CollectMap as _;
use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

/// The names that Configurations want, or go on with, as their own.
pub(super) fn wanted(configurations: &Configurations, before: &Accepted) -> BTreeSet<ResourceName> {
    let objects = configurations.objects.values();
    let now = objects.filter_map(|configuration| configuration.spec.resource());
    let earlier = before.values();
    let earlier = earlier.filter_map(|accepted| accepted.resource_name.clone());
    now.chain(earlier).collect()
}

/// Returns the configured name of a Configuration's resource. It is checked against everything but the names that other
/// Configurations want.
pub(super) fn checked(
    world: &World<'_>,
    configuration: &Configuration,
) -> Result<Option<ResourceName>, Problem> {
    let Some(name) = &configuration.spec.resource_name else {
        return Ok(None);
    };
    let default_prefix = world.prefixes.first();
    let Ok(name) = name.parse::<ResourceName>() else {
        let message = format!(
            "resourceName is {name:?}; it must be a prefix and a name, such as {default_prefix}/camera"
        );
        return Err(Problem::new(Reason::BadSpec, message));
    };
    if !world.prefixes.owns(&name) {
        let message = format!(
            "resourceName is {name:?}, and the prefixes of this agent are {}: use one of them, or add yours to --resource-prefixes (resourcePrefixes of the chart)",
            world.prefixes
        );
        return Err(Problem::new(Reason::ResourcePrefix, message));
    }
    let instance_of = |other: &ConfigurationKey| {
        let instance = InstanceName::from(name.last_segment());
        *default_prefix == *name.prefix() && !instance.is_own(&other.name)
    };
    let mut others = world.configurations.objects.keys();
    match others.find(|other| instance_of(other)) {
        Some(other) => {
            let message = format!(
                "resourceName is {name:?}, which may be the resource of an Instance of {other}: take another name"
            );
            Err(Problem::new(Reason::ResourceTaken, message))
        }
        None => Ok(Some(name)),
    }
}

/// The ids that are no slots of ours, one for each resource. Slots are named after their Configuration, also those of an
/// agent before this one, and without Instances after a device of it.
pub(super) fn foreign(
    listed: &IdsByResource,
    ours: &BTreeSet<ConfigurationName>,
    node_only: &BTreeSet<ConfigurationName>,
) -> BTreeMap<ResourceName, String> {
    let is_ours = |id: &String| {
        id.rsplit_once('-').is_some_and(|(of, number)| {
            let of_device = of.rsplit_once('-').filter(|(_, digest)| is_digest(digest));
            !number.is_empty()
                && number.bytes().all(|b| b.is_ascii_digit())
                && (ours.contains(of) || of_device.is_some_and(|(of, _)| node_only.contains(of)))
        })
    };
    let others = listed.iter().filter_map(|(resource, ids)| {
        let id = ids.iter().find(|id| !is_ours(id))?;
        Some((resource.clone(), id.clone()))
    });
    others.collect_map()
}

/// A Configuration whose name another plugin has goes on as it was under another name, or without one: its Instances
/// have names of their own.
pub(super) fn report_foreign(
    world: &World<'_>,
    accepted: &mut Accepted,
    problems: &mut BTreeMap<ConfigurationKey, Problem>,
) {
    let Some(foreign) = world.foreign else {
        return;
    };
    for (key, accepted) in accepted {
        let Some(name) = accepted.resource_name.clone() else {
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
        let other_name = earlier.filter(|earlier| earlier.resource_name != Some(name));
        if let Some(earlier) = other_name {
            *accepted = earlier.clone();
        }
    }
}

/// Returns whether a plugin of ours may register a name, or has: it must not end another's, and may not before the
/// kubelet was asked who else has it. Where another registers over ours a kubelet listens to both, and would let go of
/// the other if ours went.
fn is_free(world: &World<'_>, name: &ResourceName) -> bool {
    let is_free = |foreign: &BTreeMap<ResourceName, String>| !foreign.contains_key(name);
    world.registered.contains(name) || world.foreign.is_some_and(is_free)
}

/// Returns the name of each Configuration's resource.
pub(super) fn names(world: &World<'_>, accepted: &Accepted) -> ResourceNames {
    let configurations = world.configurations;
    let prefix = world.prefixes.first();
    // One that cannot be read keeps the default name it most likely has.
    let mut names = if configurations.are_read() {
        ResourceNames::new(prefix)
    } else {
        ResourceNames::before_the_first_read(prefix)
    };
    let refused = configurations
        .objects
        .iter()
        .filter(|(key, configuration)| {
            configuration.spec.resource_name.is_some() && !accepted.contains_key(key)
        });
    for (key, _) in refused {
        names.set(&key.name, None);
    }
    for (key, accepted) in accepted {
        if let Some(own) = &accepted.resource_name {
            let name = is_free(world, own).then(|| own.clone());
            names.set(&key.name, name);
        }
    }
    names
}

/// Two that want one resource: the one that has it goes on, else the older does. The other goes on as it was before, if
/// it was under another name.
pub(super) fn refuse_second(
    world: &World<'_>,
    accepted: &mut Accepted,
    problems: &mut BTreeMap<ConfigurationKey, Problem>,
) {
    while let Some((loser, winner, name)) = collision(world, accepted) {
        let earlier =
            (world.before.get(&loser)).filter(|earlier| full_name(world, &loser, earlier) != name);
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
fn collision(
    world: &World<'_>,
    accepted: &Accepted,
) -> Option<(ConfigurationKey, ConfigurationKey, ResourceName)> {
    let has_it = |key: &ConfigurationKey, name: &ResourceName| {
        let before = world.before.get(key);
        before.is_some_and(|before| full_name(world, key, before) == *name)
    };
    let age = |key: &ConfigurationKey, name: &ResourceName| {
        let created = accepted[key]
            .configuration
            .metadata
            .creation_timestamp
            .clone();
        (!has_it(key, name), created, key.clone())
    };
    let mut first: BTreeMap<ResourceName, &ConfigurationKey> = BTreeMap::new();
    for (key, configuration) in accepted {
        match first.entry(full_name(world, key, configuration)) {
            Entry::Vacant(entry) => drop(entry.insert(key)),
            Entry::Occupied(entry) => {
                let (name, other) = (entry.key().clone(), *entry.get());
                let (winner, loser) = if age(key, &name) < age(other, &name) {
                    (key, other)
                } else {
                    (other, key)
                };
                return Some((loser.clone(), winner.clone(), name));
            }
        }
    }
    None
}

fn full_name(
    world: &World<'_>,
    key: &ConfigurationKey,
    accepted: &AcceptedConfiguration,
) -> ResourceName {
    let own = accepted.resource_name.clone();
    own.unwrap_or_else(|| (world.prefixes.first()).resource(&key.name))
}

#[cfg(test)]
#[path = "resource_tests.rs"]
mod tests;
