use super::*;
use crate::model::{
    instance_name::InstanceKey,
    slot::{SlotId, SlotOwner},
};
use proptest::{collection::vec, prelude::*, sample::select};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

const NODE: &str = "node-a";

pub(super) fn observed(instance: &str, capacity: u32, usage: &[(u32, &str)]) -> ObservedSlots {
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

pub(super) fn table(instances: impl IntoIterator<Item = ObservedSlots>) -> SlotTable {
    let mut table = SlotTable::new(NODE);
    table.observe(instances);
    table
}

pub(super) fn instance(name: &str) -> Resource {
    Resource::Instance(name.into())
}

pub(super) fn cam() -> Resource {
    Resource::Configuration("cam".into())
}

pub(super) fn plan(
    table: &SlotTable,
    resource: &Resource,
    ids: &[&str],
) -> Result<Claim, ClaimError> {
    let ids = ids.iter().map(|id| (*id).to_owned()).collect();
    table.plan_claim(resource, &[ids], &BTreeSet::new())
}

/// Claims as the agent does, with a store that accepts everything.
fn claim(
    table: &mut SlotTable,
    resource: &Resource,
    ids: &[&str],
) -> Result<Vec<String>, ClaimError> {
    let changes: Vec<SlotChange> = plan(table, resource, ids)?.changes().cloned().collect();
    table.begin(&changes);
    table.settle(&changes, Some(Duration::from_secs(1)));
    Ok(changes
        .iter()
        .map(|change| change.slot.to_string())
        .collect())
}

fn list(slots: &[ListedSlot]) -> Vec<String> {
    let sign = |slot: &ListedSlot| if slot.is_usable { '+' } else { '-' };
    slots
        .iter()
        .map(|slot| format!("{}{}", sign(slot), slot.id))
        .collect()
}

#[test]
fn an_instance_lists_its_capacity_and_others_slots_as_unusable() {
    let table = table([observed(
        "cam-1",
        4,
        &[(1, NODE), (2, "node-b"), (3, "C:cam-0:node-a")],
    )]);
    assert_eq!(
        list(&table.instance_list(&"cam-1".into())),
        ["+cam-1-0", "+cam-1-1", "-cam-1-2", "-cam-1-3"]
    );
}

#[test]
fn a_slot_released_by_another_node_is_usable_again() {
    let mut table = table([observed("cam-1", 1, &[(0, "node-b")])]);
    assert_eq!(list(&table.instance_list(&"cam-1".into())), ["-cam-1-0"]);
    table.observe([observed("cam-1", 1, &[])]);
    assert_eq!(list(&table.instance_list(&"cam-1".into())), ["+cam-1-0"]);
}

#[test]
fn a_lowered_capacity_keeps_slots_in_use_on_the_list_unusable() {
    let table = table([observed("cam-1", 1, &[(2, NODE)])]);
    assert_eq!(
        list(&table.instance_list(&"cam-1".into())),
        ["-cam-1-0", "-cam-1-2"]
    );
    let refused = plan(&table, &instance("cam-1"), &["cam-1-1"]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "slot cam-1-1 is beyond the capacity of its Instance, 1"
    );
}

#[test]
fn a_container_beyond_a_lowered_capacity_counts_until_it_ends() {
    for owner in [NODE, "node-b", "C:cam-3:node-a"] {
        let mut table = table([observed(
            "cam-1",
            2,
            &[(1, owner), (2, owner), (3, "node-b")],
        )]);
        let of_instance = |table: &SlotTable| list(&table.instance_list(&"cam-1".into()));
        assert!(
            !of_instance(&table).contains(&"+cam-1-0".to_owned()),
            "{owner}"
        );
        let listed = list(&table.configuration_list(&"cam".into()));
        let is_free = |id: &String| id.starts_with('+') && id != "+cam-3";
        assert!(!listed.iter().any(is_free), "{owner}: {listed:?}");
        let full = plan(&table, &instance("cam-1"), &["cam-1-0"]).unwrap_err();
        assert_eq!(full.to_string(), "every slot of Instance cam-1 is in use");
        let usage = table.usage().next().unwrap();
        assert_eq!((usage.used, usage.free), (3, 0));
        // A slot that is being released is not free yet, and one that is being claimed is not any more.
        table.observe([observed("cam-1", 2, &[(1, owner)])]);
        assert!(
            of_instance(&table).contains(&"+cam-1-0".to_owned()),
            "{owner}"
        );
        let claimed = plan(&table, &instance("cam-1"), &["cam-1-0"]).unwrap();
        table.observe([observed("cam-1", 3, &[(1, owner), (3, owner)])]);
        let claimed: Vec<SlotChange> = claimed.changes().cloned().collect();
        table.begin(&claimed);
        assert_eq!(table.usage().next().unwrap().free, 1);
        assert!(plan(&table, &instance("cam-1"), &["cam-1-2"]).is_err());
        table.settle(&claimed, None);
        assert!(plan(&table, &instance("cam-1"), &["cam-1-2"]).is_ok());
    }
}

#[test]
fn a_node_that_lists_few_slots_counts_the_users_of_all() {
    let of_many = ObservedSlots {
        users_max: 20,
        ..observed(
            "cam-1",
            4,
            &[
                (12, "node-b"),
                (13, "node-b"),
                (14, "node-b"),
                (15, "node-b"),
            ],
        )
    };
    let table = table([of_many]);
    let expected = ["+cam-1-0", "+cam-1-1", "+cam-1-2", "+cam-1-3"];
    assert_eq!(list(&table.instance_list(&"cam-1".into())), expected);
    assert_eq!(table.usage().next().unwrap().free, 16);
}

#[test]
fn one_call_gets_no_more_slots_than_are_left() {
    let table = table([observed("cam-1", 3, &[(3, "node-b")])]);
    assert!(plan(&table, &instance("cam-1"), &["cam-1-0", "cam-1-1"]).is_ok());
    let full = plan(
        &table,
        &instance("cam-1"),
        &["cam-1-0", "cam-1-1", "cam-1-2"],
    );
    assert_eq!(
        full.unwrap_err().to_string(),
        "every slot of Instance cam-1 is in use"
    );
}

#[test]
fn a_configuration_lists_one_free_id_for_each_instance_and_those_in_use() {
    let mut table = table([
        observed("cam-1", 2, &[]),
        observed("cam-2", 1, &[(0, "node-b")]),
    ]);
    assert_eq!(list(&table.configuration_list(&"cam".into())), ["+cam-0"]);
    assert_eq!(claim(&mut table, &cam(), &["cam-0"]).unwrap(), ["cam-1-1"]);
    assert_eq!(
        list(&table.configuration_list(&"cam".into())),
        ["+cam-0", "+cam-1"]
    );
    assert_eq!(claim(&mut table, &cam(), &["cam-1"]).unwrap(), ["cam-1-0"]);
    assert_eq!(
        list(&table.configuration_list(&"cam".into())),
        ["+cam-0", "+cam-1"]
    );
    assert_eq!(
        list(&table.instance_list(&"cam-1".into())),
        ["-cam-1-0", "-cam-1-1"]
    );
}

#[test]
fn an_id_of_a_configuration_stays_with_its_device_while_it_is_listed() {
    let both = || [observed("cam-1", 1, &[]), observed("cam-2", 1, &[])];
    let mut table = table(both());
    let before = table.configuration_list(&"cam".into());
    // A third device, whose name sorts first, takes no id that is listed.
    table.observe(both().into_iter().chain([observed("cam-0", 1, &[])]));
    let after = table.configuration_list(&"cam".into());
    assert_eq!(after[..2], before);
    assert_eq!(after[2].instance, "cam-0");
}

#[test]
fn a_claim_survives_an_observation_that_is_older_than_it() {
    let mut table = table([observed("cam-1", 1, &[])]);
    let changes: Vec<_> = plan(&table, &cam(), &["cam-0"])
        .unwrap()
        .changes()
        .cloned()
        .collect();
    table.begin(&changes);
    table.observe([observed("cam-1", 1, &[])]);
    assert_eq!(list(&table.instance_list(&"cam-1".into())), ["-cam-1-0"]);
    let busy = plan(&table, &instance("cam-1"), &["cam-1-0"]).unwrap_err();
    assert_eq!(
        busy,
        ClaimError::Busy {
            slot: SlotId::new("cam-1", 0)
        }
    );
    table.settle(&changes, None);
    assert_eq!(list(&table.instance_list(&"cam-1".into())), ["+cam-1-0"]);
}

#[test]
fn the_kubelet_may_hand_out_a_slot_again_under_the_same_resource() {
    let mut table = table([
        observed("cam-1", 1, &[(0, NODE)]),
        observed("cam-2", 1, &[(0, "C:cam-7:node-a")]),
    ]);
    assert_eq!(
        claim(&mut table, &instance("cam-1"), &["cam-1-0"]).unwrap(),
        ["cam-1-0"]
    );
    assert_eq!(claim(&mut table, &cam(), &["cam-7"]).unwrap(), ["cam-2-0"]);
}

#[test]
fn a_slot_of_this_nodes_other_resource_is_refused_unless_its_holder_is_gone() {
    let table = table([observed("cam-1", 1, &[(0, "C:cam-0:node-a")])]);
    let ids = [vec!["cam-1-0".to_owned()]];
    let refused = table
        .plan_claim(&instance("cam-1"), &ids, &BTreeSet::new())
        .unwrap_err();
    assert!(matches!(refused, ClaimError::HeldHere { .. }), "{refused}");
    let gone = BTreeSet::from([SlotId::new("cam-1", 0)]);
    let claim = table.plan_claim(&instance("cam-1"), &ids, &gone).unwrap();
    assert_eq!(
        claim.requests[0][0].from.as_ref().unwrap().to_string(),
        "C:cam-0:node-a"
    );
}

#[test]
fn refusals_say_who_holds_what() {
    let table = table([
        observed("cam-1", 1, &[(0, "node-b")]),
        observed("cam-2", 2, &[]),
    ]);
    for (resource, ids, reason) in [
        (
            instance("cam-1"),
            ["cam-1-0"].as_slice(),
            "slot cam-1-0 is in use by node-b",
        ),
        (
            instance("cam-1"),
            &["cam-2-0"],
            "\"cam-2-0\" is no slot of \"cam-1\"",
        ),
        (
            instance("cam-2"),
            &["cam-2-0", "cam-2-0"],
            "slot cam-2-0 is asked for twice",
        ),
        (cam(), &["cam-9"], "\"cam-9\" is no slot of \"cam\""),
        (cam(), &["nonsense"], "\"nonsense\" is no slot of \"cam\""),
    ] {
        let refused = plan(&table, &resource, ids).unwrap_err().to_string();
        assert!(refused.starts_with(reason), "{refused}");
    }
}

#[test]
fn one_container_gets_distinct_devices_of_a_configuration() {
    let mut table = table([observed("cam-1", 2, &[]), observed("cam-2", 2, &[])]);
    assert_eq!(
        claim(&mut table, &cam(), &["cam-0", "cam-1"]).unwrap(),
        ["cam-1-1", "cam-2-1"]
    );
    // Two ids of one device are listed now; one container must not have both.
    let refused = plan(&table, &cam(), &["cam-0", "cam-2"]).unwrap_err();
    assert_eq!(
        refused,
        ClaimError::SameDevice {
            instance: "cam-1".into()
        }
    );
}

#[test]
fn the_preferred_ids_are_of_distinct_devices_with_most_slots_free() {
    let mut table = table([observed("cam-1", 3, &[]), observed("cam-2", 3, &[])]);
    claim(&mut table, &cam(), &["cam-0"]).unwrap();
    let available = ["cam-0", "cam-1", "cam-2"].map(str::to_owned);
    assert_eq!(
        table.preferred(&cam(), &available, &[], 2),
        ["cam-1", "cam-0"]
    );
    assert_eq!(
        table.preferred(&cam(), &available, &["cam-0".to_owned()], 2),
        ["cam-0", "cam-1"]
    );
    // What is left over comes last: the kubelet would take it, too.
    assert_eq!(
        table.preferred(&cam(), &available, &[], 3),
        ["cam-1", "cam-0", "cam-2"]
    );
}

#[test]
fn each_node_begins_with_another_device() {
    let names = ["cam-1", "cam-2", "cam-3"];
    let free = table(names.map(|name| observed(name, 1, &[])));
    let ids = ["cam-2", "cam-0", "cam-1", "other-0"].map(str::to_owned);
    let first = |table: &SlotTable, place: usize| {
        let available = table.in_turn(&"cam".into(), &ids, place);
        table.preferred(&cam(), &available, &[], 1)
    };
    let firsts: Vec<_> = (0..4).flat_map(|place| first(&free, place)).collect();
    assert_eq!(firsts, ["cam-0", "cam-1", "cam-2", "cam-0"]);
    let none = table([]).in_turn(&"cam".into(), &ids, 7);
    assert!(none.is_empty());
}

#[test]
fn usage_that_nobody_understands_is_somebody_elses() {
    let table = table([observed("cam-1", 1, &[(0, "a:b:c:d")])]);
    assert_eq!(list(&table.instance_list(&"cam-1".into())), ["-cam-1-0"]);
}

#[test]
fn held_slots_carry_the_time_of_their_answer() {
    let mut table = table([observed("cam-1", 2, &[(0, NODE)])]);
    claim(&mut table, &instance("cam-1"), &["cam-1-1"]).unwrap();
    let held: Vec<_> = table
        .held()
        .iter()
        .map(|h| (h.slot.index, h.answered.as_secs()))
        .collect();
    assert_eq!(held, [(0, 0), (1, 1)]);
}

#[test]
fn an_id_of_one_configuration_is_not_taken_for_anothers() {
    let other = ObservedSlots {
        configuration: "bell".into(),
        ..observed("bell-1", 1, &[(0, "C:bell-0:node-a")])
    };
    let table = table([observed("cam-1", 1, &[(0, "C:cam-0:node-a")]), other]);
    let held = |resource, id| {
        table
            .held_as(&resource, id)
            .map(|held| held.slot.to_string())
    };
    assert_eq!(held(cam(), "cam-0").as_deref(), Some("cam-1-0"));
    assert_eq!(
        held(Resource::Configuration("bell".into()), "bell-0").as_deref(),
        Some("bell-1-0")
    );
    assert_eq!(held(cam(), "bell-0"), None);
    assert_eq!(
        held(instance("cam-1"), "cam-1-0"),
        None,
        "the other resource holds it"
    );
}

/// The actions of two nodes on one store.
#[derive(Debug, Clone)]
enum Step {
    /// Node 0 or 1 reads the store.
    Observe(usize),
    /// A node allocates from its list of an Instance's or the Configuration's resource.
    Allocate {
        node: usize,
        by_configuration: bool,
        pick: usize,
    },
    /// A container of a node ends.
    Release { node: usize, pick: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let node = || select(vec![0_usize, 1]);
    let step = prop_oneof![
        node().prop_map(Step::Observe),
        (node(), any::<bool>(), 0..8_usize).prop_map(|(node, by_configuration, pick)| {
            Step::Allocate {
                node,
                by_configuration,
                pick,
            }
        }),
        (node(), 0..8_usize).prop_map(|(node, pick)| Step::Release { node, pick }),
    ];
    vec(step, 0..60)
}

/// Writes to the store: an owner is changed only if it is the expected one, as a JSON patch with a test does.
fn exchange(store: &mut [ObservedSlots], change: &SlotChange) -> bool {
    let instance = store.iter_mut().find(|o| o.key == change.key).unwrap();
    let id = change.slot.to_string();
    let current = instance
        .usage
        .get(&id)
        .map(|u| SlotOwner::from_usage(u).unwrap().unwrap());
    if current != change.from {
        return false;
    }
    match &change.to {
        Some(owner) => instance.usage.insert(id, owner.to_string()),
        None => instance.usage.remove(&id),
    };
    true
}

proptest! {
    #[test]
    fn two_nodes_never_hold_one_slot_and_holders_never_exceed_capacity(steps in steps()) {
        let mut store = vec![observed("cam-1", 1, &[]), observed("cam-2", 2, &[])];
        let mut tables = ["node-a", "node-b"].map(SlotTable::new);
        tables.iter_mut().for_each(|table| table.observe(store.clone()));
        let mut holders: BTreeSet<(usize, SlotId)> = BTreeSet::new();
        for step in steps {
            match step {
                Step::Observe(node) => tables[node].observe(store.clone()),
                Step::Allocate { node, by_configuration, pick } => {
                    let table = &mut tables[node];
                    let (resource, list) = if by_configuration {
                        (cam(), table.configuration_list(&"cam".into()))
                    } else {
                        let name = if pick % 2 == 0 { "cam-1" } else { "cam-2" };
                        (instance(name), table.instance_list(&name.into()))
                    };
                    let usable: Vec<_> = list.iter().filter(|slot| slot.is_usable).collect();
                    if usable.is_empty() { continue }
                    let id = usable[pick % usable.len()].id.to_string();
                    let before = table.clone();
                    let Ok(claim) = plan(table, &resource, &[&id]) else {
                        prop_assert_eq!(&before, &*table);
                        continue;
                    };
                    let changes: Vec<_> = claim.changes().cloned().collect();
                    table.begin(&changes);
                    let is_written = changes.iter().all(|change| exchange(&mut store, change));
                    table.settle(&changes, is_written.then_some(Duration::ZERO));
                    if is_written {
                        for change in changes {
                            let other = (1 - node, change.slot.clone());
                            prop_assert!(!holders.contains(&other), "{} is held twice", change.slot);
                            holders.insert((node, change.slot));
                        }
                    }
                }
                Step::Release { node, pick } => {
                    let held = tables[node].held();
                    if held.is_empty() { continue }
                    let slot = &held[pick % held.len()];
                    let change = slot.clone().release();
                    tables[node].begin(std::slice::from_ref(&change));
                    let is_written = exchange(&mut store, &change);
                    tables[node].settle(&[change], is_written.then_some(Duration::ZERO));
                    if is_written { holders.remove(&(node, slot.slot.clone())); }
                }
            }
            for instance in &store {
                prop_assert!(instance.usage.len() <= instance.capacity as usize);
            }
        }
    }

    #[test]
    fn a_configuration_never_lists_two_free_ids_of_one_device(owners in vec(select(vec!["", NODE, "node-b", "C:cam-0:node-a", "C:cam-5:node-a"]), 4)) {
        let usage: Vec<_> = owners.iter().enumerate().filter(|(_, o)| !o.is_empty())
            .map(|(i, owner)| (u32::try_from(i).unwrap(), *owner)).collect();
        let table = table([observed("cam-1", 4, &usage), observed("cam-2", 1, &[])]);
        let list = table.configuration_list(&"cam".into());
        let in_use = usage.iter().filter(|(_, o)| o.starts_with("C:")).map(|(_, o)| *o).collect::<BTreeSet<_>>().len();
        let free = usize::from(usage.len() < 4) + 1;
        prop_assert_eq!(list.len(), in_use + free);
    }
}

#[test]
fn what_was_written_is_observed_again_because_something_newer_may_have_been_observed_meanwhile() {
    let mut table = table([observed("cam-1", 1, &[])]);
    let changes: Vec<SlotChange> = (plan(&table, &instance("cam-1"), &["cam-1-0"]).unwrap())
        .changes()
        .cloned()
        .collect();
    table.begin(&changes);
    // Another writer has removed the slot again, and the watch reports this before the answer to the claim arrives.
    table.observe([observed("cam-1", 1, &[])]);
    table.settle(&changes, Some(Duration::from_secs(1)));
    assert_eq!(table.held().len(), 1);
    assert!(table.has_unobserved());
    let key = InstanceKey::new("default", "cam-1");
    assert_eq!(table.take_unobserved(), BTreeSet::from([key]));
    table.observe_changes([observed("cam-1", 1, &[])], []);
    assert_eq!(table.held(), []);
    assert!(!table.has_unobserved());
}
