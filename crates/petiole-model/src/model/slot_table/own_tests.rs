//! Tests who holds the slots of a device that this node alone has: over restarts of the agent, and while its Instance shows
//! something else.
use super::{
    tests::{cam, instance, observed, plan},
    *,
};
use crate::model::{
    instance_name::InstanceKey,
    slot::{SlotId, SlotOwner},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

const NODE: &str = "node-a";

/// The Instance of a device that this node alone has.
fn own(usage: &[(u32, &str)]) -> ObservedSlots {
    ObservedSlots {
        is_own: true,
        ..observed("cam-1", 2, usage)
    }
}

/// A container with this id, and the slot in its environment.
fn container(id: &str, slot: &str) -> Use {
    Use {
        ids: BTreeSet::from([id.parse().unwrap()]),
        env_slots: BTreeSet::from([slot.parse().unwrap()]),
        claim: None,
        ..Use::default()
    }
}

/// The table of an agent that has just started.
fn started(usage: &[(u32, &str)]) -> SlotTable {
    let mut table = SlotTable::new(NODE);
    table.observe([own(usage)]);
    table
}

/// The table of an agent that has looked at the kubelet's records.
fn looked(usage: &[(u32, &str)], uses: &[Use]) -> SlotTable {
    let mut table = started(usage);
    table.confirm(uses.to_vec(), table.arrivals(), Duration::from_secs(1));
    table
}

fn claim(table: &mut SlotTable, resource: &Resource, id: &str) -> Result<SlotId, ClaimError> {
    let changes: Vec<SlotChange> = plan(table, resource, &[id])?.changes().cloned().collect();
    table.settle(&changes, Some(Duration::from_secs(2)));
    Ok(changes[0].slot.clone())
}

fn owners(table: &SlotTable) -> Vec<String> {
    let held = table.held().into_iter();
    held.map(|held| format!("{}={}", held.slot.index, held.owner))
        .collect()
}

/// What is to be written to an Instance that shows `usage`.
fn unwritten(table: &SlotTable, usage: &[(u32, &str)]) -> Vec<String> {
    let shown = |_: &InstanceKey| {
        let owner = |(index, usage): &(u32, &str)| {
            Some((*index, (SlotOwner::from_usage(usage).ok()??, None)))
        };
        Some(usage.iter().filter_map(owner).collect())
    };
    let text = |owner: &Option<SlotOwner>| owner.as_ref().map_or(String::new(), |o| o.to_string());
    let all = table.unwritten(shown).flat_map(|(_, all)| all);
    all.map(|change| {
        let (from, to) = (text(&change.from), text(&change.to));
        format!("{}:{from}>{to}", change.slot.index)
    })
    .collect()
}

fn is_unconfirmed(claimed: Result<SlotId, ClaimError>) -> bool {
    matches!(claimed, Err(ClaimError::Unconfirmed { .. }))
}

#[test]
fn an_agent_that_has_just_started_gives_no_slot_out_before_it_has_seen_who_has_it() {
    // The earlier life gave slot 1 to a container by the Configuration's resource, and was lost before it wrote that.
    let mut table = started(&[]);
    let alone = instance("cam-1");
    for id in ["cam-1-0", "cam-1-1"] {
        assert!(is_unconfirmed(claim(&mut table, &alone, id)), "{id}");
    }
    assert!(is_unconfirmed(claim(&mut table, &cam(), "cam-0")));
    table.confirm(
        vec![container("cam-7", "cam-1-1")],
        table.arrivals(),
        Duration::from_secs(1),
    );
    let refused = claim(&mut table, &alone, "cam-1-1").unwrap_err();
    assert!(
        matches!(refused, ClaimError::HeldHere { .. }),
        "{refused:?}"
    );
    assert_eq!(claim(&mut table, &alone, "cam-1-0").unwrap().index, 0);
    assert_eq!(owners(&table), ["0=node-a", "1=C:cam-7:node-a"]);
}

#[test]
fn what_the_kubelet_says_counts_more_than_what_the_earlier_life_wrote_last() {
    // It wrote that the Instance's resource has the slot, and gave it to the other one after that had ended.
    let mut table = looked(&[(0, NODE)], &[container("cam-7", "cam-1-0")]);
    assert_eq!(owners(&table), ["0=C:cam-7:node-a"]);
    claim(&mut table, &instance("cam-1"), "cam-1-0").unwrap_err();
    let table = looked(&[(0, "C:cam-7:node-a")], &[container("cam-1-0", "cam-1-0")]);
    assert_eq!(owners(&table), ["0=node-a"]);
    // By the same id a container got the other slot.
    let table = looked(&[(0, "C:cam-7:node-a")], &[container("cam-7", "cam-1-1")]);
    assert_eq!(owners(&table), ["1=C:cam-7:node-a"]);
    // What the kubelet does not list is released by two looks, as ever, and not by one.
    assert_eq!(owners(&looked(&[(0, NODE)], &[])), ["0=node-a"]);
}

#[test]
fn what_an_earlier_life_answered_and_the_kubelet_recorded_late_is_held() {
    for (second, is_held) in [(29, true), (31, false)] {
        let mut table = looked(&[], &[]);
        let late = vec![container("cam-7", "cam-1-1")];
        let begun = Duration::from_secs(second);
        assert!(table.confirm(late, table.arrivals(), begun));
        let claimed = claim(&mut table, &instance("cam-1"), "cam-1-1");
        assert_eq!(claimed.is_err(), is_held, "{second}");
    }
}

#[test]
fn a_refusal_that_passes_makes_no_slot_unhealthy() {
    let table = started(&[]);
    let list = table.instance_list(&"cam-1".into());
    assert!(list.iter().all(|slot| slot.is_usable));
    assert_eq!(table.configuration_list(&"cam".into()).len(), 1);
}

#[test]
fn a_look_that_began_before_an_instance_arrived_confirms_none_of_its_slots() {
    let mut table = started(&[]);
    table.confirm(vec![], 0, Duration::from_secs(1));
    assert!(table.has_unconfirmed());
    assert!(is_unconfirmed(claim(
        &mut table,
        &instance("cam-1"),
        "cam-1-0"
    )));
}

#[test]
fn an_instance_that_arrives_later_waits_for_a_look_only_if_a_container_may_have_a_slot_of_it() {
    for (uses, waits) in [
        (vec![], false),
        (vec![container("cam-0", "cam-1-1")], true),
        (vec![container("cam-0", "cam-2-1")], false),
    ] {
        let mut table = SlotTable::new(NODE);
        table.confirm(uses.clone(), 0, Duration::ZERO);
        table.observe([own(&[])]);
        assert_eq!(table.has_unconfirmed(), waits, "{uses:?}");
    }
}

#[test]
fn what_was_given_out_is_held_whatever_the_instance_shows_then() {
    let mut table = looked(&[], &[]);
    claim(&mut table, &instance("cam-1"), "cam-1-0").unwrap();
    // It is not written yet, the server is back with an older object, or somebody has cleared it.
    table.observe([own(&[])]);
    assert_eq!(owners(&table), ["0=node-a"]);
    assert_eq!(unwritten(&table, &[]), ["0:>node-a"]);
    assert!(unwritten(&table, &[(0, NODE)]).is_empty());
    // Released, and the Instance shows the old owner yet.
    let release = SlotChange {
        key: InstanceKey::new("default", "cam-1"),
        slot: SlotId::new("cam-1", 0),
        from: Some(SlotOwner::Node(NODE.into())),
        to: None,
        connection_digest: None,
    };
    table.settle(&[release], Some(Duration::from_secs(3)));
    table.observe([own(&[(0, NODE)])]);
    assert!(owners(&table).is_empty());
    assert_eq!(unwritten(&table, &[(0, NODE)]), ["0:node-a>"]);
}

#[test]
fn an_instance_that_is_made_again_has_the_slots_that_containers_have() {
    let mut table = looked(&[], &[]);
    claim(&mut table, &cam(), "cam-0").unwrap();
    for uses in [vec![], vec![container("cam-0", "cam-1-1")]] {
        table.observe([]);
        table.confirm(uses, table.arrivals(), Duration::from_secs(5));
        table.observe([own(&[])]);
        assert_eq!(owners(&table), ["1=C:cam-0:node-a"]);
    }
    // No container has had it for long.
    table.observe([]);
    table.confirm(vec![], table.arrivals(), Duration::from_secs(60));
    table.observe([own(&[])]);
    assert!(owners(&table).is_empty());
}

#[test]
fn what_others_wrote_is_left_alone_and_keeps_its_slot() {
    let mut table = looked(&[(0, "node-b"), (1, NODE)], &[]);
    let shown = [(0, "node-b"), (1, NODE), (7, "node-c")];
    assert!(unwritten(&table, &shown).is_empty());
    let refused = claim(&mut table, &instance("cam-1"), "cam-1-0").unwrap_err();
    assert!(matches!(refused, ClaimError::HeldElsewhere { .. }));
    // Also where a container has the slot: two looks tell that it has two holders.
    table.observe([own(&[(0, "node-b"), (1, "node-b")])]);
    assert!(unwritten(&table, &[(0, "node-b"), (1, "node-b")]).is_empty());
    assert_eq!(
        table
            .adoptions(&[container("cam-1-1", "cam-1-1")])
            .twice
            .len(),
        1
    );
}

#[test]
fn a_device_that_others_may_get_has_its_holders_written_first() {
    let mut table = looked(&[], &[]);
    claim(&mut table, &instance("cam-1"), "cam-1-0").unwrap();
    table.observe([observed("cam-1", 2, &[])]);
    assert_eq!(owners(&table), ["0=node-a"]);
    assert_eq!(unwritten(&table, &[]), ["0:>node-a"]);
    // From then on the Instance says who holds it.
    table.observe([observed("cam-1", 2, &[(0, NODE)])]);
    table.observe([observed("cam-1", 2, &[])]);
    assert!(owners(&table).is_empty() && unwritten(&table, &[]).is_empty());
    // And back: what it says is remembered.
    table.observe([own(&[(1, NODE)])]);
    table.observe([own(&[])]);
    assert_eq!(owners(&table), ["1=node-a"]);
}

#[test]
fn a_container_is_told_what_its_slot_was_given_with_and_not_what_the_one_before_was() {
    let mut observed = own(&[(0, NODE)]);
    observed.told = BTreeMap::from([(0, "old".to_owned())]);
    let mut table = SlotTable::new(NODE);
    table.observe([observed]);
    table.confirm(vec![], table.arrivals(), Duration::ZERO);
    let slot = SlotId::new("cam-1", 0);
    assert_eq!(table.told(&slot).unwrap(), "old");
    claim(&mut table, &instance("cam-1"), "cam-1-0").unwrap();
    assert_eq!(table.told(&slot).unwrap(), "old", "the same container");
    let another = plan(&table, &instance("cam-1"), &["cam-1-0"]).unwrap();
    let with_digest = SlotChange {
        connection_digest: Some("new".to_owned()),
        ..another.requests[0][0].clone()
    };
    table.settle(&[with_digest], Some(Duration::from_secs(3)));
    assert_eq!(table.told(&slot).unwrap(), "new");
    assert_eq!(unwritten(&table, &[(0, NODE)]), ["0:node-a>node-a"]);
}

#[test]
fn an_id_that_a_container_has_of_a_device_that_is_gone_is_no_other_device_s() {
    let ids = |table: &SlotTable| -> Vec<String> {
        let listed = table.configuration_list(&"cam".into()).into_iter();
        listed.map(|slot| slot.id.to_string()).collect()
    };
    assert_eq!(ids(&looked(&[], &[])), ["cam-0"]);
    let gone = container("cam-0", "cam-9-0");
    // An agent that has just started lists it before it knows of the container.
    let mut table = looked(&[], std::slice::from_ref(&gone));
    assert_eq!(ids(&table), ["cam-1"]);
    assert!(claim(&mut table, &cam(), "cam-0").is_err());
    assert!(claim(&mut table, &cam(), "cam-1").is_ok());
    // One that knows of it gets the other device later.
    let mut table = SlotTable::new(NODE);
    table.confirm(vec![gone], 0, Duration::from_secs(1));
    table.observe([own(&[])]);
    assert_eq!(ids(&table), ["cam-1"]);
}
