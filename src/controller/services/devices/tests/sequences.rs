//! Sequences that change the names of devices.
use super::*;

#[test]
fn without_a_network_there_is_no_name_and_what_there_was_goes() {
    let mut cluster = Cluster::with(&[device("cam-1", "10.0.0.7:80", true)]);
    cluster.settle();
    let off = plan(&cluster.world, &DeviceNetworks::default());
    let done: Vec<_> = off.actions.iter().map(words).collect();
    assert_eq!(
        done,
        [
            "delete Service default/cam-1-device",
            "delete Service default/cam-devices",
            "delete EndpointSlice default/cam-1-device-ipv4-80-0",
            "delete EndpointSlice default/cam-devices-ipv4-80-0",
        ]
    );
    assert!(
        off.refused[&key("cam")]
            .message
            .contains("no network is allowed")
    );
}

#[test]
fn a_device_that_comes_and_goes_changes_its_readiness_alone() {
    let mut cluster = Cluster::with(&[device("cam-1", "10.0.0.7:80", true)]);
    cluster.settle();
    for is_seen in [false, true, false] {
        cluster.shows(&device("cam-1", "10.0.0.7:80", is_seen));
        assert_eq!(
            cluster.settle(),
            [
                "update EndpointSlice default/cam-1-device-ipv4-80-0",
                "update EndpointSlice default/cam-devices-ipv4-80-0",
            ]
        );
    }
    assert!(
        cluster
            .slices()
            .iter()
            .all(|slice| slice.ends_with("(10.0.0.7)"))
    );
    // Its Instance goes: the garbage collector removes its Service, but its address goes at once.
    cluster.world.instances.clear();
    assert_eq!(
        cluster.settle(),
        [
            "delete EndpointSlice default/cam-1-device-ipv4-80-0",
            "delete EndpointSlice default/cam-devices-ipv4-80-0",
        ]
    );
}

#[test]
fn a_device_that_moves_is_followed_and_one_that_moves_into_the_cluster_loses_its_name() {
    let mut cluster = Cluster::with(&[device("cam-1", "10.0.0.7:80", true)]);
    cluster.settle();
    cluster.shows(&device("cam-1", "[fd00::7]:81", true));
    cluster.settle();
    assert_eq!(
        cluster.slices(),
        [
            "default/cam-1-device-ipv6-81-0 fd00::7",
            "default/cam-devices-ipv6-81-0 fd00::7",
        ]
    );
    cluster.shows(&device("cam-1", "10.244.0.9:80", true));
    let done = cluster.settle();
    assert_eq!(
        done,
        [
            "delete Service default/cam-1-device",
            "delete EndpointSlice default/cam-1-device-ipv6-81-0",
            "delete EndpointSlice default/cam-devices-ipv6-81-0",
        ]
    );
}

#[test]
fn a_configuration_that_asks_no_more_has_no_name_and_another_namespace_keeps_its_own() {
    let mut cluster = Cluster::new(&["default", "other"]);
    for namespace in ["default", "other"] {
        let mut device = device("cam-1", "10.0.0.7:80", true);
        device["metadata"]["namespace"] = namespace.into();
        device["metadata"]["uid"] = format!("uid-of-1-in-{namespace}").into();
        cluster.shows(&device);
    }
    cluster.settle();
    assert_eq!(cluster.slices().len(), 4);
    let configuration = cluster.world.configurations.get_mut(&key("cam")).unwrap();
    Arc::make_mut(configuration).spec.device_service = false;
    cluster.settle();
    let in_other = |key: &ObjectKey| key.namespace == "other";
    assert_eq!(
        cluster
            .world
            .services
            .keys()
            .filter(|k| in_other(k))
            .count(),
        2
    );
    assert!(cluster.world.services.keys().all(in_other));
    assert!(cluster.world.slices.keys().all(in_other));
    cluster.asks(true);
    cluster.settle();
    assert_eq!(cluster.slices().len(), 4);
}

#[test]
fn what_belongs_to_a_configuration_that_cannot_be_read_or_is_going_stays() {
    let mut cluster = Cluster::with(&[device("cam-1", "10.0.0.7:80", true)]);
    cluster.settle();
    let mut going = Cluster {
        world: cluster.world.clone(),
        uids: 0,
    };
    cluster.world.configurations.clear();
    assert!(cluster.plan().actions.is_empty());
    let configuration = going.world.configurations.get_mut(&key("cam")).unwrap();
    let time =
        k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(crate::controller::fixtures::at(0));
    Arc::make_mut(configuration).metadata.deletion_timestamp = Some(time);
    assert!(going.plan().actions.is_empty());
}

#[test]
fn an_object_of_somebody_else_is_left_alone_and_gets_no_endpoints() {
    let mut cluster = Cluster::with(&[device("cam-1", "10.0.0.7:80", true)]);
    let foreign = OwnedService {
        meta: Meta {
            owner: Some("other".to_owned()),
            ..Meta::default()
        },
        spec: ServiceSpec::default(),
    };
    cluster
        .world
        .services
        .insert(key("cam-1-device"), Arc::new(foreign));
    let done = cluster.settle();
    assert!(done.contains(&"report Service default/cam-1-device of default/cam-1".to_owned()));
    assert_eq!(cluster.slices(), ["default/cam-devices-ipv4-80-0 10.0.0.7"]);
    // It is gone, and its name is free.
    cluster.world.services.remove(&key("cam-1-device"));
    cluster.settle();
    assert_eq!(cluster.slices().len(), 2);
    // Somebody makes a Service of that name while ours is deleted: our slice of it goes.
    let taken = cluster
        .world
        .services
        .get_mut(&key("cam-1-device"))
        .unwrap();
    Arc::make_mut(taken).meta.owner = None;
    let done = cluster.settle();
    assert!(done.contains(&"delete EndpointSlice default/cam-1-device-ipv4-80-0".to_owned()));
    // A slice of somebody else with the name of ours.
    let slice = cluster.world.slices.values_mut().next().unwrap();
    Arc::make_mut(slice).meta.owner = Some("other".to_owned());
    let done = cluster.settle();
    let expected = "report EndpointSlice default/cam-devices-ipv4-80-0 of default/cam";
    assert!(done.contains(&expected.to_owned()), "{done:?}");
}

#[test]
fn what_somebody_changes_is_mended() {
    let mut cluster = Cluster::with(&[device("cam-1", "10.0.0.7:80", true)]);
    cluster.settle();
    let slice = cluster
        .world
        .slices
        .get_mut(&key("cam-1-device-ipv4-80-0"))
        .unwrap();
    let endpoints = &mut Arc::make_mut(slice).content.endpoints;
    endpoints.insert("10.244.0.1".to_owned(), true);
    let service = cluster.world.services.get_mut(&key("cam-devices")).unwrap();
    Arc::make_mut(service).meta.labels.clear();
    assert_eq!(
        cluster.settle(),
        [
            "update EndpointSlice default/cam-1-device-ipv4-80-0",
            "update Service default/cam-devices",
        ]
    );
    assert_eq!(
        cluster.slices()[0],
        "default/cam-1-device-ipv4-80-0 10.0.0.7"
    );
}
