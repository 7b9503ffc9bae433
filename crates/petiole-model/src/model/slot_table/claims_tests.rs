use super::{
    tests::{observed, table},
    *,
};
use crate::model::{
    instance_name::{InstanceKey, InstanceName},
    slot::SlotId,
};
use std::{collections::BTreeSet, time::Duration};

const UID: &str = "u-1";

fn by_claims(instance: &str, capacity: u32, usage: &[(u32, &str)]) -> ObservedSlots {
    ObservedSlots {
        is_by_claims: true,
        ..observed(instance, capacity, usage)
    }
}

fn planned(table: &SlotTable, devices: &[&str]) -> Result<Vec<String>, ClaimError> {
    let devices: Vec<InstanceName> = devices.iter().map(|name| (*name).into()).collect();
    let claim = table.plan_resource_claim(UID, &devices)?;
    let shown = |change: &SlotChange| format!("{}={}", change.slot, change.to.as_ref().unwrap());
    Ok(claim.changes().map(shown).collect())
}

#[test]
fn a_resource_claim_gets_a_slot_of_each_device_and_the_same_ones_again() {
    let usage = [
        (0, "node-b"),
        (1, "claim:u-1:node-a"),
        (2, "claim:u-2:node-a"),
    ];
    let table = table([by_claims("cam-1", 5, &usage), by_claims("cam-2", 1, &[])]);
    let mine = [
        "cam-1-1=claim:u-1:node-a",
        "cam-2-0=claim:u-1:node-a",
        "cam-1-3=claim:u-1:node-a",
    ];
    assert_eq!(planned(&table, &["cam-1", "cam-2", "cam-1"]).unwrap(), mine);
}

#[test]
fn a_resource_claim_waits_for_a_device_whose_slots_are_all_taken_and_for_one_that_is_being_freed() {
    let usage = [(0, "claim:u-2:node-b")];
    let mut table = table([by_claims("cam-1", 1, &usage)]);
    let full = ClaimError::Full {
        instance: "cam-1".into(),
    };
    assert_eq!(planned(&table, &["cam-1"]), Err(full));
    let slot = SlotId::new("cam-1", 0);
    let freed = SlotChange {
        key: InstanceKey::new("default", "cam-1"),
        slot: slot.clone(),
        from: table.observed_owner(&slot).cloned(),
        to: None,
        connection_digest: None,
    };
    table.begin(std::slice::from_ref(&freed));
    let mut as_it_was = table.clone();
    as_it_was.settle(std::slice::from_ref(&freed), None);
    assert!(matches!(
        planned(&as_it_was, &["cam-1"]),
        Err(ClaimError::Full { .. })
    ));
    table.settle(&[freed], Some(Duration::ZERO));
    assert_eq!(planned(&table, &["cam-1"]).unwrap().len(), 1);
}

#[test]
fn resources_offer_nothing_of_a_device_that_claims_have_and_keep_what_their_containers_hold() {
    let usage = [(0, "node-a"), (1, "C:cam-0:node-a")];
    let table = table([by_claims("cam-1", 4, &usage)]);
    let instance = table.instance_list(&"cam-1".into());
    let configuration = table.configuration_list(&"cam".into());
    assert_eq!((instance.len(), configuration.len()), (4, 1));
    let mut listed = instance.iter().chain(&configuration);
    assert!(listed.all(|slot| !slot.is_usable));
    let claim = |resource: &Resource, id: &str| {
        table.plan_claim(resource, &[vec![id.to_owned()]], &BTreeSet::new())
    };
    let own = Resource::Instance("cam-1".into());
    assert!(claim(&own, "cam-1-0").is_ok(), "its container starts again");
    let by_claims = ClaimError::ByClaims {
        instance: "cam-1".into(),
    };
    assert_eq!(claim(&own, "cam-1-2"), Err(by_claims));
    assert!(claim(&Resource::Configuration("cam".into()), "cam-0").is_ok());
}

#[test]
fn a_slot_of_a_claim_is_no_slot_of_a_resource() {
    let table = table([observed("cam-1", 2, &[(0, "claim:u-1:node-a")])]);
    let own = Resource::Instance("cam-1".into());
    let taken = table.plan_claim(&own, &[vec!["cam-1-0".to_owned()]], &BTreeSet::new());
    assert!(
        matches!(taken, Err(ClaimError::HeldHere { .. })),
        "{taken:?}"
    );
    let usable = table.instance_list(&"cam-1".into());
    assert_eq!(
        usable.iter().map(|slot| slot.is_usable).collect::<Vec<_>>(),
        [false, true]
    );
}

#[test]
fn what_a_claim_has_by_its_record_is_claimed_again_for_it() {
    let one = Use {
        ids: ["cam-1-1".parse().unwrap()].into(),
        claim: Some(UID.to_owned()),
        ..Use::default()
    };
    let free = table([by_claims("cam-1", 2, &[])]);
    let [change] = free
        .adoptions(std::slice::from_ref(&one))
        .changes
        .try_into()
        .unwrap();
    assert_eq!(change.to.unwrap().to_string(), "claim:u-1:node-a");
    let same = table([by_claims("cam-1", 2, &[(1, "claim:u-1:node-a")])]);
    assert_eq!(
        same.adoptions(std::slice::from_ref(&one)),
        Adoptions::default()
    );
    let another = table([by_claims("cam-1", 2, &[(1, "node-b")])]);
    assert_eq!(another.adoptions(&[one]).twice.len(), 1);
}

/// A look at the records may have begun before the kubelet unprepared the claim, and end after that.
#[test]
fn a_look_that_began_before_a_claim_ended_does_not_give_it_its_slot_again() {
    let own = ObservedSlots {
        is_own: true,
        ..by_claims("cam-1", 1, &[(0, "claim:u-1:node-a")])
    };
    let mut table = table([own]);
    let seen = Use {
        ids: ["cam-1-0".parse().unwrap()].into(),
        claim: Some(UID.to_owned()),
        ..Use::default()
    };
    let at = Duration::from_secs;
    table.confirm(vec![seen.clone()], table.arrivals(), at(1));
    let held = table.held().remove(0);
    table.settle_own(&[held.clone().release()], Some(at(6)));
    table.confirm(vec![seen.clone()], table.arrivals(), at(5));
    assert!(table.is_free(&held.slot));
    assert!(table.is_freed_after(&held.slot, at(5)) && !table.is_freed_after(&held.slot, at(7)));
    table.confirm(vec![seen], table.arrivals(), at(7));
    assert!(!table.is_free(&held.slot), "a later look is right");
}

/// The agent was started again with claims switched off, while a Pod has one.
#[test]
fn a_claim_that_no_record_names_any_more_keeps_the_slot_that_its_instance_shows() {
    let own = ObservedSlots {
        is_own: true,
        ..observed("cam-1", 1, &[(0, "claim:u-1:node-a")])
    };
    let mut table = SlotTable::new("node-a");
    table.observe([own]);
    table.confirm(vec![], table.arrivals(), Duration::from_secs(1));
    let own = Resource::Instance("cam-1".into());
    let taken = table.plan_claim(&own, &[vec!["cam-1-0".to_owned()]], &BTreeSet::new());
    assert!(
        matches!(taken, Err(ClaimError::HeldHere { .. })),
        "{taken:?}"
    );
    assert_eq!(table.held().len(), 1);
}

/// Pods of several nodes may have one claim. One node holds the slot, and when it ends there, the next look finds it free.
#[test]
fn a_claim_that_pods_of_two_nodes_have_takes_one_slot() {
    let usage = [(0, "claim:u-1:node-b")];
    let one = table([by_claims("cam-1", 2, &usage)]);
    assert_eq!(
        planned(&one, &["cam-1"]).unwrap(),
        ["cam-1-0=claim:u-1:node-b"]
    );
    let used = Use {
        ids: ["cam-1-0".parse().unwrap()].into(),
        claim: Some(UID.to_owned()),
        ..Use::default()
    };
    let adoptions = one.adoptions(std::slice::from_ref(&used));
    assert_eq!((adoptions.changes, adoptions.twice), (vec![], vec![]));
    let ended = table([by_claims("cam-1", 2, &[])]);
    let adopted = ended.adoptions(&[used]).changes;
    let to = adopted
        .iter()
        .map(|change| change.to.as_ref().unwrap().to_string());
    assert!(to.eq(["claim:u-1:node-a".to_owned()]), "{adopted:?}");
}
