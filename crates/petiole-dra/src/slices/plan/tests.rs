use super::*;
use k8s_openapi::{
    api::resource::v1::{CapacityRequestPolicy, DeviceCapacity},
    apimachinery::pkg::apis::meta::v1::Time,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn source() -> Source {
    Source {
        driver: "d.example".to_owned(),
        owner: Some(OwnerReference {
            name: "edge".to_owned(),
            uid: "n".to_owned(),
            ..OwnerReference::default()
        }),
    }
}

fn device(n: usize) -> Device {
    Device {
        name: format!("d{n}"),
        ..Device::default()
    }
}

fn tainted(n: usize, time_added: Option<Time>) -> Device {
    let taint = DeviceTaint {
        key: "example/off".to_owned(),
        value: None,
        effect: "NoSchedule".to_owned(),
        time_added,
    };
    Device {
        taints: Some(vec![taint]),
        ..device(n)
    }
}

fn pool(devices: impl IntoIterator<Item = Device>) -> Pool {
    Pool {
        name: "edge".to_owned(),
        reach: Reach::AllNodes,
        devices: devices.into_iter().collect(),
    }
}

fn plan_of(pools: &[Pool], stored: &Stored) -> Vec<Write> {
    plan(&source(), pools, stored)
}

/// Does what the API server does.
fn apply(write: Write, stored: &mut Stored) {
    let name = write.slice().metadata.name.clone().unwrap();
    let was_there = match write {
        Write::Delete(_) => stored.slices.remove(&name).is_some(),
        Write::Update(slice) => stored.slices.insert(name, slice).is_some(),
        Write::Create(slice) => stored.slices.insert(name, slice).is_none(),
    };
    assert!(was_there, "no such slice, or there already");
}

fn stored(pools: &[Pool]) -> Stored {
    let mut stored = Stored::default();
    for write in plan_of(pools, &stored) {
        apply(write, &mut stored);
    }
    assert_eq!(plan_of(pools, &stored), []);
    stored
}

/// Returns the devices that the scheduler uses: those of the highest generation, if all its slices are there.
fn usable(stored: &Stored) -> Option<BTreeSet<String>> {
    let slices = stored.slices.values();
    let generation = slices.clone().map(|s| s.spec.pool.generation).max()?;
    let newest: Vec<_> = slices
        .filter(|s| s.spec.pool.generation == generation)
        .collect();
    let count = usize::try_from(newest[0].spec.pool.resource_slice_count).unwrap();
    let is_whole = newest.len() == count;
    let devices = newest.into_iter().flat_map(devices_of);
    is_whole.then(|| devices.map(|d| d.name.clone()).collect())
}

#[test]
fn a_pool_is_created_whole_even_without_devices() {
    let writes = plan_of(&[pool([])], &Stored::default());
    let [Write::Create(slice)] = writes.as_slice() else {
        panic!("{writes:?}");
    };
    assert!(
        slice
            .metadata
            .name
            .as_ref()
            .unwrap()
            .starts_with("00000-d.example-")
    );
    assert_eq!(
        slice.metadata.owner_references.as_ref().unwrap()[0].uid,
        "n"
    );
    assert_eq!(slice.spec.node_name.as_deref(), Some("edge"));
    assert_eq!((slice.spec.all_nodes, &slice.spec.devices), (None, &None));
    assert_eq!(
        (
            slice.spec.pool.generation,
            slice.spec.pool.resource_slice_count
        ),
        (1, 1)
    );
    let shared = Source {
        owner: None,
        ..source()
    };
    let [Write::Create(slice)] = &*plan(&shared, &[pool([])], &Stored::default()) else {
        panic!("a shared pool has no slice");
    };
    assert_eq!(
        (&slice.spec.node_name, slice.spec.all_nodes),
        (&None, Some(true))
    );
    assert_eq!(slice.metadata.owner_references, None);
}

#[test]
fn a_foreign_slice_with_numbers_at_their_end_is_deleted() {
    let wanted = [pool([device(0)])];
    let mut have = stored(&wanted);
    let mut slice = have.slices.values().next().unwrap().clone();
    slice.metadata.name = Some(source().name("edge", usize::MAX));
    slice.spec.pool.generation = i64::MAX;
    have.slices
        .insert(slice.metadata.name.clone().unwrap(), slice);
    for write in plan_of(&wanted, &have) {
        apply(write, &mut have);
    }
    assert_eq!(usable(&have), Some(BTreeSet::from(["d0".to_owned()])));
    assert_eq!(plan_of(&wanted, &have), []);
}

#[test]
fn a_change_of_one_slice_is_one_write_and_keeps_the_generation() {
    let mut have = stored(&[pool((0..100).map(device))]);
    let mut devices: Vec<_> = (0..100).map(device).collect();
    devices[70] = tainted(70, None);
    let writes = plan_of(&[pool(devices.clone())], &have);
    let [Write::Update(slice)] = writes.as_slice() else {
        panic!("{writes:?}");
    };
    assert_eq!(
        (slice.spec.pool.generation, devices_of(slice).count()),
        (1, 36)
    );
    apply(writes[0].clone(), &mut have);
    // The server sets the time, which is kept as long as the taint stays.
    let time: Time = serde_json::from_str("\"2026-01-02T03:04:05Z\"").unwrap();
    for slice in have.slices.values_mut() {
        let devices = slice.spec.devices.iter_mut().flatten();
        let taints = devices.flat_map(|device| &mut device.taints);
        taints
            .flatten()
            .for_each(|taint| taint.time_added = Some(time.clone()));
    }
    assert_eq!(plan_of(&[pool(devices.clone())], &have), []);
    devices[71] = tainted(71, None);
    let writes = plan_of(&[pool(devices)], &have);
    let devices: Vec<_> = devices_of(writes[0].slice()).collect();
    assert_eq!((writes.len(), devices[6]), (1, &tainted(70, Some(time))));
    assert_eq!(*devices[7], tainted(71, None));
}

#[test]
fn an_amount_as_the_server_writes_it_is_no_difference() {
    let with = |value: &str, default: &str| {
        let policy = CapacityRequestPolicy {
            default: Some(Quantity(default.to_owned())),
            ..CapacityRequestPolicy::default()
        };
        let capacity = DeviceCapacity {
            value: Quantity(value.to_owned()),
            request_policy: Some(policy),
        };
        let mut device = device(0);
        device.capacity = Some([("slots".to_owned(), capacity)].into());
        pool([device])
    };
    let have = stored(&[with("2k", "1")]);
    assert_eq!(plan_of(&[with("2000", "1")], &have), []);
    assert_eq!(plan_of(&[with("2000", "2")], &have).len(), 1);
}

#[test]
fn a_list_that_is_empty_is_no_difference_to_one_that_the_server_did_not_keep() {
    let have = stored(&[pool([device(0)])]);
    let mut empty = device(0);
    empty.attributes = Some(BTreeMap::new());
    empty.capacity = Some(BTreeMap::new());
    empty.taints = Some(vec![]);
    assert_eq!(plan_of(&[pool([empty])], &have), []);
}

#[test]
fn a_device_that_comes_and_goes_at_the_edge_of_a_slice_is_one_write() {
    let have = stored(&[pool((0..65).map(device))]);
    let writes = plan_of(&[pool((0..64).map(device))], &have);
    assert!(
        matches!(writes.as_slice(), [Write::Update(_)]),
        "{writes:?}"
    );
    // A pool that shrinks further gives the slice up, and nobody sees a part of it.
    let have = stored(&[pool((0..129).map(device))]);
    let writes = plan_of(&[pool((0..10).map(device))], &have);
    let kinds = writes.iter().map(|write| matches!(write, Write::Delete(_)));
    assert_eq!(kinds.collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn slices_that_no_pool_has_are_deleted() {
    let other = Pool {
        name: "other".to_owned(),
        ..pool([device(7)])
    };
    let mut have = stored(&[pool([device(0)]), other]);
    // A slice with a name of another scheme, and one of an older generation.
    let slice = have.slices.values().next().unwrap().clone();
    for (name, generation) in [("by-hand", 1), ("00001-old", 0)] {
        let mut slice = slice.clone();
        slice.metadata.name = Some(name.to_owned());
        slice.spec.pool.generation = generation;
        have.slices.insert(name.to_owned(), slice);
    }
    let writes = plan_of(&[pool([device(0)])], &have);
    assert_eq!(writes.len(), 3);
    for write in writes {
        assert!(matches!(&write, Write::Delete(_)), "{write:?}");
        apply(write, &mut have);
    }
    assert_eq!(usable(&have), Some(["d0".to_owned()].into()));
}

proptest! {
    /// Whatever the devices were and are, the scheduler sees the old ones, none or the new ones at each step, and devices stay
    /// where they are unless their slice goes.
    #[test]
    fn the_scheduler_never_sees_a_part(
        before in prop::collection::btree_set(0_usize..400, 0..300),
        after in prop::collection::btree_set(0_usize..400, 0..300),
        wiped in prop::option::of(0_usize..6),
    ) {
        let mut have = stored(&[pool(before.iter().copied().map(device))]);
        if let Some(name) = wiped.and_then(|n| have.slices.keys().nth(n).cloned()) {
            have.slices.remove(&name);
        }
        let old = usable(&have);
        let wanted = [pool(after.iter().copied().map(device))];
        let new: BTreeSet<String> = after.iter().map(|n| device(*n).name).collect();
        for write in plan_of(&wanted, &have) {
            apply(write, &mut have);
            let seen = usable(&have);
            prop_assert!(seen.is_none() || seen == old || seen.as_ref() == Some(&new), "{seen:?}");
        }
        prop_assert_eq!(usable(&have), Some(new));
        prop_assert!(have.slices.values().all(|slice| devices_of(slice).count() <= 64));
        prop_assert!(have.slices.len() <= after.len() / 64 + 2);
        prop_assert_eq!(plan_of(&wanted, &have), []);
    }
}

#[test]
fn the_slices_of_a_pool_of_which_nothing_is_known_stay_as_they_are() {
    let stored = stored(&[pool([device(1)])]);
    let unknown = Pool {
        reach: Reach::AsTheyAre,
        ..pool([])
    };
    assert_eq!(plan_of(&[unknown], &stored), []);
    assert_eq!(plan_of(&[], &stored).len(), 1);
}
