//! Tests of the content of Instances, of their number, and of who writes them.
use super::*;

#[test]
fn an_edited_configuration_takes_effect_without_delete_and_create() {
    let mut fixture = Fixture::new("");
    fixture.see(&["a"], true);
    fixture.settle();
    fixture.configure(", capacity: 5, brokerProperties: {A: b}");
    let settled = fixture.settle();
    assert_eq!((settled.created, settled.deleted), (0, 0));
    assert_eq!(fixture.only().spec.capacity, 5);
    assert_eq!(fixture.only().spec.broker_properties["A"], "b");
}

#[test]
fn two_devices_with_one_short_digest_get_two_instances_and_keep_them() {
    let mut fixture = Fixture::new("");
    fixture.see(&["foo0"], true);
    fixture.settle();
    // As if foo1 had foo0's digest: the short name of foo0 belongs to somebody else.
    let mut taken = fixture
        .instances
        .remove(&instance_key("cam-8120fe"))
        .unwrap();
    let annotations = Arc::make_mut(&mut taken)
        .metadata
        .annotations
        .as_mut()
        .unwrap();
    annotations.insert("akri.sh/device-id".to_owned(), "other".to_owned());
    fixture.instances.insert(instance_key("cam-8120fe"), taken);
    fixture.see(&["foo0"], false);
    fixture.settle();
    assert_eq!(fixture.names().len(), 2);
    assert!(fixture.names().contains(&"cam-8120fe"));
    assert_eq!(
        fixture.names().iter().map(|n| n.len()).max(),
        Some("cam-".len() + 10)
    );
    assert!(fixture.settle().is_nothing());
}

#[test]
fn an_instance_that_akri_made_is_taken_over() {
    let mut fixture = Fixture::new("");
    fixture.see(&["foo0"], true);
    fixture.settle();
    let mut akris = fixture.only().clone();
    akris.metadata.annotations = None;
    akris.status = None;
    fixture
        .instances
        .insert(instance_key("cam-8120fe"), Arc::new(akris));
    fixture.settle();
    assert_eq!(fixture.names(), ["cam-8120fe"]);
    assert_eq!(
        fixture.only().metadata.annotations.as_ref().unwrap()["akri.sh/device-id"],
        "foo0"
    );
}

#[test]
fn devices_beyond_the_limit_are_left_out_and_the_configuration_says_so() {
    let mut fixture = Fixture::new(", maxInstances: 2");
    fixture.see(&["a", "b", "c", "d"], true);
    fixture.settle();
    assert_eq!(fixture.instances.len(), 2);
    assert_eq!(fixture.problems(), ["TooManyDevices"]);

    let mut fixture = Fixture::new("");
    fixture.max_instances = 6;
    fixture.see(&["a", "b", "c", "d"], true);
    fixture.settle();
    assert_eq!(fixture.instances.len(), 3);
    assert_eq!(fixture.problems(), ["TooManyDevices"]);
}

#[test]
fn a_capacity_that_a_node_cannot_offer_for_all_devices_is_reported() {
    let mut fixture = Fixture::new(", capacity: 10000");
    fixture.see(&["a", "b"], true);
    fixture.settle();
    assert_eq!(fixture.problems(), [""; 0]);
    fixture.see(&["a", "b", "c"], true);
    fixture.settle();
    assert_eq!(fixture.problems(), ["TooManySlots"]);
}

#[test]
fn a_limit_that_was_lowered_lets_nobody_in_before_enough_are_gone() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 0");
    fixture.see(&["a", "b", "c", "d"], true);
    fixture.settle();
    fixture.max_instances = 2;
    fixture.see(&["b", "c", "d", "e"], true);
    fixture.settle();
    assert_eq!(fixture.instances.len(), 3);
}

#[test]
fn a_device_whose_identity_changes_has_one_instance_in_the_end() {
    let mut fixture = Fixture::new("");
    fixture.see(&["a"], true);
    fixture.settle();
    fixture.accepted().scope = Scope::Node;
    let shared = fixture.names()[0].to_owned();
    fixture.settle();
    assert_eq!(fixture.names().len(), 1);
    assert_ne!(fixture.names()[0], shared);
}

#[test]
fn a_scoped_address_is_never_stored() {
    let mut fixture = Fixture::new("");
    let mut device = Device::new("a");
    device
        .properties
        .insert("ADDR".to_owned(), "fe80::1%eth0".to_owned());
    device
        .properties
        .insert("DISCOUNT".to_owned(), "10%off".to_owned());
    fixture.see_devices([device], true);
    fixture.settle();
    let stored: Vec<_> = fixture.only().spec.broker_properties.keys().collect();
    assert_eq!(stored, ["DISCOUNT"]);
}
