//! Decides which Secrets and ConfigMaps are read for `discoveryProperties`, and which values the properties get. Pure.
use super::world::World;
use crate::{
    api::{
        configuration::{Configuration, DiscoveryProperty, Problem},
        reason::Reason,
    },
    discovery::Reads,
    model::{
        budget::{Claim, Room},
        hidden::Hidden,
        limits::{PROPERTY_SOURCES_MAX, PROPERTY_VALUE_MAX},
        names::ObjectKey,
        property_source::{Content, Kind, Source, Value, Wanted},
        typed_names::ConfigurationKey,
    },
};
use petiole_base::collect::CollectMap as _;
use std::collections::BTreeMap;

/// The object and the key that hold the value of a property.
struct Reference<'a> {
    /// The property's name.
    property: &'a str,
    source: Source,
    key: &'a str,
    is_optional: bool,
}

/// Returns whether a value is to come from another object.
pub(super) fn has_references(configuration: &Configuration, reads: Reads) -> bool {
    read(configuration, reads).any(|property| property.value_from.is_some())
}

/// Returns the objects to which a Configuration refers, each with a key.
pub(super) fn sources(
    key: &ConfigurationKey,
    configuration: &Configuration,
    reads: Reads,
) -> impl Iterator<Item = (Source, String)> {
    let references = read(configuration, reads).filter_map(|property| {
        // What is wrong with a reference is a problem of the Configuration.
        reference(&key.namespace, property)?.ok()
    });
    references.map(|reference| (reference.source, reference.key.to_owned()))
}

/// Returns the objects that are watched, of those that Configurations refer to, the first ones first. If they are too many, a
/// namespace with a smaller part of them comes before one with a larger part.
pub(super) fn bounded(sources: Vec<(Source, String)>) -> Wanted {
    let mut first: BTreeMap<&Source, usize> = BTreeMap::new();
    for (place, (source, _)) in sources.iter().enumerate() {
        first.entry(source).or_insert(place);
    }
    let room = Room {
        count: PROPERTY_SOURCES_MAX,
        bytes: usize::MAX,
    };
    let claims = first.iter().map(|(source, place)| Claim {
        key: *source,
        namespace: &source.key.namespace,
        since: *place,
        bytes: 0,
    });
    let kept = room.kept(claims.collect());
    let mut wanted = Wanted::new();
    for (source, key) in &sources {
        if kept.as_ref().is_none_or(|kept| kept.contains(source)) {
            let keys = wanted.entry(source.clone()).or_default();
            keys.insert(key.clone());
        }
    }
    wanted
}

/// Returns the values of the properties that the handler reads, without those that have none. The error is `None` while an
/// object has not been read yet.
pub(super) fn values(
    world: &World<'_>,
    key: &ConfigurationKey,
    configuration: &Configuration,
    reads: Reads,
) -> Result<Hidden<BTreeMap<String, String>>, Option<Problem>> {
    let mut values = inline(configuration, reads);
    for property in read(configuration, reads) {
        let Some(reference) = reference(&key.namespace, property) else {
            continue;
        };
        let reference = reference.map_err(|why| problem(&property.name, &why))?;
        if let Some(value) = value(world, &reference)? {
            values.insert(property.name.clone(), value.to_string());
        }
    }
    Ok(Hidden::new(values))
}

/// Returns the values that are written in the Configuration.
pub(super) fn inline(configuration: &Configuration, reads: Reads) -> BTreeMap<String, String> {
    let value = |p: &DiscoveryProperty| Some((p.name.clone(), p.value.clone()?));
    read(configuration, reads).filter_map(value).collect_map()
}

/// Returns the properties that the handler reads.
fn read(configuration: &Configuration, reads: Reads) -> impl Iterator<Item = &DiscoveryProperty> {
    let handler = &configuration.spec.discovery_handler;
    let properties = handler.discovery_properties.iter().flatten();
    properties.filter(move |property| reads.has(&property.name))
}

/// Returns the reference of a property, or what is wrong with it; `None` for a property without one.
fn reference<'a>(
    namespace: &str,
    property: &'a DiscoveryProperty,
) -> Option<Result<Reference<'a>, String>> {
    let from = property.value_from.as_ref()?;
    if property.value.is_some() {
        return Some(Err("has value and valueFrom: remove one".to_owned()));
    }
    let (kind, field, reference) = match (&from.secret_key_ref, &from.config_map_key_ref) {
        (Some(secret), None) => (Kind::Secret, "secretKeyRef", secret),
        (None, Some(map)) => (Kind::ConfigMap, "configMapKeyRef", map),
        (None, None) | (Some(_), Some(_)) => {
            let why = "has a valueFrom that must have one of secretKeyRef and configMapKeyRef";
            return Some(Err(why.to_owned()));
        }
    };
    let name = &reference.name;
    // It becomes a part of a selector.
    let is_name = !name.is_empty()
        && (name.bytes()).all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'));
    if !is_name {
        let why = format!("has {field}.name {name:?}, which no {kind} can have: correct it");
        return Some(Err(why));
    }
    Some(Ok(Reference {
        property: &property.name,
        source: Source {
            kind,
            key: ObjectKey::new(namespace, name),
        },
        key: &reference.key,
        is_optional: reference.optional == Some(true),
    }))
}

fn problem(property: &str, why: &str) -> Problem {
    let message = format!("discoveryHandler.discoveryProperties: {property:?} {why}");
    Problem::new(Reason::DiscoveryPropertyUnreadable, message)
}

/// Returns the value to which a property refers; `Ok(None)` if it is absent and optional.
fn value<'a>(
    world: &World<'a>,
    reference: &Reference<'_>,
) -> Result<Option<&'a Hidden<String>>, Option<Problem>> {
    let Reference {
        source,
        key,
        is_optional,
        ..
    } = reference;
    let (kind, namespace) = (source.kind, &source.key.namespace);
    let why = match world.sources {
        None => "has valueFrom, and an agent without a cluster reads no Secrets and ConfigMaps: write the value itself".to_owned(),
        Some((wanted, _)) if !wanted.contains_key(source) => format!(
            "needs {source}, and an agent reads {PROPERTY_SOURCES_MAX} Secrets and ConfigMaps at most: keep more of the values in one object"
        ),
        Some((_, contents)) => match contents.get(source) {
            None => return Err(None),
            Some(Content::Absent) if *is_optional => return Ok(None),
            Some(Content::Absent) => format!(
                "needs the key {key:?} of {source}, which does not exist: create it, or set optional to true"
            ),
            Some(Content::Forbidden) => format!(
                "needs the key {key:?} of {source}, and agents may not read a {kind} of this namespace: add {namespace:?} to discoveryProperties.namespaces of the chart, and set discoveryProperties.enabled"
            ),
            Some(Content::Unavailable(why)) => format!(
                "needs the key {key:?} of {source}, which cannot be read yet, and is tried again: {why}"
            ),
            Some(Content::Keys(keys)) => match keys.get(*key) {
                None => return Err(None),
                Some(Value::Text(text)) => return Ok(Some(text)),
                Some(Value::Absent) if *is_optional => return Ok(None),
                Some(Value::Absent) => format!(
                    "needs the key {key:?}, which {source} does not have: add it, or set optional to true"
                ),
                Some(Value::NotUtf8) => {
                    format!("needs the key {key:?} of {source}, whose value is not UTF-8: store text")
                }
                Some(Value::TooLong(characters)) => format!(
                    "needs the key {key:?} of {source}, whose value has {characters} characters; {PROPERTY_VALUE_MAX} are the most: shorten it"
                ),
            },
        },
    };
    Err(Some(problem(reference.property, &why)))
}

#[cfg(test)]
#[path = "properties_tests.rs"]
mod tests;
