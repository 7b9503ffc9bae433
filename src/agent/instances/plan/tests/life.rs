//! Devices come and go, and their Instances with them.
use super::*;

#[test]
fn a_device_becomes_an_instance_with_all_that_akri_writes() {
    let mut fixture = Fixture::new(", capacity: 3, brokerProperties: {MODE: night}");
    let mut device = Device::new("foo0");
    device
        .properties
        .insert("URL".to_owned(), "rtsp://x".to_owned());
    fixture.see_devices([device], false);
    fixture.settle();
    let instance = fixture.only();
    assert_eq!(instance.metadata.name.as_deref(), Some("cam-8120fe"));
    assert_eq!(
        instance.metadata.annotations.as_ref().unwrap()["akri.sh/device-id"],
        "foo0"
    );
    let labels: Vec<_> = instance.metadata.labels.iter().flatten().collect();
    assert_eq!(labels, [(&names::node_label(NODE), &String::new())]);
    assert_eq!(
        instance.spec,
        InstanceSpec {
            configuration_name: "cam".into(),
            cdi_name: "akri.sh/cam=8120fe".to_owned(),
            capacity: 3,
            broker_properties: [("MODE", "night"), ("URL", "rtsp://x")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
            shared: true,
            nodes: vec![NODE.into()],
            device_usage: BTreeMap::new(),
        }
    );
    assert_eq!(instance.status, None, "all is well");
    assert_eq!(fixture.plan().reports.of[&key("cam")].instances, 1);
}

#[test]
fn a_vanished_device_is_unhealthy_at_once_and_its_instance_goes_after_the_grace_period() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 60");
    fixture.see(&["a"], true);
    fixture.settle();
    fixture.uptime = 10;
    fixture.see(&[], true);
    assert_eq!(fixture.settle().wake_in, Some(Duration::from_secs(60)));
    assert_eq!(health(fixture.only()), "Unhealthy");
    fixture.uptime = 69;
    assert_eq!(fixture.settle().wake_in, Some(Duration::from_secs(1)));
    fixture.uptime = 70;
    fixture.settle();
    assert!(fixture.instances.is_empty());
}

#[test]
fn a_device_that_may_be_among_those_left_out_is_not_gone() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 0");
    fixture.see(&["a", "b"], true);
    fixture.settle();
    let discovery = |seen: &[&str]| DiscoveryState {
        set: Arc::new(DeviceSet {
            left_out: true,
            ..DeviceSet::complete([])
        }),
        seen: Arc::new(seen.iter().map(|id| DeviceId::new(*id)).collect()),
        ..DiscoveryState::default()
    };
    fixture.discoveries.insert(key("cam"), discovery(&[]));
    fixture.uptime = 100;
    assert!(fixture.settle().is_nothing());
    // One that was in an earlier set said goodbye.
    fixture.discoveries.insert(key("cam"), discovery(&["a"]));
    fixture.settle();
    let ids = fixture.instances.values().map(|i| device_id(i).unwrap());
    assert_eq!(ids.collect::<Vec<_>>(), [DeviceId::new("b")]);
}

#[test]
fn a_deletion_that_could_not_be_written_is_tried_again_at_once() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 60");
    fixture.see(&["a"], true);
    fixture.settle();
    fixture.see(&[], true);
    fixture.settle();
    fixture.uptime = 60;
    for _ in 0..3 {
        let planned = fixture.plan();
        let steps = fixture.merge(&planned.reports);
        assert!(matches!(&steps[..], [Step::Delete { .. }]));
        fixture.absences = planned.absences; // and nothing was written
        fixture.uptime += 1;
    }
}

#[test]
fn no_instance_of_one_node_is_deleted_before_it_says_that_its_device_is_gone() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 0");
    fixture.accepted().scope = Scope::Node;
    fixture.see(&["a"], true);
    fixture.settle();
    fixture.see(&[], true);
    for is_last in [false, true] {
        let planned = fixture.plan();
        let steps = fixture.merge(&planned.reports);
        assert_eq!(matches!(&steps[..], [Step::Delete { .. }]), is_last);
        fixture.absences = planned.absences;
        for step in steps {
            fixture.carry_out(step, &mut Settled::default());
        }
    }
    assert!(fixture.instances.is_empty());
}

#[test]
fn a_device_that_comes_back_in_time_keeps_its_instance_and_its_slots() {
    let mut fixture = Fixture::new("");
    fixture.see(&["a"], true);
    fixture.settle();
    fixture.hold(Some(NODE));
    let used = fixture.only().clone();
    fixture.see(&[], true);
    fixture.settle();
    fixture.uptime = 59;
    fixture.see(&["a"], true);
    fixture.settle();
    assert_eq!(health(fixture.only()), "Healthy");
    assert_eq!(fixture.only().spec.device_usage, used.spec.device_usage);
    // The next absence counts from its own beginning.
    fixture.uptime = 61;
    fixture.see(&[], true);
    assert_eq!(fixture.settle().wake_in, Some(Duration::from_secs(60)));
}

#[test]
fn nothing_is_deleted_before_a_first_complete_look() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 0");
    fixture.see(&["a", "b"], true);
    fixture.settle();
    // Another life: discovery starts anew and has seen one of the two so far.
    fixture.discoveries.clear();
    assert!(fixture.settle().is_nothing());
    fixture.see(&["a"], false);
    assert!(fixture.settle().is_nothing());
    fixture.see(&["a"], true);
    fixture.settle();
    assert_eq!(fixture.instances.len(), 1);
}

#[test]
fn a_device_that_leaves_before_the_first_complete_look_is_unhealthy_at_once_and_stays_until_then() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 0");
    fixture.see(&["a"], false);
    fixture.settle();
    fixture.see(&[], false);
    let discovery = fixture.discoveries.get_mut(&key("cam")).unwrap();
    Arc::make_mut(&mut discovery.seen).insert(DeviceId::new("a"));
    assert_eq!(fixture.settle().wake_in, None);
    assert_eq!(health(fixture.only()), "Unhealthy");
    fixture.see(&[], true);
    fixture.settle();
    assert!(fixture.instances.is_empty());
}

#[test]
fn a_deleted_configuration_takes_its_instances_along_at_once_and_an_unreadable_one_does_not() {
    let mut fixture = Fixture::new("");
    fixture.see(&["a"], true);
    fixture.settle();
    let (validated, objects) = (
        fixture.validated.clone(),
        std::mem::take(&mut fixture.configurations.objects),
    );
    fixture.validated = ValidatedConfigurations::default();
    fixture.discoveries.clear();

    fixture.configurations.is_complete = false;
    assert!(fixture.settle().is_nothing());

    fixture.configurations.is_complete = true;
    // Refused, not deleted.
    fixture.configurations.objects = objects;
    assert!(fixture.settle().is_nothing());
    fixture.configurations.objects.clear();
    // Kept as it was, because its manifest has a mistake.
    fixture.validated = validated;
    fixture.configurations.hidden.insert(key("cam"));
    assert!(fixture.settle().is_nothing());
    fixture.validated = ValidatedConfigurations::default();
    fixture.configurations.hidden.clear();

    fixture.settle();
    assert!(fixture.instances.is_empty());
}

#[test]
fn a_discovery_that_fails_is_reported_and_keeps_what_it_saw() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 0");
    fixture.see(&["a"], true);
    fixture.settle();
    fixture.discoveries.get_mut(&key("cam")).unwrap().error = Some("no network".to_owned());
    assert!(fixture.settle().is_nothing());
    assert_eq!(fixture.problems(), ["DiscoveryFailed"]);
}

/// A device of this node alone, whose node was lost: its Instance names no node.
fn own_without_nodes() -> Fixture {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 60");
    fixture.accepted().scope = Scope::Node;
    fixture.see(&["a"], true);
    fixture.settle();
    fixture.leave();
    fixture
}

#[test]
fn a_device_of_a_node_that_was_lost_has_its_whole_grace_period_when_the_node_is_back() {
    let mut fixture = own_without_nodes();
    fixture.uptime = 10;
    // What is not known yet is no reason to join.
    fixture.discoveries.clear();
    fixture.settle();
    assert_eq!(fixture.only().spec.nodes, [""; 0]);
    fixture.see(&[], true);
    assert_eq!(fixture.settle().wake_in, Some(Duration::from_secs(60)));
    assert_eq!(fixture.only().spec.nodes, [""; 0]);
    fixture.uptime = 69;
    fixture.settle();
    let mut back = own_without_nodes();
    back.instances.clone_from(&fixture.instances);
    back.see(&["a"], true);
    back.settle();
    assert_eq!(back.only().spec.nodes, [NODE]);
    fixture.uptime = 70;
    fixture.settle();
    assert!(fixture.instances.is_empty());
}

#[test]
fn an_instance_without_nodes_stays_while_its_configuration_is_refused() {
    let mut fixture = own_without_nodes();
    fixture.validated = ValidatedConfigurations::default();
    fixture.discoveries.clear();
    let report = &fixture.plan().reports.of[&key("cam")];
    assert_eq!(report.own[0].state.as_deref(), Some("Unhealthy"));
}
