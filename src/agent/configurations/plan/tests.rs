use super::*;
use crate::model::typed_names::ConfigurationKey;
use crate::{
    agent::values::{Accepted, Refused},
    api::{configuration::DiscoveryHandlerInfo, reason::Reason},
    model::{
        container_devices::ContainerRules,
        device::Scope,
        resource_name::{ResourceName, ResourcePrefixes},
        variables::Variables,
    },
    store::manifest,
};
use std::sync::LazyLock;

static NO_WISHES: LazyLock<ContainerRules> = LazyLock::new(ContainerRules::default);

fn configurations(texts: &[&str]) -> Configurations {
    let mut all = Configurations {
        is_complete: true,
        ..Configurations::default()
    };
    for text in texts {
        let text = format!("{{apiVersion: akri.sh/v0, kind: Configuration, {text}}}");
        for c in manifest::read(&text).unwrap() {
            all.objects
                .insert(crate::store::configuration_key(&c.metadata), Arc::new(c));
        }
    }
    all
}

fn known(spec: &SessionSpec) -> Result<Scope, Problem> {
    match spec.handler.as_str() {
        "echo" => Ok(Scope::Shared),
        _ => Err(Problem::new(Reason::UnknownHandler, "")),
    }
}

fn validated(texts: &[&str], before: &Accepted) -> ValidatedConfigurations {
    validate_all(&configurations(texts), before)
}

static PREFIXES: LazyLock<ResourcePrefixes> = LazyLock::new(|| "akri.sh".parse().unwrap());
static NO_VARIABLES: LazyLock<Variables> = LazyLock::new(Variables::default);
static NOT_REFUSED: Refused = Refused::new();
static NOTHING: BTreeSet<ResourceName> = BTreeSet::new();

fn world<'a>(configurations: &'a Configurations, before: &'a Accepted) -> World<'a> {
    World {
        configurations,
        before,
        refused_before: &NOT_REFUSED,
        labels: Labels::NoNode,
        prefixes: &PREFIXES,
        foreign: None,
        registered: &NOTHING,
        max_configurations: 2,
        scope_of: &known,
        reads: &|_| Reads::Only(&[]),
        has_static_pods: false,
        has_claims: false,
        containers: &NO_WISHES,
        variables: &NO_VARIABLES,
        sources: None,
    }
}

fn validate_all(configurations: &Configurations, before: &Accepted) -> ValidatedConfigurations {
    validate(&world(configurations, before))
}

const GOOD: &str = "metadata: {name: good}, spec: {discoveryHandler: {name: echo}}";

#[test]
fn the_generation_that_was_validated_is_known_also_of_one_that_is_refused() {
    let bad = GOOD.replace("name: good", "name: bad, generation: 3");
    let validated = validated(&[GOOD, &bad.replace("echo", "udev")], &Accepted::default());
    let generations: Vec<_> = validated.generations.iter().collect();
    assert_eq!(generations.len(), 1);
    assert_eq!(
        (generations[0].0.name.as_str(), *generations[0].1),
        ("bad", 3)
    );
}

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
                .replace("spec: {", "spec: {capacity: 2147483647, "),
            "BadSpec",
        ),
        (
            GOOD.replace("good", "bad")
                .replace("spec: {", "spec: {brokerSpec: {}, "),
            "BadSpec",
        ),
        (
            GOOD.replace("good", "bad")
                .replace("spec: {", "spec: {instanceName: Zigbee, "),
            "BadSpec",
        ),
    ] {
        let validated = validated(&[GOOD, &bad], &Accepted::new());
        assert_eq!(validated.accepted.len(), 1, "{bad}");
        let reasons: Vec<_> = validated
            .problems
            .values()
            .map(|p| p.reason.as_str())
            .collect();
        assert_eq!(reasons, [reason], "{bad}");
    }
}

#[test]
fn what_was_accepted_goes_on_as_it_was_until_its_successor_is() {
    let before = validated(&[GOOD], &Accepted::new()).accepted;
    let edited = GOOD.replace("spec: {", "spec: {capacity: 0, ");
    let after = validated(&[&edited], &before);
    assert_eq!(after.accepted, before);
    assert_eq!(after.problems.len(), 1);

    let other = validated(&[&GOOD.replace("echo", "udev")], &before);
    assert_eq!(other.accepted, before);
    assert_eq!(
        other.problems.into_values().next().unwrap().reason,
        "HandlerChanged"
    );
}

#[test]
fn a_manifest_that_cannot_be_read_is_no_deletion_and_a_missing_one_is() {
    let before = validated(&[GOOD], &Accepted::new()).accepted;
    let mut unreadable = Configurations::default();
    unreadable
        .hidden
        .insert(ConfigurationKey::new("default", "good"));
    assert_eq!(validate_all(&unreadable, &before).accepted, before);
    unreadable.hidden.clear();
    assert!(validate_all(&unreadable, &before).accepted.is_empty());
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
    let validated = validated(&[&later, &older], &Accepted::new());
    assert_eq!(
        validated.accepted.keys().next(),
        Some(&ConfigurationKey::new("b", "good"))
    );
    assert_eq!(
        validated.problems[&ConfigurationKey::new("a", "good")].reason,
        "ConfigurationNameTaken"
    );
}

#[test]
fn the_older_of_one_name_has_it_on_every_node_also_where_it_does_not_work() {
    let of = |namespace: &str, month: u8, handler: &str| {
        let metadata = format!(
            "name: good, namespace: {namespace}, creationTimestamp: 2026-0{month}-01T00:00:00Z"
        );
        GOOD.replace("name: good", &metadata)
            .replace("echo", handler)
    };
    let (older, later) = (of("a", 1, "udev"), of("b", 2, "echo"));
    let alone = validated(&[&later], &Accepted::new()).accepted;
    assert_eq!(alone.len(), 1);
    for before in [Accepted::new(), alone] {
        let validated = validated(&[&older, &later], &before);
        assert_eq!(validated.accepted, Accepted::new());
        let problem = &validated.problems[&ConfigurationKey::new("b", "good")];
        assert!(
            problem
                .message
                .starts_with("a/good has the same name and is older")
        );
    }
}

#[test]
fn a_newcomer_does_not_take_the_name_of_one_that_works() {
    let before = validated(&[GOOD], &Accepted::new()).accepted;
    let newcomer = GOOD.replace("name: good", "name: good, namespace: aaa");
    let validated = validated(&[GOOD, &newcomer], &before);
    assert_eq!(validated.accepted, before);
    assert_eq!(
        validated.problems[&ConfigurationKey::new("aaa", "good")].reason,
        "ConfigurationNameTaken"
    );
}

#[test]
fn of_too_many_configurations_the_youngest_are_refused_and_the_others_go_on() {
    let made = |name: &str, year: u32| {
        let created = format!("name: {name}, creationTimestamp: {year}-01-01T00:00:00Z");
        GOOD.replace("name: good", &created)
    };
    let invalid = made("oldest", 2001).replace("echo", "udev");
    let validated = validated(
        &[
            &made("a", 2004),
            &made("b", 2002),
            &made("c", 2003),
            &invalid,
        ],
        &Accepted::new(),
    );
    let names: Vec<_> = validated
        .accepted
        .keys()
        .map(|key| key.name.as_str())
        .collect();
    assert_eq!(names, ["b", "c"]);
    let refused = &validated.problems[&ConfigurationKey::new("default", "a")];
    assert_eq!(refused.reason, "TooManyConfigurations");
    assert!(refused.message.contains("works with 2 "), "{refused:?}");
}

#[test]
fn details_that_are_accepted_are_not_read_again() {
    let configurations = configurations(&[GOOD]);
    let validate = |before: &Accepted, scope_of: &dyn Fn(&SessionSpec) -> _| {
        validate(&World {
            scope_of,
            ..world(&configurations, before)
        })
    };
    let before = validate(&Accepted::new(), &known).accepted;
    let again = validate(&before, &|_| panic!("read again"));
    assert_eq!(again.accepted, before);
}

#[test]
fn details_that_are_refused_are_not_read_again_until_they_change() {
    let configurations = configurations(&[GOOD]);
    let validate = |refused_before: &Refused, scope_of: &dyn Fn(&SessionSpec) -> _| {
        validate(&World {
            scope_of,
            refused_before,
            ..world(&configurations, &Accepted::new())
        })
    };
    let bad = |_: &SessionSpec| {
        Err(Problem::new(
            Reason::BadDiscoveryDetails,
            "a regular expression",
        ))
    };
    let first = validate(&Refused::new(), &bad);
    let again = validate(&first.refused, &|_| panic!("read again"));
    assert_eq!(
        (&again.problems, &again.refused),
        (&first.problems, &first.refused)
    );
    let mut other = first.refused.clone();
    other
        .values_mut()
        .for_each(|(session, _)| session.details.push('x'));
    assert_eq!(validate(&other, &known).accepted.len(), 1);
}

#[test]
fn a_node_selector_needs_the_nodes_labels_and_what_they_were_last_counts_until_they_are_known() {
    let text = GOOD.replace("spec: {", "spec: {nodeSelector: {site: a, kind: edge}, ");
    let configurations = configurations(&[&text]);
    let select = |labels: Labels<'_>, before: &Accepted| {
        let validated = validate(&World {
            labels,
            ..world(&configurations, before)
        });
        let accepted = validated.accepted.into_values().next().unwrap();
        accepted.selection
    };
    let labels = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
        let all = all.iter();
        all.map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    };
    let all = labels(&[("site", "a"), ("kind", "edge"), ("x", "y")]);
    let other = labels(&[("site", "a"), ("kind", "core")]);
    let none = Accepted::new();
    assert_eq!(select(Labels::NoNode, &none), Selection::Selected);
    assert_eq!(select(Labels::Known(&all), &none), Selection::Selected);
    assert_eq!(select(Labels::Known(&other), &none), Selection::LeftOut);
    let nothing = BTreeSet::new();
    assert_eq!(select(Labels::Unknown(nothing), &none), Selection::Unknown);
    let offered = BTreeSet::from([ConfigurationKey::new("default", "good".to_owned())]);
    assert_eq!(
        select(Labels::Unknown(offered.clone()), &none),
        Selection::Selected
    );
    let before = validate(&World {
        labels: Labels::Known(&other),
        ..world(&configurations, &none)
    });
    let unknown = select(Labels::Unknown(offered), &before.accepted);
    assert_eq!(unknown, Selection::LeftOut);
}

#[test]
fn what_has_no_effect_is_said_and_the_devices_are_offered() {
    let text = GOOD.replace(
        "name: echo",
        "name: echo, discoveryProperties: [{name: user}]",
    );
    let validated = validated(&[&text], &Accepted::new());
    assert_eq!(validated.accepted.len(), 1);
    let problem = validated.problems.into_values().next().unwrap();
    assert_eq!(problem.reason, "UnusedDiscoveryProperties");
}

#[test]
fn the_session_is_what_the_configuration_says() {
    let accepted = validated(&[GOOD], &Accepted::new()).accepted;
    let accepted = accepted.values().next().unwrap();
    let info: &DiscoveryHandlerInfo = &accepted.configuration.spec.discovery_handler;
    assert_eq!(accepted.session.handler, info.name);
}

#[test]
fn a_broker_that_no_static_pod_can_be_made_of_is_said_and_the_devices_are_offered() {
    for (broker, message) in [
        (
            "brokerPodSpec: {containers: 3}",
            "no broker can be made: spec.brokerSpec.brokerPodSpec.containers is a number",
        ),
        (
            "brokerJobSpec: {}",
            "no broker can be made: spec.brokerSpec.brokerJobSpec is for a cluster",
        ),
    ] {
        let text = GOOD.replace("spec: {", &format!("spec: {{brokerSpec: {{{broker}}}, "));
        let configurations = configurations(&[&text]);
        let none = Accepted::new();
        let validated = |has_static_pods| {
            validate(&World {
                has_static_pods,
                ..world(&configurations, &none)
            })
        };
        let alone = validated(true);
        assert_eq!(alone.accepted.len(), 1);
        let problem = alone.problems.values().next().unwrap();
        assert_eq!(problem.reason, "BrokerSpecInvalid");
        assert!(problem.message.starts_with(message), "{}", problem.message);
        assert_eq!(validated(false).problems.len(), 0);
    }
}
