use super::*;
use crate::model::{
    instance_name::InstanceKey,
    slot::{ListedId, SlotId, SlotOwner},
};
use proptest::{collection::vec, prelude::*, sample::select};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

const NODE: &str = "node-a";

fn observed(instance: &str, capacity: u32, usage: &[(u32, &str)]) -> ObservedSlots {
    ObservedSlots {
        key: InstanceKey::new("default", instance),
        precedence: Precedence::default(),
        configuration: "cam".into(),
        capacity,
        users_max: capacity,
        is_offered: true,
        is_by_claims: false,
        is_own: false,
        told: BTreeMap::new(),
        usage: (usage.iter())
            .map(|(index, owner)| (format!("{instance}-{index}"), (*owner).to_owned()))
            .collect(),
    }
}

fn table(instances: impl IntoIterator<Item = ObservedSlots>) -> SlotTable {
    let mut table = SlotTable::new(NODE);
    table.observe(instances);
    table
}

fn listed(ids: &[&str]) -> BTreeSet<ListedId> {
    ids.iter().map(|id| id.parse().unwrap()).collect()
}

/// Returns a container that has its slots in its environment.
fn used(ids: &[&str], env_slots: &[&str]) -> Use {
    Use {
        ids: listed(ids),
        env_slots: listed(env_slots).iter().map(ListedId::slot).collect(),
        ..Use::default()
    }
}

fn claimed(adoptions: &Adoptions) -> Vec<String> {
    let claim = |change: &SlotChange| {
        assert_eq!(change.from, None);
        format!("{}={}", change.slot, change.to.as_ref().unwrap())
    };
    adoptions.changes.iter().map(claim).collect()
}

fn twice(adoptions: &Adoptions) -> Vec<String> {
    let one = |one: &HeldTwice| format!("{}={} and {}", one.slot, one.owner, one.id);
    adoptions.twice.iter().map(one).collect()
}

#[test]
fn a_slot_that_a_container_uses_and_no_instance_shows_is_claimed() {
    let table = table([
        observed("cam-1", 2, &[(1, NODE)]),
        observed("cam-2", 2, &[]),
    ]);
    let of_list = used(&["cam-1-0"], &[]);
    let shown = used(&["cam-1-1"], &["cam-1-1"]);
    let by_configuration = used(&["cam-0"], &["cam-2-1"]);
    let adoptions = table.adoptions(&[of_list, shown, by_configuration]);
    assert_eq!(
        claimed(&adoptions),
        ["cam-1-0=node-a", "cam-2-1=C:cam-0:node-a"]
    );
    assert_eq!(twice(&adoptions), [""; 0]);
}

#[test]
fn an_id_of_a_configuration_is_claimed_for_the_device_that_the_container_was_given() {
    let both = [
        observed("cam-aaaaaa", 2, &[]),
        observed("cam-bbbbbb", 1, &[]),
    ];
    // Until then the id is that of another Instance's free slot.
    let mut table = table(both);
    assert_eq!(
        table.configuration_list(&"cam".into())[0].instance,
        "cam-aaaaaa"
    );
    let akris = Use {
        ids: listed(&["cam-0"]),
        digests: ["bbbbbb", "cafe12"].map(str::to_owned).into(),
        ..Use::default()
    };
    let adoptions = table.adoptions(&[akris]);
    assert_eq!(claimed(&adoptions), ["cam-bbbbbb-0=C:cam-0:node-a"]);
    table.begin(&adoptions.changes);
    table.settle(&adoptions.changes, Some(Duration::ZERO));
    let listed = table.configuration_list(&"cam".into());
    let listed: Vec<_> = listed
        .iter()
        .map(|s| (s.id.to_string(), &*s.instance))
        .collect();
    assert_eq!(listed[0], ("cam-0".to_owned(), "cam-bbbbbb"));
    assert_eq!(listed[1], ("cam-1".to_owned(), "cam-aaaaaa"));
}

#[test]
fn of_a_container_with_two_devices_only_the_one_that_is_not_shown_is_claimed() {
    let table = table([
        observed("cam-1", 1, &[(0, "C:cam-1:node-a")]),
        observed("cam-2", 1, &[]),
    ]);
    let both = used(&["cam-0", "cam-1"], &["cam-1-0", "cam-2-0"]);
    assert_eq!(
        claimed(&table.adoptions(&[both])),
        ["cam-2-0=C:cam-0:node-a"]
    );
}

#[test]
fn an_id_of_another_configuration_claims_no_slot() {
    let table = table([observed("cam-1", 2, &[])]);
    let uses = [used(&["door-0"], &["cam-1-0"])];
    assert_eq!(claimed(&table.adoptions(&uses)), [""; 0]);
}

#[test]
fn a_slot_that_another_node_holds_is_held_twice_and_is_not_offered_here() {
    let table = table([observed("cam-1", 1, &[(0, "node-b")])]);
    let uses = [used(&["cam-1-0"], &["cam-1-0"])];
    let adoptions = table.adoptions(&uses);
    assert_eq!(twice(&adoptions), ["cam-1-0=node-b and cam-1-0"]);
    assert_eq!(claimed(&adoptions), [""; 0]);
    assert!(!table.instance_list(&"cam-1".into())[0].is_usable);
    // For the Configuration's resource any free slot of the device is equivalent.
    let table = self::table([observed("cam-1", 2, &[(0, "node-b")])]);
    let uses = [used(&["cam-0"], &["cam-1-0"])];
    assert_eq!(claimed(&table.adoptions(&uses)), ["cam-1-1=C:cam-0:node-a"]);
    let table = self::table([observed("cam-1", 1, &[(0, "node-b")])]);
    let adoptions = table.adoptions(&uses);
    assert_eq!(twice(&adoptions), ["cam-1-0=node-b and cam-0"]);
}

#[test]
fn a_slot_of_this_nodes_other_resource_is_held_twice_only_while_both_containers_run() {
    let table = table([observed("cam-1", 1, &[(0, "C:cam-0:node-a")])]);
    let by_instance = used(&["cam-1-0"], &["cam-1-0"]);
    let adoptions = table.adoptions(std::slice::from_ref(&by_instance));
    assert_eq!(twice(&adoptions), [""; 0]);
    assert_eq!(claimed(&adoptions), [""; 0]);
    let by_configuration = used(&["cam-0"], &["cam-1-0"]);
    let adoptions = table.adoptions(&[by_instance, by_configuration]);
    assert_eq!(twice(&adoptions), ["cam-1-0=C:cam-0:node-a and cam-1-0"]);
}

#[test]
fn a_slot_that_is_just_being_written_is_left_to_the_next_look() {
    let mut table = table([observed("cam-1", 1, &[(0, NODE)])]);
    let release = SlotChange {
        key: InstanceKey::new("default", "cam-1"),
        slot: SlotId::new("cam-1", 0),
        from: Some(SlotOwner::Node(NODE.into())),
        to: None,
        connection_digest: None,
    };
    table.begin(&[release]);
    let adoptions = table.adoptions(&[used(&["cam-1-0"], &[])]);
    assert_eq!((claimed(&adoptions), twice(&adoptions)), (vec![], vec![]));
}

#[test]
fn a_use_is_of_an_instance_by_its_id_by_what_the_container_was_given_or_by_a_digest() {
    let by_digest = Use {
        ids: listed(&["cam-0"]),
        digests: ["aaaaaa".to_owned()].into(),
        ..Use::default()
    };
    for one in [
        used(&["cam-aaaaaa-1"], &[]),
        used(&["cam-0"], &["cam-aaaaaa-1"]),
        by_digest,
    ] {
        assert!(one.may_be_of(&"cam-aaaaaa".into()), "{one:?}");
        assert!(!one.may_be_of(&"cam-bbbbbb".into()), "{one:?}");
    }
}

#[test]
fn an_index_that_no_capacity_ever_had_is_held_and_not_listed() {
    let table = table([observed(
        "cam-1",
        1,
        &[(7, NODE), (u32::MAX, NODE), (10_000, NODE)],
    )]);
    let listed: Vec<_> = table
        .instance_list(&"cam-1".into())
        .iter()
        .map(|s| s.id.index)
        .collect();
    assert_eq!(listed, [0, 7]);
    assert_eq!(table.held().len(), 3);
    let huge = self::table([observed("cam-1", u32::MAX, &[])]);
    assert_eq!(huge.instance_list(&"cam-1".into()).len(), 10_000);
}

#[test]
fn an_instance_that_this_node_does_not_offer_has_no_slot_to_give() {
    let mut held = observed("cam-1", 2, &[(1, NODE)]);
    held.is_offered = false;
    let listed: Vec<_> = table([held])
        .instance_list(&"cam-1".into())
        .iter()
        .map(|s| s.is_usable)
        .collect();
    assert_eq!(listed, [false, true]);
}

fn of_namespace(namespace: &str, (is_stray, created): (bool, i64), owner: &str) -> ObservedSlots {
    ObservedSlots {
        key: InstanceKey::new(namespace, "cam-1"),
        precedence: Precedence { is_stray, created },
        ..observed("cam-1", 1, &[(0, owner)])
    }
}

fn owner_of(table: &SlotTable) -> Option<String> {
    table
        .observed_owner(&SlotId::new("cam-1", 0))
        .map(ToString::to_string)
}

#[test]
fn of_two_instances_of_one_name_one_has_the_slots_in_whatever_order_they_come() {
    let ours = || of_namespace("team-a", (false, 20), NODE);
    let stray = || of_namespace("team-b", (true, 10), "node-b");
    for order in [[ours(), stray()], [stray(), ours()]] {
        let mut table = SlotTable::new(NODE);
        for one in order {
            table.observe_changes([one], []);
        }
        assert_eq!(owner_of(&table).as_deref(), Some(NODE));
        assert_eq!(table.held()[0].key.namespace, "team-a");
        // The batch has a change first and a deletion last. The deleted Instance is the other one.
        table.observe_changes([ours()], [stray().key]);
        assert_eq!(owner_of(&table).as_deref(), Some(NODE));
        // When the first Instance is deleted, the other has the name at once, without being observed again.
        table.observe_changes([stray()], []);
        let arrivals = table.arrivals();
        table.observe_changes([], [ours().key]);
        assert_eq!(owner_of(&table).as_deref(), Some("node-b"));
        assert_eq!(table.arrivals(), arrivals + 1);
    }
    let by_age = [
        of_namespace("b", (false, 5), "old"),
        of_namespace("a", (false, 6), "young"),
    ];
    assert_eq!(owner_of(&table(by_age)).as_deref(), Some("old"));
    let by_name = [
        of_namespace("b", (false, 5), "b"),
        of_namespace("a", (false, 5), "a"),
    ];
    assert_eq!(owner_of(&table(by_name)).as_deref(), Some("a"));
}

#[test]
fn a_write_to_the_instance_that_lost_its_name_does_not_change_the_other_ones_slots() {
    let change = SlotChange {
        key: InstanceKey::new("team-b", "cam-1"),
        slot: SlotId::new("cam-1", 0),
        from: None,
        to: Some(SlotOwner::Node(NODE.into())),
        connection_digest: None,
    };
    let mut table = table([of_namespace("team-a", (false, 1), "node-b")]);
    table.begin(std::slice::from_ref(&change));
    table.settle(&[change], Some(Duration::ZERO));
    assert_eq!(owner_of(&table).as_deref(), Some("node-b"));
}

fn uses() -> impl Strategy<Value = Vec<Use>> {
    let instance = select(vec!["cam-1-0", "cam-1-1", "cam-2-0", "cam-9-0"]);
    let by_instance = instance.prop_map(|id| used(&[id], &[id]));
    let by_configuration = (0_u32..4, select(vec!["cam-1-0", "cam-1-1", "cam-2-0"]))
        .prop_map(|(n, slot)| used(&[&format!("cam-{n}")], &[slot]));
    vec(prop_oneof![by_instance, by_configuration], 0..5).prop_map(|mut uses| {
        // The kubelet gives an id to one container.
        let mut seen = BTreeSet::new();
        uses.retain(|one: &Use| seen.insert(one.ids.clone()));
        uses
    })
}

proptest! {
    /// Every use has a claim after a look, unless its slot is held twice or it belongs to no Instance, whoever held the
    /// slots before.
    #[test]
    fn after_a_look_every_use_is_shown_or_reported(
        uses in uses(),
        owners in vec(select(vec!["", NODE, "node-b", "C:cam-0:node-a", "C:cam-1:node-a"]), 3),
    ) {
        let usage = |range: std::ops::Range<usize>| -> Vec<(u32, &str)> {
            let owners = owners[range].iter().enumerate().filter(|(_, o)| !o.is_empty());
            owners.map(|(n, o)| (u32::try_from(n).unwrap(), *o)).collect()
        };
        let mut table = table([observed("cam-1", 2, &usage(0..2)), observed("cam-2", 1, &usage(2..3))]);
        let before = table.adoptions(&uses);
        for change in &before.changes {
            prop_assert!(table.is_free(&change.slot), "{}", change.slot);
        }
        table.begin(&before.changes);
        table.settle(&before.changes, Some(Duration::ZERO));
        let after = table.adoptions(&uses);
        prop_assert_eq!(&after.changes, &vec![]);
        for one in &after.twice {
            prop_assert!(table.observed_owner(&one.slot).is_some());
        }
    }
}

#[test]
fn a_container_is_counted_however_many_others_have_its_device() {
    let table = table([observed("cam-1", 2, &[(1, "node-b"), (2, "node-b")])]);
    let adoptions = table.adoptions(&[used(&["cam-0"], &["cam-1-1"])]);
    assert_eq!(claimed(&adoptions), ["cam-1-0=C:cam-0:node-a"]);
    assert!(adoptions.twice.is_empty());
}
