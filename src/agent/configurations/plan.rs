//! Which Configurations are accepted, and what is wrong with the others. Pure.
use super::{Judged, resource};
use crate::{
    api::{
        configuration::{Configuration, ConfigurationSpec, Problem},
        names::CONFIGURATION_NAME_LIMIT,
    },
    discovery::plan::SessionSpec,
    model::{device::Scope, names::ObjectKey},
    store::Configurations,
};
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

/// The Configurations this node works with. No two have one name, whatever their namespaces.
pub(crate) type Accepted = BTreeMap<ObjectKey, AcceptedConfiguration>;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AcceptedConfiguration {
    pub(crate) configuration: Arc<Configuration>,
    pub(crate) session: SessionSpec,
    pub(crate) scope: Scope,
}

/// What Configurations are judged by.
pub(super) struct World<'a> {
    pub(super) configurations: &'a Configurations,
    pub(super) before: &'a Accepted,
    /// Of a resource without a name of its own.
    pub(super) prefix: &'a str,
    pub(super) prefixes: &'a [String],
    /// The resources that other plugins have, each with an id of theirs; `None` where the kubelet has not been asked, or
    /// cannot be.
    pub(super) others: Option<&'a BTreeMap<String, String>>,
    /// The resources of ours that the kubelet listens to.
    pub(super) registered: &'a BTreeSet<String>,
    pub(super) scope_of: &'a dyn Fn(&SessionSpec) -> Result<Scope, Problem>,
}

/// A Configuration that was accepted before and is not as it stands now goes on as it was: a typing mistake must not
/// end what runs.
pub(super) fn judge(world: &World<'_>) -> Judged {
    let World {
        configurations,
        before,
        ..
    } = *world;
    let mut judged = Judged::default();
    for (key, configuration) in &configurations.objects {
        let earlier = before.get(key);
        match accept(world, key, configuration) {
            Ok(accepted) => {
                judged.accepted.insert(key.clone(), accepted);
            }
            Err(problem) => {
                judged.problems.insert(key.clone(), problem);
                judged
                    .accepted
                    .extend(earlier.map(|earlier| (key.clone(), earlier.clone())));
            }
        }
    }
    // A manifest that cannot be read just now is no deletion.
    for key in &configurations.hidden {
        if let Some(earlier) = before.get(key) {
            judged
                .accepted
                .entry(key.clone())
                .or_insert_with(|| earlier.clone());
        }
    }
    refuse_second_of_a_name(world, &mut judged);
    // Before: one that goes back to its earlier name may find another of ours there.
    resource::tell_of_others(world, &mut judged.accepted, &mut judged.problems);
    resource::refuse_second(world, &mut judged.accepted, &mut judged.problems);
    judged.names = resource::names(world, &judged.accepted);
    judged
}

fn accept(
    world: &World<'_>,
    key: &ObjectKey,
    configuration: &Arc<Configuration>,
) -> Result<AcceptedConfiguration, Problem> {
    let earlier = world.before.get(key);
    let name = configuration.metadata.name.as_deref().unwrap_or_default();
    check_name(name)?;
    check_spec(&configuration.spec)?;
    resource::check(world, configuration)?;
    let handler = &configuration.spec.discovery_handler;
    if let Some(earlier) = earlier.filter(|e| e.session.handler != handler.name) {
        let message = format!(
            "discoveryHandler.name was {:?} and cannot become {:?}: delete the Configuration and create another",
            earlier.session.handler, handler.name
        );
        return Err(Problem::new("HandlerChanged", message));
    }
    let session = SessionSpec {
        handler: handler.name.clone(),
        details: handler.discovery_details.clone(),
    };
    Ok(AcceptedConfiguration {
        scope: (world.scope_of)(&session)?,
        configuration: configuration.clone(),
        session,
    })
}

fn check_name(name: &str) -> Result<(), Problem> {
    if name.len() > CONFIGURATION_NAME_LIMIT {
        let message = format!(
            "metadata.name has {} characters; {CONFIGURATION_NAME_LIMIT} are the most, because resources are named after it",
            name.len()
        );
        return Err(Problem::new("NameTooLong", message));
    }
    let is_label = !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-');
    if !is_label {
        let message = format!(
            "metadata.name is {name:?}; it may have lower-case letters, digits and inner hyphens only, no dots"
        );
        return Err(Problem::new("BadName", message));
    }
    Ok(())
}

/// The rules of the schema: a folder has no API server to hold them.
fn check_spec(spec: &ConfigurationSpec) -> Result<(), Problem> {
    let broker = spec.broker_spec.as_ref();
    let both = broker.is_some_and(|b| b.broker_pod_spec.is_some() == b.broker_job_spec.is_some());
    let message = match spec {
        _ if spec.capacity < 1 => format!("capacity is {}; it must be 1 or more", spec.capacity),
        _ if spec.grace_period_seconds < 0 => {
            format!(
                "gracePeriodSeconds is {}; it must be 0 or more",
                spec.grace_period_seconds
            )
        }
        _ if spec.max_instances < 1 => {
            format!(
                "maxInstances is {}; it must be 1 or more",
                spec.max_instances
            )
        }
        _ if both => "brokerSpec must have one of brokerPodSpec and brokerJobSpec".to_owned(),
        _ => return Ok(()),
    };
    Err(Problem::new("BadSpec", message))
}

/// Two of one name would want one resource: the one that works goes on, else the older does.
fn refuse_second_of_a_name(world: &World<'_>, judged: &mut Judged) {
    let mut first: BTreeMap<String, ObjectKey> = BTreeMap::new();
    let age = |key: &ObjectKey| {
        let created = judged.accepted[key]
            .configuration
            .metadata
            .creation_timestamp
            .clone();
        (!world.before.contains_key(key), created, key.clone())
    };
    for key in judged.accepted.keys() {
        match first.entry(key.name.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(key.clone());
            }
            Entry::Occupied(mut entry) if age(key) < age(entry.get()) => {
                entry.insert(key.clone());
            }
            Entry::Occupied(_) => {}
        }
    }
    let problems = &mut judged.problems;
    judged.accepted.retain(|key, _| {
        let working = &first[&key.name];
        if key != working {
            let message = format!("{working} has the same name and goes on: of Configurations with one name only one works, whatever their namespaces; rename this one");
            problems.insert(key.clone(), Problem::new("NameTaken", message));
        }
        key == working
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::configuration::DiscoveryHandlerInfo, store::manifest};

    fn configurations(texts: &[&str]) -> Configurations {
        let mut all = Configurations {
            is_complete: true,
            ..Configurations::default()
        };
        for text in texts {
            let text = format!("{{apiVersion: akri.sh/v0, kind: Configuration, {text}}}");
            for c in manifest::read(&text).unwrap() {
                all.objects
                    .insert(crate::store::key_of(&c.metadata), Arc::new(c));
            }
        }
        all
    }

    fn known(spec: &SessionSpec) -> Result<Scope, Problem> {
        match spec.handler.as_str() {
            "echo" => Ok(Scope::Shared),
            _ => Err(Problem::new("UnknownHandler", "")),
        }
    }

    fn judged(texts: &[&str], before: &Accepted) -> Judged {
        judge_all(&configurations(texts), before)
    }

    fn judge_all(configurations: &Configurations, before: &Accepted) -> Judged {
        judge(&World {
            configurations,
            before,
            prefix: "akri.sh",
            prefixes: &["akri.sh".to_owned()],
            others: None,
            registered: &BTreeSet::new(),
            scope_of: &known,
        })
    }

    const GOOD: &str = "metadata: {name: good}, spec: {discoveryHandler: {name: echo}}";

    #[test]
    fn a_bad_configuration_is_refused_with_its_reason_and_the_others_go_on() {
        let long = "x".repeat(53);
        for (bad, reason) in [
            (
                GOOD.replace("echo", "udev").replace("good", "bad"),
                "UnknownHandler",
            ),
            (GOOD.replace("good", "a.b"), "BadName"),
            (GOOD.replace("good", &long), "NameTooLong"),
            (
                GOOD.replace("good", "bad")
                    .replace("spec: {", "spec: {capacity: 0, "),
                "BadSpec",
            ),
            (
                GOOD.replace("good", "bad")
                    .replace("spec: {", "spec: {maxInstances: 0, "),
                "BadSpec",
            ),
            (
                GOOD.replace("good", "bad")
                    .replace("spec: {", "spec: {brokerSpec: {}, "),
                "BadSpec",
            ),
        ] {
            let judged = judged(&[GOOD, &bad], &Accepted::new());
            assert_eq!(judged.accepted.len(), 1, "{bad}");
            let reasons: Vec<_> = judged
                .problems
                .values()
                .map(|p| p.reason.as_str())
                .collect();
            assert_eq!(reasons, [reason], "{bad}");
        }
    }

    #[test]
    fn what_was_accepted_goes_on_as_it_was_until_its_successor_is() {
        let before = judged(&[GOOD], &Accepted::new()).accepted;
        let edited = GOOD.replace("spec: {", "spec: {capacity: 0, ");
        let after = judged(&[&edited], &before);
        assert_eq!(after.accepted, before);
        assert_eq!(after.problems.len(), 1);

        let other = judged(&[&GOOD.replace("echo", "udev")], &before);
        assert_eq!(other.accepted, before);
        assert_eq!(
            other.problems.into_values().next().unwrap().reason,
            "HandlerChanged"
        );
    }

    #[test]
    fn a_manifest_that_cannot_be_read_is_no_deletion_and_a_missing_one_is() {
        let before = judged(&[GOOD], &Accepted::new()).accepted;
        let mut unreadable = Configurations::default();
        unreadable.hidden.insert(ObjectKey::new("default", "good"));
        assert_eq!(judge_all(&unreadable, &before).accepted, before);
        unreadable.hidden.clear();
        assert!(judge_all(&unreadable, &before).accepted.is_empty());
    }

    #[test]
    fn of_two_namespaces_with_one_name_the_older_works() {
        let later = GOOD.replace(
            "name: good",
            "name: good, namespace: a, creationTimestamp: 2026-02-02T00:00:00Z",
        );
        let older = GOOD.replace(
            "name: good",
            "name: good, namespace: b, creationTimestamp: 2026-01-01T00:00:00Z",
        );
        let judged = judged(&[&later, &older], &Accepted::new());
        assert_eq!(
            judged.accepted.keys().next(),
            Some(&ObjectKey::new("b", "good"))
        );
        assert_eq!(
            judged.problems[&ObjectKey::new("a", "good")].reason,
            "NameTaken"
        );
    }

    #[test]
    fn a_newcomer_does_not_take_the_name_of_one_that_works() {
        let before = judged(&[GOOD], &Accepted::new()).accepted;
        let newcomer = GOOD.replace("name: good", "name: good, namespace: aaa");
        let judged = judged(&[GOOD, &newcomer], &before);
        assert_eq!(judged.accepted, before);
        assert_eq!(
            judged.problems[&ObjectKey::new("aaa", "good")].reason,
            "NameTaken"
        );
    }

    #[test]
    fn the_session_is_what_the_configuration_says() {
        let accepted = judged(&[GOOD], &Accepted::new()).accepted;
        let accepted = accepted.values().next().unwrap();
        let info: &DiscoveryHandlerInfo = &accepted.configuration.spec.discovery_handler;
        assert_eq!(accepted.session.handler, info.name);
    }
}
