//! Decides which Configurations this node uses, and what is wrong with the others. Pure.
use super::{
    properties, resource, rights, spec,
    world::{Labels, World},
};
use crate::{
    agent::values::{AcceptedConfiguration, Refused, Selection, ValidatedConfigurations},
    api::{
        broker,
        configuration::{Configuration, Problem},
        reason::Reason,
        same_name::{Winner, first_of_each_name, name_taken},
    },
    discovery::{Reads, SessionSpec},
    model::{
        device::Scope, hidden::Hidden, property_source::Wanted, typed_names::ConfigurationKey,
    },
    store::Configurations,
};
use petiole_base::collect::CollectMap as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// A Configuration that was accepted before and is not as it stands now goes on as it was: a typing mistake must not
/// end what runs.
pub(super) fn validate(world: &World<'_>) -> ValidatedConfigurations {
    let World {
        configurations,
        before,
        ..
    } = *world;
    let mut validated = ValidatedConfigurations::default();
    for (key, configuration) in oldest_first(configurations) {
        let generation = configuration.metadata.generation;
        (validated.generations).extend(generation.map(|generation| (key.clone(), generation)));
        if validated.accepted.len() >= world.max_configurations {
            validated.problems.insert(key.clone(), too_many(world));
            continue;
        }
        let earlier = before.get(key);
        match accept(world, key, configuration, &mut validated.refused) {
            Ok(accepted) => {
                let refused = rights::refused_variables(world.variables, &configuration.spec);
                let handler = &configuration.spec.discovery_handler;
                let read = (world.reads)(&handler.name);
                let flaw = refused
                    .or_else(|| spec::unused(handler, read))
                    .or_else(|| broken_broker(world, configuration));
                (validated.problems).extend(flaw.map(|problem| (key.clone(), problem)));
                validated.accepted.insert(key.clone(), accepted);
            }
            Err(problem) => {
                (validated.problems).extend(problem.map(|problem| (key.clone(), problem)));
                validated
                    .accepted
                    .extend(earlier.map(|earlier| (key.clone(), earlier.clone())));
            }
        }
    }
    // A manifest that cannot be read just now is no deletion.
    for key in &configurations.hidden {
        if let Some(earlier) = before.get(key) {
            validated
                .accepted
                .entry(key.clone())
                .or_insert_with(|| earlier.clone());
        }
    }
    refuse_second_of_a_name(world, &mut validated);
    // Before: one that goes back to its earlier name may find another of ours there.
    resource::report_foreign(world, &mut validated.accepted, &mut validated.problems);
    resource::refuse_second(world, &mut validated.accepted, &mut validated.problems);
    validated.names = resource::names(world, &validated.accepted);
    validated.divide_by_allocation();
    validated
}

/// Returns a problem if no static Pod can be made for the devices of a Configuration. The devices themselves are offered.
fn broken_broker(world: &World<'_>, configuration: &Configuration) -> Option<Problem> {
    let error = broker::check_static(&configuration.spec).err();
    let error = error.filter(|_| world.has_static_pods)?;
    let message = format!("no broker can be made: {error}");
    Some(Problem::new(Reason::BrokerSpecInvalid, message))
}

fn oldest_first(configurations: &Configurations) -> Vec<(&ConfigurationKey, &Arc<Configuration>)> {
    let mut all: Vec<_> = configurations.objects.iter().collect();
    // Those of a folder have no time, and go by their names.
    all.sort_by_key(|(_, configuration)| configuration.metadata.creation_timestamp.clone());
    all
}

fn too_many(world: &World<'_>) -> Problem {
    let message = format!(
        "this agent works with {} Configurations at most, and older ones have these places: delete one, or raise --max-configurations (agent.maxConfigurations of the chart)",
        world.max_configurations
    );
    Problem::new(Reason::TooManyConfigurations, message)
}

/// Returns the Secrets and ConfigMaps that are read for this node. Those of the oldest Configurations come first.
pub(super) fn wanted(world: &World<'_>) -> Wanted {
    let mut sources = vec![];
    for (key, configuration) in oldest_first(world.configurations) {
        let is_valid = spec::check(&configuration.spec, world.containers).is_ok()
            && rights::check_references(&key.namespace, &configuration.spec).is_ok();
        let selection = selection(world, key, configuration);
        let handler = &configuration.spec.discovery_handler.name;
        let reads = (world.reads)(handler);
        let is_used = selection == Selection::Selected
            && properties::has_references(configuration, reads)
            && unknown_handler(world, handler).is_none();
        if is_valid && is_used {
            sources.extend(properties::sources(key, configuration, reads));
        }
    }
    properties::bounded(sources)
}

/// The error is `None` while a Secret or ConfigMap has not been read yet: that takes one request.
fn accept(
    world: &World<'_>,
    key: &ConfigurationKey,
    configuration: &Arc<Configuration>,
    refused: &mut Refused,
) -> Result<AcceptedConfiguration, Option<Problem>> {
    let earlier = world.before.get(key);
    let name = configuration.metadata.name.as_deref().unwrap_or_default();
    spec::check_name(name)?;
    spec::check(&configuration.spec, world.containers)?;
    spec::check_allocation(&configuration.spec, world.has_claims)?;
    rights::check_references(&key.namespace, &configuration.spec)?;
    let resource_name = resource::checked(world, configuration)?;
    let handler = &configuration.spec.discovery_handler;
    if let Some(earlier) = earlier.filter(|e| e.session.handler != handler.name) {
        let message = format!(
            "discoveryHandler.name was {:?} and cannot become {:?}: delete the Configuration and create another",
            earlier.session.handler, handler.name
        );
        return Err(Some(Problem::new(Reason::HandlerChanged, message)));
    }
    let reads = (world.reads)(&handler.name);
    let selection = selection(world, key, configuration);
    let properties = match selection {
        Selection::Selected => {
            let values = properties::values(world, key, configuration, reads);
            values.map_err(|problem| unknown_handler(world, &handler.name).or(problem))?
        }
        // Nothing is looked for.
        Selection::LeftOut | Selection::Unknown => {
            Hidden::new(properties::inline(configuration, reads))
        }
    };
    let session = SessionSpec {
        handler: handler.name.clone(),
        details: handler.discovery_details.clone(),
        properties,
    };
    // Reading details may mean to compile regular expressions: those that work are not read again. A handler in another
    // process reads them itself, and its scope may be another after it registered again.
    let as_before =
        |earlier: &&AcceptedConfiguration| reads != Reads::All && earlier.session == session;
    let scope = match earlier.filter(as_before) {
        Some(earlier) => earlier.scope,
        None => scope_of(world, key, &session, refused)?,
    };
    spec::check_scope(&configuration.spec, scope)?;
    Ok(AcceptedConfiguration {
        scope,
        selection,
        configuration: rights::limited(world.variables, configuration),
        session,
        resource_name,
    })
}

/// Asks the handler what it makes of the details. What it refused it is not asked again.
fn scope_of(
    world: &World<'_>,
    key: &ConfigurationKey,
    session: &SessionSpec,
    refused: &mut Refused,
) -> Result<Scope, Problem> {
    let is_fixed = (world.reads)(&session.handler) != Reads::All;
    let before = world.refused_before.get(key);
    let problem = match before.filter(|(before, _)| is_fixed && before == session) {
        Some((_, problem)) => problem.clone(),
        None => match (world.scope_of)(session) {
            Ok(scope) => return Ok(scope),
            Err(problem) => problem,
        },
    };
    if problem.reason == Reason::BadDiscoveryDetails {
        refused.insert(key.clone(), (session.clone(), problem.clone()));
    }
    Err(problem)
}

/// Returns a problem if this node has no handler of that name. Then no Secret is read for it.
fn unknown_handler(world: &World<'_>, handler: &str) -> Option<Problem> {
    let without_details = SessionSpec {
        handler: handler.to_owned(),
        ..SessionSpec::default()
    };
    let problem = (world.scope_of)(&without_details).err();
    problem.filter(|problem| problem.reason == Reason::UnknownHandler.as_str())
}

fn selection(
    world: &World<'_>,
    key: &ConfigurationKey,
    configuration: &Configuration,
) -> Selection {
    match &world.labels {
        Labels::NoNode => Selection::Selected,
        _ if configuration.spec.node_selector.is_empty() => Selection::Selected,
        Labels::Unknown(offered) => match world.before.get(key) {
            Some(earlier) => earlier.selection,
            None if offered.contains(key) => Selection::Selected,
            None => Selection::Unknown,
        },
        Labels::Known(labels) if configuration.selects(labels) => Selection::Selected,
        Labels::Known(_) => Selection::LeftOut,
    }
}

/// Refuses all Configurations of a name but one. The oldest has the name on every node, whether it works as it stands or
/// not. In a folder no Configuration has a time, and the one that works already keeps the name.
fn refuse_second_of_a_name(world: &World<'_>, validated: &mut ValidatedConfigurations) {
    let created = |key: &ConfigurationKey| {
        let there = world.configurations.objects.get(key);
        let known = there.or_else(|| Some(&validated.accepted.get(key)?.configuration));
        known.and_then(|known| known.metadata.creation_timestamp.clone())
    };
    let age = |key: &ConfigurationKey| {
        let created = created(key);
        let is_new = created.is_none() && !world.before.contains_key(key);
        (is_new, created)
    };
    let timed = world.configurations.objects.keys();
    let timed = timed.filter(|key| created(key).is_some());
    let keys = validated.accepted.keys().chain(timed);
    let first = first_of_each_name(keys, age).into_iter();
    let first: BTreeMap<String, ConfigurationKey> =
        (first.map(|(name, key)| (name.to_owned(), key.clone()))).collect_map();
    let works: BTreeSet<ConfigurationKey> = validated.accepted.keys().cloned().collect();
    let problems = &mut validated.problems;
    validated.accepted.retain(|key, _| {
        let working = &first[&*key.name];
        if key != working {
            let state = if works.contains(working) {
                Winner::Works
            } else {
                Winner::Broken
            };
            problems.insert(key.clone(), name_taken(working, state));
        }
        key == working
    });
}

#[cfg(test)]
mod tests;
