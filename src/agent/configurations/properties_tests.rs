use super::*;
use crate::{
    agent::{
        configurations::{plan, world::Labels},
        values::{Accepted, ValidatedConfigurations},
    },
    discovery::SessionSpec,
    model::{
        container_devices::ContainerRules,
        device::Scope,
        property_source::Contents,
        resource_name::{ResourceName, ResourcePrefixes},
        variables::Variables,
    },
    store::{Configurations, configuration_key, manifest},
};
use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

static NO_WISHES: LazyLock<ContainerRules> = LazyLock::new(ContainerRules::default);

static PREFIXES: LazyLock<ResourcePrefixes> = LazyLock::new(|| "akri.sh".parse().unwrap());
static NO_VARIABLES: LazyLock<Variables> = LazyLock::new(Variables::default);
static NOT_REFUSED: crate::agent::values::Refused = crate::agent::values::Refused::new();
static NOTHING: BTreeSet<ResourceName> = BTreeSet::new();
const SECRET: &str = "secretKeyRef: {name: onvif, key: password}";

fn configuration(name: &str, properties: &str) -> String {
    format!(
        "{{apiVersion: akri.sh/v0, kind: Configuration, metadata: {{name: {name}, namespace: cameras}}, \
         spec: {{discoveryHandler: {{name: own, discoveryProperties: [{properties}]}}}}}}"
    )
}

fn referring(reference: &str) -> String {
    let property = format!("{{name: word, valueFrom: {{{reference}}}}}");
    configuration("cam", &property)
}

fn configurations(texts: &[String]) -> Configurations {
    let read = (texts.iter()).flat_map(|text| manifest::read(text).unwrap());
    Configurations {
        objects: read
            .map(|c| (configuration_key(&c.metadata), Arc::new(c)))
            .collect(),
        is_complete: true,
        ..Configurations::default()
    }
}

fn world<'a>(configurations: &'a Configurations, before: &'a Accepted) -> World<'a> {
    World {
        configurations,
        before,
        refused_before: &NOT_REFUSED,
        labels: Labels::NoNode,
        prefixes: &PREFIXES,
        foreign: None,
        registered: &NOTHING,
        max_configurations: 100,
        scope_of: &|_: &SessionSpec| Ok(Scope::Shared),
        reads: &|handler| match handler {
            "own" => Reads::All,
            _ => Reads::Only(&["known"]),
        },
        variables: &NO_VARIABLES,
        has_static_pods: false,
        has_claims: false,
        containers: &NO_WISHES,
        sources: None,
    }
}

fn wanted(texts: &[String]) -> Wanted {
    plan::wanted(&world(&configurations(texts), &Accepted::new()))
}

/// Returns the decision after these contents were read.
fn validated(texts: &[String], before: &Accepted, contents: &Contents) -> ValidatedConfigurations {
    let configurations = configurations(texts);
    let world = world(&configurations, before);
    let wanted = plan::wanted(&world);
    plan::validate(&World {
        sources: Some((&wanted, contents)),
        ..world
    })
}

fn source(kind: Kind) -> Source {
    Source {
        kind,
        key: ObjectKey::new("cameras", "onvif"),
    }
}

fn secret(content: Content) -> Contents {
    Contents::from([(source(Kind::Secret), content)])
}

fn password(value: Value) -> Contents {
    secret(Content::Keys([("password".to_owned(), value)].into()))
}

fn text(text: &str) -> Value {
    Value::Text(Hidden::new(text.to_owned()))
}

fn cam(validated: &ValidatedConfigurations) -> Option<&BTreeMap<String, String>> {
    let accepted = validated
        .accepted
        .get(&ConfigurationKey::new("cameras", "cam"))?;
    Some(&accepted.session.properties)
}

fn one(name: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), value.to_owned())])
}

#[test]
fn only_what_configurations_of_this_node_refer_to_is_watched() {
    let both = configuration(
        "cam",
        "{name: a, valueFrom: {secretKeyRef: {name: onvif, key: password}}}, \
         {name: b, valueFrom: {secretKeyRef: {name: onvif, namespace: cameras, key: user}}}, \
         {name: c, valueFrom: {configMapKeyRef: {name: onvif, key: list}}}, {name: d, value: plain}",
    );
    let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
    let expected = Wanted::from([
        (source(Kind::Secret), keys(&["password", "user"])),
        (source(Kind::ConfigMap), keys(&["list"])),
    ]);
    assert_eq!(wanted(std::slice::from_ref(&both)), expected);
    for other in [
        // Another namespace, a name that would be a selector, a property that the handler does not read, another node.
        both.replace("namespace: cameras, key", "namespace: kube-system, key"),
        referring("secretKeyRef: {name: 'onvif,type!=x', key: password}"),
        referring(SECRET).replace("name: own", "name: builtin"),
        referring(SECRET).replace("spec: {", "spec: {nodeSelector: {a: b}, "),
    ] {
        let configurations = configurations(std::slice::from_ref(&other));
        let (labels, none) = (BTreeMap::new(), Accepted::new());
        let world = World {
            labels: Labels::Known(&labels),
            ..world(&configurations, &none)
        };
        assert_eq!(plan::wanted(&world), Wanted::new(), "{other}");
    }
}

#[test]
fn a_property_has_the_value_of_its_key_once_it_was_read() {
    let texts = [referring(SECRET)];
    let none = Accepted::new();
    let waiting = validated(&texts, &none, &Contents::new());
    assert!(waiting.accepted.is_empty() && waiting.problems.is_empty());
    let read = validated(&texts, &none, &password(text("hunter2")));
    assert_eq!(cam(&read), Some(&one("word", "hunter2")));
    assert!(read.problems.is_empty());
    let texts = [referring("configMapKeyRef: {name: onvif, key: password}")];
    let keys = Content::Keys([("password".to_owned(), text("plain"))].into());
    let map = Contents::from([(source(Kind::ConfigMap), keys)]);
    let read = validated(&texts, &none, &map);
    assert_eq!(cam(&read), Some(&one("word", "plain")));
}

#[test]
fn a_changed_secret_changes_the_sessions_that_read_it_and_no_other() {
    let other = configuration("other", "{name: word, value: hunter2}");
    let texts = [referring(SECRET), other];
    let before = validated(&texts, &Accepted::new(), &password(text("hunter2")));
    let after = validated(&texts, &before.accepted, &password(text("hunter3")));
    assert_eq!(cam(&after), Some(&one("word", "hunter3")));
    let key = ConfigurationKey::new("cameras", "other");
    assert_eq!(after.accepted[&key], before.accepted[&key]);
}

#[test]
fn what_cannot_be_read_is_named_and_what_runs_goes_on() {
    let texts = [referring(SECRET)];
    let before = validated(&texts, &Accepted::new(), &password(text("hunter2")));
    for (contents, parts) in [
        (
            secret(Content::Absent),
            ["\"password\"", "Secret cameras/onvif", "create it"],
        ),
        (
            password(Value::Absent),
            ["\"password\"", "Secret cameras/onvif", "add it"],
        ),
        (
            password(Value::NotUtf8),
            ["\"password\"", "Secret cameras/onvif", "not UTF-8"],
        ),
        (
            password(Value::TooLong(9000)),
            ["Secret cameras/onvif", "9000", "8192 are the most"],
        ),
        (
            secret(Content::Forbidden),
            [
                "Secret cameras/onvif",
                "add \"cameras\" to discoveryProperties.namespaces",
                "discoveryProperties.enabled",
            ],
        ),
        (
            secret(Content::Unavailable("no answer".to_owned())),
            ["Secret cameras/onvif", "no answer", "tried again"],
        ),
    ] {
        for (before, is_accepted) in [(&Accepted::new(), false), (&before.accepted, true)] {
            let validated = validated(&texts, before, &contents);
            let problem = validated.problems.values().next().unwrap();
            assert_eq!(problem.reason, "DiscoveryPropertyUnreadable");
            let message = &problem.message;
            for part in parts.iter().chain(&["\"word\""]) {
                assert!(message.contains(part), "{part}: {message}");
            }
            assert!(!message.contains("hunter2"), "{message}");
            let goes_on = is_accepted.then(|| one("word", "hunter2"));
            assert_eq!(cam(&validated), goes_on.as_ref(), "{message}");
        }
    }
}

#[test]
fn an_optional_value_may_be_absent_and_must_be_readable() {
    let texts = [referring(
        "secretKeyRef: {name: onvif, key: password, optional: true}",
    )];
    let before = validated(&texts, &Accepted::new(), &password(text("hunter2"))).accepted;
    for absent in [secret(Content::Absent), password(Value::Absent)] {
        let validated = validated(&texts, &before, &absent);
        assert_eq!(cam(&validated), Some(&BTreeMap::new()));
        assert!(validated.problems.is_empty());
    }
    // A right that is taken away does not end what runs.
    for unread in [secret(Content::Forbidden), password(Value::NotUtf8)] {
        let validated = validated(&texts, &before, &unread);
        assert_eq!(cam(&validated), Some(&one("word", "hunter2")));
        assert_eq!(validated.problems.len(), 1);
    }
}

#[test]
fn a_reference_that_can_never_be_read_says_why() {
    for (properties, part) in [
        (
            "{name: word, value: a, valueFrom: {secretKeyRef: {name: onvif, key: a}}}",
            "has value and valueFrom",
        ),
        (
            "{name: word, valueFrom: {}}",
            "one of secretKeyRef and configMapKeyRef",
        ),
        (
            "{name: word, valueFrom: {secretKeyRef: {name: 'a,b', key: a}}}",
            "has secretKeyRef.name \"a,b\"",
        ),
    ] {
        let texts = [configuration("cam", properties)];
        let validated = validated(&texts, &Accepted::new(), &Contents::new());
        let message = &validated.problems.values().next().unwrap().message;
        assert!(message.contains(part), "{message}");
        assert!(validated.accepted.is_empty());
    }
}

#[test]
fn without_a_cluster_a_reference_is_refused_with_what_to_do() {
    let configurations = configurations(&[referring(SECRET)]);
    let validated = plan::validate(&world(&configurations, &Accepted::new()));
    let message = &validated.problems.values().next().unwrap().message;
    assert!(
        message.contains("without a cluster reads no Secrets"),
        "{message}"
    );
    assert!(message.contains("write the value itself"), "{message}");
    assert!(validated.accepted.is_empty());
}

#[test]
fn the_objects_that_are_watched_are_bounded_and_older_configurations_have_them() {
    let aged = |n: usize| {
        configuration(
            &format!("cam-{n}"),
            &format!("{{name: word, valueFrom: {{secretKeyRef: {{name: s{n}, key: a}}}}}}"),
        )
        .replace(
            "namespace: cameras",
            &format!(
                "namespace: cameras, creationTimestamp: 20{:02}-01-01T00:00:00Z",
                99 - n
            ),
        )
    };
    let texts: Vec<String> = (0..=PROPERTY_SOURCES_MAX).map(aged).collect();
    let wanted = wanted(&texts);
    assert_eq!(wanted.len(), PROPERTY_SOURCES_MAX);
    let validated = validated(&texts, &Accepted::new(), &Contents::new());
    let (key, problem) = validated.problems.iter().next().unwrap();
    assert_eq!(key.name, "cam-0", "the youngest");
    assert!(
        problem
            .message
            .contains("64 Secrets and ConfigMaps at most")
    );
    assert_eq!(validated.problems.len(), 1);
}

#[test]
fn no_debug_output_of_what_the_agent_holds_has_a_value() {
    let contents = password(text("hunter2"));
    let validated = validated(&[referring(SECRET)], &Accepted::new(), &contents);
    assert_eq!(cam(&validated), Some(&one("word", "hunter2")));
    let printed = format!("{validated:?} {validated:#?} {contents:?}");
    assert!(!printed.contains("hunter2"), "{printed}");
}

#[test]
fn nothing_is_read_for_a_handler_that_is_not_there() {
    let one = configuration(
        "cam",
        "{name: a, valueFrom: {secretKeyRef: {name: onvif, key: password}}}",
    );
    let configurations = configurations(&[one]);
    let missing = |spec: &SessionSpec| -> Result<Scope, Problem> {
        let message = format!("no handler {:?}", spec.handler);
        Err(Problem::new(Reason::UnknownHandler, message))
    };
    let before = Accepted::new();
    let world = World {
        scope_of: &missing,
        ..world(&configurations, &before)
    };
    let wanted = plan::wanted(&world);
    assert_eq!(wanted, Wanted::new());
    let validated = plan::validate(&World {
        sources: Some((&wanted, &Contents::new())),
        ..world
    });
    let problem = validated.problems.values().next().unwrap();
    assert_eq!(problem.reason, Reason::UnknownHandler.as_str());
}
