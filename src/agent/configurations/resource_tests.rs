//! Tests which Configuration gets which resource, and the problems of the others.
use super::super::{ValidatedConfigurations, plan::validate, world::Labels};
use super::*;
use crate::{
    agent::values::IdsByResource,
    discovery::{Reads, SessionSpec},
    model::{
        container_devices::ContainerRules, device::Scope, slot_table::Resource,
        variables::Variables,
    },
    store::{configuration_key, manifest},
};
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};

static NO_WISHES: LazyLock<ContainerRules> = LazyLock::new(ContainerRules::default);

fn scope(_: &SessionSpec) -> Result<Scope, Problem> {
    Ok(Scope::Node)
}

/// Configurations as `name: resourceName`, the first is the oldest.
fn validated(
    of: &[(&str, &str)],
    before: &Accepted,
    offered: &IdsByResource,
) -> ValidatedConfigurations {
    let registered = before.values().filter_map(|a| a.resource_name.clone());
    validated_with(of, before, Some(offered), &registered.collect())
}

fn validated_with(
    of: &[(&str, &str)],
    before: &Accepted,
    offered: Option<&IdsByResource>,
    registered: &BTreeSet<ResourceName>,
) -> ValidatedConfigurations {
    let mut configurations = Configurations {
        is_complete: true,
        ..Configurations::default()
    };
    for (n, (name, resource)) in of.iter().enumerate() {
        let text = format!(
            "{{apiVersion: akri.sh/v0, kind: Configuration, metadata: {{name: {name}, creationTimestamp: 2026-01-0{}T00:00:00Z}}, spec: {{discoveryHandler: {{name: echo}}{resource}}}}}",
            n + 1
        );
        for c in manifest::read(&text).unwrap() {
            (configurations.objects).insert(configuration_key(&c.metadata), Arc::new(c));
        }
    }
    let keys = configurations.objects.keys().chain(before.keys());
    let ours = keys.map(|key| key.name.clone()).collect();
    let node_only = configurations.objects.iter();
    let node_only = node_only.filter(|(_, configuration)| !configuration.spec.instances);
    let node_only = node_only.map(|(key, _)| key.name.clone()).collect();
    let others = offered.map(|offered| foreign(offered, &ours, &node_only));
    validate(&World {
        configurations: &configurations,
        before,
        refused_before: &NOT_REFUSED,
        labels: Labels::NoNode,
        prefixes: &"akri.sh,pflex.io".parse().unwrap(),
        foreign: others.as_ref(),
        registered,
        max_configurations: 100,
        scope_of: &scope,
        reads: &|_| Reads::Only(&[]),
        has_static_pods: false,
        has_claims: false,
        containers: &NO_WISHES,
        variables: &Variables::default(),
        sources: None,
    })
}

static NOT_REFUSED: crate::agent::values::Refused = crate::agent::values::Refused::new();
const BLOCK: &str = ", resourceName: pflex.io/block";
const DISK: &str = ", resourceName: pflex.io/disk";

fn name(validated: &ValidatedConfigurations, configuration: &str) -> Option<ResourceName> {
    let resource = Resource::Configuration(configuration.into());
    validated.names.of(&resource)
}

fn reason(validated: &ValidatedConfigurations, configuration: &str) -> String {
    let problem = validated
        .problems
        .get(&ConfigurationKey::new("default", configuration));
    problem.map(|p| p.reason.clone()).unwrap_or_default()
}

#[test]
fn a_name_of_its_own_has_one_of_our_prefixes_and_is_nobody_elses() {
    for (resource, expected) in [
        (BLOCK, ""),
        (", resourceName: akri.sh/block", ""),
        (", resourceName: example.com/block", "ResourcePrefix"),
        (", resourceName: block", "BadSpec"),
        (", resourceName: pflex.io/a/b", "BadSpec"),
        (", resourceName: akri.sh/cam", "ResourceTaken"),
        (", resourceName: akri.sh/cam-8120fe", "ResourceTaken"),
        (", resourceName: akri.sh/block-8120fe", "ResourceTaken"),
        (", resourceName: akri.sh/cam-8120", ""),
    ] {
        let validated = validated(
            &[("cam", ""), ("block", resource)],
            &Accepted::new(),
            &IdsByResource::new(),
        );
        assert_eq!(reason(&validated, "block"), expected, "{resource}");
        assert_eq!(name(&validated, "cam").unwrap(), "akri.sh/cam");
        let is_offered = name(&validated, "block").is_some();
        assert_eq!(is_offered, expected.is_empty(), "{resource}");
        let accepted = validated.accepted.len();
        assert_eq!(
            accepted,
            if expected.is_empty() { 2 } else { 1 },
            "{resource}"
        );
    }
}

#[test]
fn the_prefix_that_is_refused_comes_with_the_flag_and_the_value_of_the_chart() {
    let resource = ", resourceName: example.com/block";
    let validated = validated(
        &[("block", resource)],
        &Accepted::new(),
        &IdsByResource::new(),
    );
    let message = &validated.problems.values().next().unwrap().message;
    for part in [
        "example.com/block",
        "akri.sh, pflex.io",
        "--resource-prefixes",
        "resourcePrefixes",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_name_that_another_plugin_has_is_refused_and_slots_of_an_earlier_agent_are_no_other() {
    let offered = |id: &str| {
        IdsByResource::from([("pflex.io/block".parse().unwrap(), [id.to_owned()].into())])
    };
    for (id, expected) in [
        ("pflex1", "ResourceTaken"),
        ("block-0", ""),
        ("block-", "ResourceTaken"),
        ("block-8120fe-0", "ResourceTaken"),
    ] {
        let validated = validated(&[("block", BLOCK)], &Accepted::new(), &offered(id));
        assert_eq!(reason(&validated, "block"), expected, "{id}");
    }
    // Without Instances slots are named after a device.
    let without = format!("{BLOCK}, instances: false");
    for (id, expected) in [("block-8120fe-0", ""), ("block-8120fx-0", "ResourceTaken")] {
        let of = [("block", without.as_str())];
        let validated = validated(&of, &Accepted::new(), &offered(id));
        assert_eq!(reason(&validated, "block"), expected, "{id}");
    }
    // The Configuration that has the resource keeps it, and gets a problem.
    let before = validated(&[("block", BLOCK)], &Accepted::new(), &IdsByResource::new()).accepted;
    let now = validated(&[("block", BLOCK)], &before, &offered("pflex1"));
    assert_eq!(name(&now, "block").unwrap(), "pflex.io/block");
    assert_eq!(reason(&now, "block"), "ResourceTaken");
    assert_eq!(now.accepted, before);
    // An edit that wants it changes nothing.
    let before = validated(&[("block", DISK)], &Accepted::new(), &IdsByResource::new()).accepted;
    let now = validated(&[("block", BLOCK)], &before, &offered("pflex1"));
    assert_eq!(name(&now, "block").unwrap(), "pflex.io/disk");
    assert_eq!(
        (reason(&now, "block").as_str(), now.accepted),
        ("ResourceTaken", before)
    );
}

#[test]
fn of_two_with_one_name_the_one_that_has_it_goes_on_else_the_older() {
    let two = [("b", BLOCK), ("a", BLOCK)];
    let fresh = validated(&two, &Accepted::new(), &IdsByResource::new());
    assert_eq!(name(&fresh, "b").unwrap(), "pflex.io/block");
    assert_eq!(
        (reason(&fresh, "a"), name(&fresh, "a")),
        ("ResourceTaken".to_owned(), None)
    );

    let before = validated(&[("a", BLOCK)], &Accepted::new(), &IdsByResource::new()).accepted;
    let now = validated(&two, &before, &IdsByResource::new());
    assert_eq!(name(&now, "a").unwrap(), "pflex.io/block");
    assert_eq!(reason(&now, "b"), "ResourceTaken");
    // Nothing new: nothing moves.
    assert_eq!(
        validated(&two, &now.accepted, &IdsByResource::new()).accepted,
        now.accepted
    );
}

#[test]
fn a_default_name_is_a_name_like_any_other() {
    let before = validated(
        &[("a", ", resourceName: akri.sh/b")],
        &Accepted::new(),
        &IdsByResource::new(),
    );
    assert_eq!(reason(&before, "a"), "");
    let now = validated(
        &[("a", ", resourceName: akri.sh/b"), ("b", "")],
        &before.accepted,
        &IdsByResource::new(),
    );
    assert_eq!(
        (reason(&now, "a"), reason(&now, "b").as_str()),
        (String::new(), "ResourceTaken")
    );
    assert!(
        !now.accepted
            .contains_key(&ConfigurationKey::new("default", "b"))
    );
}

#[test]
fn an_edit_that_wants_what_another_has_changes_nothing_and_a_swap_works() {
    let before = validated(
        &[("a", BLOCK), ("b", DISK)],
        &Accepted::new(),
        &IdsByResource::new(),
    )
    .accepted;
    let greedy = validated(&[("a", DISK), ("b", DISK)], &before, &IdsByResource::new());
    assert_eq!(greedy.accepted, before);
    assert_eq!(reason(&greedy, "a"), "ResourceTaken");
    assert_eq!(name(&greedy, "a").unwrap(), "pflex.io/block");
    // What the first keeps, a third cannot have.
    let third = validated(
        &[("a", DISK), ("b", DISK), ("c", BLOCK)],
        &before,
        &IdsByResource::new(),
    );
    assert_eq!(
        (reason(&third, "c").as_str(), third.accepted.len()),
        ("ResourceTaken", 2)
    );

    let swapped = validated(&[("a", DISK), ("b", BLOCK)], &before, &IdsByResource::new());
    assert!(swapped.problems.is_empty());
    assert_eq!(name(&swapped, "a").unwrap(), "pflex.io/disk");
}

#[test]
fn who_has_lost_its_name_to_another_goes_on_without_it_until_it_is_free() {
    let block = [("block", BLOCK)];
    let before = validated(&block, &Accepted::new(), &IdsByResource::new()).accepted;
    let offered = IdsByResource::from([(
        "pflex.io/block".parse().unwrap(),
        ["pflex1".to_owned()].into(),
    )]);
    let nothing = BTreeSet::new();
    let lost = validated_with(&block, &before, Some(&offered), &nothing);
    assert_eq!(
        (reason(&lost, "block").as_str(), name(&lost, "block")),
        ("ResourceTaken", None)
    );
    assert_eq!(lost.accepted, before);

    let free = validated_with(
        &block,
        &lost.accepted,
        Some(&IdsByResource::new()),
        &nothing,
    );
    assert!(free.problems.is_empty());
    assert_eq!(name(&free, "block").unwrap(), "pflex.io/block");
}

#[test]
fn one_that_goes_back_to_its_earlier_name_keeps_it_from_another_of_ours() {
    let before = validated(&[("a", DISK)], &Accepted::new(), &IdsByResource::new()).accepted;
    let offered = IdsByResource::from([(
        "pflex.io/block".parse().unwrap(),
        ["pflex1".to_owned()].into(),
    )]);
    let now = validated(&[("a", BLOCK), ("b", DISK)], &before, &offered);
    assert_eq!(name(&now, "a").unwrap(), "pflex.io/disk");
    assert_eq!(name(&now, "b"), None);
    assert_eq!(
        (reason(&now, "a").as_str(), reason(&now, "b").as_str()),
        ("ResourceTaken", "ResourceTaken")
    );
}

#[test]
fn a_name_is_not_offered_before_the_kubelet_was_asked_who_has_it() {
    let block = [("block", BLOCK)];
    let nothing = BTreeSet::new();
    let unasked = validated_with(&block, &Accepted::new(), None, &nothing);
    assert!(unasked.problems.is_empty());
    assert_eq!((unasked.accepted.len(), name(&unasked, "block")), (1, None));

    let registered = BTreeSet::from(["pflex.io/block".parse().unwrap()]);
    let ours = validated_with(&block, &unasked.accepted, None, &registered);
    assert_eq!(name(&ours, "block").unwrap(), "pflex.io/block");
}

#[test]
fn slots_of_another_of_ours_that_has_just_stopped_are_no_other_plugins() {
    let offered = IdsByResource::from([(
        "pflex.io/block".parse().unwrap(),
        ["disk-7".to_owned()].into(),
    )]);
    let two = [("block", BLOCK), ("disk", DISK)];
    let validated = validated(&two, &Accepted::new(), &offered);
    assert_eq!(reason(&validated, "block"), "");
}

proptest! {
    /// Whatever is written: no two have one resource, who keeps its name keeps its resource, and validating again changes
    /// nothing.
    #[test]
    fn every_resource_has_one_owner_and_nothing_moves_by_itself(
        first in prop::collection::btree_map("[abc]", 0_usize..NAMES.len(), 0..4),
        then in prop::collection::btree_map("[abc]", 0_usize..NAMES.len(), 0..4),
    ) {
        let all = |of: &BTreeMap<String, usize>, before: &Accepted| {
            let of: Vec<(&str, &str)> = of.iter().map(|(c, n)| (c.as_str(), NAMES[*n])).collect();
            validated(&of, before, &IdsByResource::new())
        };
        let before = all(&first, &Accepted::new());
        let now = all(&then, &before.accepted);
        let owned = |validated: &ValidatedConfigurations| -> Vec<(ResourceName, String)> {
            let keys = validated.accepted.keys();
            keys.map(|key| (name(validated, &key.name).unwrap(), key.name.to_string())).collect()
        };
        let distinct: BTreeMap<_, _> = owned(&now).into_iter().collect();
        prop_assert_eq!(distinct.len(), now.accepted.len());
        for (resource, owner) in owned(&before) {
            if then.get(&owner) == first.get(&owner) {
                prop_assert_eq!(distinct.get(&resource), Some(&owner));
            }
        }
        let again = all(&then, &now.accepted);
        prop_assert_eq!(&again.accepted, &now.accepted);
        prop_assert_eq!(again.names, now.names);
    }
}

const NAMES: [&str; 6] = [
    "",
    BLOCK,
    DISK,
    ", resourceName: akri.sh/a",
    ", resourceName: akri.sh/b",
    ", resourceName: example.com/x",
];
