use super::*;
use crate::controller::fixtures::{configuration, instance, key, ready};
use serde_json::json;

/// A cluster with a camera of capacity 4 that two nodes see, whose Configuration has these further fields.
fn world(spec: Value, of_instance: Value) -> World {
    let mut fields = json!({"allocation": "DRA", "capacity": 4, "gracePeriodSeconds": 60});
    let Value::Object(spec) = spec else {
        panic!("{spec} is no object")
    };
    fields.as_object_mut().unwrap().extend(spec);
    let mut object = json!({"spec": {
        "configurationName": "cam", "cdiName": "akri.sh/cam=1", "capacity": 4, "shared": true, "nodes": ["a", "b"],
        "brokerProperties": {"ADDRESS": "192.168.1.20", "A-B": "x", "TXT": "t".repeat(65)},
        "deviceUsage": {},
    }});
    json_patch::merge(&mut object, &of_instance);
    let mut world = World::default()
        .with_nodes([("a", ready()), ("b", ready())])
        .with_configuration(configuration("cam", json!({"spec": fields})));
    world
        .instances
        .insert(key("cam-1"), Arc::new(instance("cam-1", object)));
    world
}

fn planned(world: &World, before: Option<&Offered>) -> Offered {
    plan(
        world,
        &"akri.sh".parse().unwrap(),
        before,
        &Recalled::default(),
    )
}

fn offered(world: &World) -> Offered {
    planned(world, None)
}

fn only(world: &World) -> Device {
    let offered = offered(world);
    let [pool] = offered.pools.try_into().unwrap();
    assert_eq!(
        (&*pool.name, &pool.reach),
        ("default/cam", &Reach::OfEachDevice)
    );
    let [device] = pool.devices.try_into().unwrap();
    device
}

#[test]
fn a_device_that_two_nodes_see_is_offered_to_both_with_its_slots_and_what_fits_of_its_properties() {
    let device = only(&world(json!({}), json!({})));
    let found = serde_json::to_value(&device).unwrap();
    assert_eq!(found["name"], "cam-1");
    let names: Vec<_> = device.attributes.iter().flat_map(BTreeMap::keys).collect();
    assert_eq!(
        names,
        [
            "ADDRESS",
            "configuration",
            "handler",
            "instance",
            "namespace"
        ]
    );
    assert_eq!(found["attributes"]["ADDRESS"]["string"], "192.168.1.20");
    assert_eq!(found["allowMultipleAllocations"], true);
    assert_eq!(found["capacity"]["slots"]["value"], "4");
    assert_eq!(
        found["capacity"]["slots"]["requestPolicy"]["validValues"],
        json!(["1"])
    );
    let terms = &found["nodeSelector"]["nodeSelectorTerms"];
    assert_eq!(
        terms[0]["matchExpressions"],
        json!([{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a", "b"]}])
    );
    assert_eq!(device.taints, None);
}

#[test]
fn what_device_plugins_gave_away_is_not_offered_and_what_claims_have_is() {
    let usage = json!({"cam-1-0": "a", "cam-1-1": "C:cam-0:b", "cam-1-2": "claim:1:a"});
    let device = only(&world(json!({}), json!({"spec": {"deviceUsage": usage}})));
    assert_eq!(device.capacity.unwrap()[SLOTS].value.0, "2");
    let all = json!({"cam-1-0": "a", "cam-1-1": "a", "cam-1-2": "a", "cam-1-3": "b"});
    let device = only(&world(json!({}), json!({"spec": {"deviceUsage": all}})));
    assert_eq!(device.taints, Some(vec![taint(IN_USE)]));
}

#[test]
fn a_device_that_no_node_sees_gets_no_new_pods_and_evicts_none_however_long_it_is_not_seen() {
    let gone = |node: &str| json!({"name": node, "health": "Unhealthy", "lastTransitionTime": ""});
    let status = |nodes: Vec<Value>| {
        let condition = json!({
            "type": "Available", "status": "False", "reason": "NoNode", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z",
        });
        json!({"status": {"nodes": nodes, "conditions": [condition]}})
    };
    let of_one = only(&world(json!({}), status(vec![gone("a")])));
    assert_eq!(
        (of_one.node_name.as_deref(), of_one.taints),
        (Some("b"), None)
    );
    for when_gone in ["Keep", "Evict"] {
        let status = status(vec![gone("a"), gone("b")]);
        let device = only(&world(json!({"whenGone": when_gone}), status));
        assert_eq!(device.taints, Some(vec![taint(GONE)]), "{when_gone}");
        let selector = device.node_selector.unwrap();
        let expressions = selector.node_selector_terms[0].match_expressions.as_ref();
        assert_eq!(expressions.unwrap()[0].operator, "DoesNotExist");
    }
}

#[test]
fn a_configuration_has_a_class_with_its_resource_unless_plugins_have_its_devices() {
    let offered = offered(&world(json!({}), json!({})));
    let spec = offered.classes["akri.default.cam"].spec();
    assert_eq!(spec["extendedResourceName"], "akri.sh/cam");
    let expression = spec["selectors"][0]["cel"]["expression"].as_str().unwrap();
    assert!(
        expression.contains(r#"device.attributes["akri.sh"].configuration == "cam""#),
        "{expression}"
    );
    let plugins = world(json!({"allocation": "DevicePlugin"}), json!({}));
    assert_eq!(planned(&plugins, None), Offered::default());
}

#[test]
fn a_resource_is_that_of_one_class_however_many_configurations_want_it() {
    let resources = |world: &World, before: Option<&Offered>| {
        let classes = planned(world, before).classes.into_values();
        let resources = classes.map(|class| (class.of.to_string(), class.resource));
        resources
            .map(|(of, resource)| (of, resource.map_or_else(String::new, |its| its.to_string())))
            .collect::<BTreeMap<_, _>>()
    };
    let other = |name: &str, allocation: &str, resource: &str, created: &str| {
        let spec = json!({"allocation": allocation, "resourceName": resource});
        let metadata = json!({"creationTimestamp": created});
        configuration(name, json!({"spec": spec, "metadata": metadata}))
    };
    let created = |world: World, at: &str| {
        let spec = json!({"allocation": "DRA"});
        let object = json!({"spec": spec, "metadata": {"creationTimestamp": at}});
        world.with_configuration(configuration("cam", object))
    };
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    let both = |at: &str, other_at: &str, allocation: &str| {
        created(world(json!({}), json!({})), at).with_configuration(other(
            "tv",
            allocation,
            "akri.sh/cam",
            other_at,
        ))
    };
    let (cam, tv) = ("default/cam", "default/tv");
    // The older one has it, and keeps it beside one that is older still.
    let first = both(early, late, "DRA");
    assert_eq!(resources(&first, None)[cam], "akri.sh/cam");
    assert_eq!(resources(&first, None)[tv], "");
    let before = planned(&created(world(json!({}), json!({})), late), None);
    assert_eq!(resources(&both(late, early, "DRA"), None)[cam], "");
    let kept = resources(&both(late, early, "DRA"), Some(&before));
    assert_eq!((&*kept[cam], &*kept[tv]), ("akri.sh/cam", ""));
    // A replica that has just begun to act knows it from the API server.
    let recalled = Recalled::of(&before);
    let begun = plan(
        &both(late, early, "DRA"),
        &"akri.sh".parse().unwrap(),
        None,
        &recalled,
    );
    assert_eq!(
        begun.classes["akri.default.cam"].resource.as_deref(),
        Some("akri.sh/cam")
    );
    // Whoever is refused another one goes on with his own.
    let own = created(world(json!({}), json!({})), early);
    let own = own.with_configuration(other("tv", "DRA", "akri.sh/tv", late));
    let edited = resources(&first, Some(&planned(&own, None)));
    assert_eq!(edited[tv], "akri.sh/tv");
    // That of plugins counts, too, and that of an Instance.
    assert_eq!(resources(&both(late, early, "DevicePlugin"), None)[cam], "");
    let instance = created(world(json!({}), json!({})), early);
    let instance = instance.with_configuration(other("tv", "DRA", "akri.sh/cam-0a1b2c", late));
    assert_eq!(resources(&instance, None)[tv], "");
}

#[test]
fn a_device_with_one_slot_needs_no_capacity() {
    let device = only(&world(
        json!({"capacity": 1}),
        json!({"spec": {"capacity": 1}}),
    ));
    assert_eq!(
        (device.allow_multiple_allocations, device.capacity),
        (None, None)
    );
}

#[test]
fn a_device_whose_capacity_was_lowered_to_one_stays_shared() {
    let with = |capacity: u64, usage: Value| {
        let fields = json!({"spec": {"capacity": capacity, "deviceUsage": usage}});
        world(json!({"capacity": capacity}), fields)
    };
    let is_shared = |offered: &Offered| {
        let device = &offered.pools[0].devices[0];
        assert_eq!(
            device.allow_multiple_allocations.is_some(),
            device.capacity.is_some()
        );
        device.capacity.is_some()
    };
    let one = || json!({"cam-1-0": "claim:1:a"});
    let two = json!({"cam-1-0": "claim:1:a", "cam-1-1": "claim:2:a"});
    let before = offered(&with(1, two));
    assert!(is_shared(&before));
    let before = planned(&with(1, one()), Some(&before));
    assert!(is_shared(&before));
    // Its claim has ended, and the scheduler may have given the share to the next one already.
    let before = planned(&with(1, json!({})), Some(&before));
    assert!(is_shared(&before));
    // A replica that has just begun to act knows it from the API server.
    let prefixes = "akri.sh".parse().unwrap();
    let begun = |recalled: Recalled| plan(&with(1, one()), &prefixes, None, &recalled);
    assert!(is_shared(&begun(Recalled::of(&before))));
    assert!(!is_shared(&begun(Recalled::default())));
}

#[test]
fn a_configuration_that_cannot_be_read_just_now_keeps_what_was_offered_and_one_that_is_gone_does_not()
 {
    let mut world = world(json!({}), json!({}));
    let before = offered(&world);
    let (of, _) = world.configurations.pop_first().unwrap();
    assert_eq!(planned(&world, Some(&before)), Offered::default());
    world.unreadable.insert(of, "spec".to_owned());
    assert_eq!(planned(&world, Some(&before)), before);
    // One that has just been started does not know what it was, and leaves it as it is.
    let started = planned(&world, None);
    let names = |offered: &Offered| {
        (offered.pools.iter())
            .map(|pool| pool.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&started), names(&before));
    assert!(
        started
            .pools
            .iter()
            .all(|pool| pool.reach == Reach::AsTheyAre)
    );
    assert_eq!(
        started.kept_classes,
        before.classes.keys().cloned().collect()
    );
    assert_eq!(planned(&world, Some(&started)), started);
    // What it recalls of it is not forgotten by the next plan.
    let prefixes = "akri.sh".parse().unwrap();
    let recalled = Recalled::of(&before);
    let started = plan(&world, &prefixes, None, &recalled);
    assert_eq!(Recalled::of(&planned(&world, Some(&started))), recalled);
}
