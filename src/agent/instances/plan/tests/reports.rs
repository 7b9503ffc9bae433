//! These tests look at the reports that a plan makes of devices.
use super::*;
use crate::{
    api::{node_devices::SeenDevice, reason::Reason},
    model::slot::SlotId,
};

impl Fixture {
    fn reported(&mut self) -> Vec<SeenDevice> {
        let planned = self.plan();
        self.absences.clone_from(&planned.absences);
        self.arrivals.clone_from(&planned.arrivals);
        planned.reports.of[&key("cam")].devices.clone()
    }

    /// The controller has made, or changed, the Instance of the only device.
    fn merged(&mut self, nodes: &[&str], said: &SeenDevice) -> InstanceKey {
        let id = DeviceId::new(said.id.as_deref().unwrap());
        let [name, _] = InstanceName::candidates(&"cam".into(), &id, Scope::Shared, &NODE.into());
        let spec = InstanceSpec {
            configuration_name: "cam".into(),
            shared: true,
            nodes: nodes.iter().map(|&node| node.into()).collect(),
            broker_properties: said.properties.clone().unwrap_or_default(),
            ..InstanceSpec::default()
        };
        let mut instance = Instance::new(name.as_str(), spec);
        let annotation = (names::DEVICE_ID.to_owned(), id.to_string());
        instance.metadata.annotations = Some(BTreeMap::from([annotation]));
        self.instances
            .insert(instance_key(name.as_str()), Arc::new(instance));
        instance_key(name.as_str())
    }
}

#[test]
fn a_device_is_described_until_its_instance_says_so() {
    let mut fixture = Fixture::new("");
    let mut device = Device::new("a");
    device.properties.insert("KEY".to_owned(), "1".to_owned());
    fixture.see_devices([device.clone()], true);
    let [new] = fixture.reported().try_into().unwrap();
    assert_eq!(new.properties.as_ref().unwrap()["KEY"], "1");
    assert_eq!(new.connection, Some(device.connection_digest()));
    fixture.merged(&[NODE], &new);
    assert_eq!(fixture.reported()[0].properties, None);
    device.properties.insert("KEY".to_owned(), "2".to_owned());
    fixture.see_devices([device], true);
    assert_eq!(
        fixture.reported()[0].properties.as_ref().unwrap()["KEY"],
        "2"
    );
    // What the first node says counts.
    fixture.merged(&["node-b", NODE], &new);
    assert_eq!(fixture.reported()[0].properties, None);
}

#[test]
fn a_device_that_is_gone_is_unhealthy_for_the_grace_period_and_then_not_reported() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 60");
    fixture.see(&["a"], true);
    let new = fixture.reported().remove(0);
    fixture.merged(&[NODE], &new);
    fixture.see(&[], false);
    assert_eq!(fixture.reported()[0].state, None, "it may only be late");
    fixture.see(&[], true);
    assert_eq!(fixture.reported()[0].state.as_deref(), Some("Unhealthy"));
    fixture.uptime = 59;
    assert_eq!(fixture.reported().len(), 1);
    fixture.uptime = 60;
    assert_eq!(fixture.reported(), vec![]);
}

#[test]
fn an_instance_is_watched_on_while_a_container_may_have_a_slot_of_it() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 0");
    fixture.see(&["a"], true);
    let new = fixture.reported().remove(0);
    let named = fixture.merged(&["node-b"], &new);
    fixture.see(&[], true);
    assert_eq!(fixture.reported(), vec![]);
    let slot = SlotId::new(named.name.as_str(), 0);
    let ids = [(&slot).into()].into();
    fixture.uses = vec![Use {
        ids,
        ..Use::default()
    }];
    let [left] = fixture.reported().try_into().unwrap();
    assert_eq!(
        (left.state.as_deref(), left.instance),
        (Some("Left"), Some(named.name.into()))
    );
    fixture.uses = vec![];
    fixture.hold(Some(NODE));
    assert_eq!(fixture.reported().len(), 1);
}

#[test]
fn a_node_that_the_selector_leaves_out_lets_go_at_once_and_keeps_all_while_its_labels_are_unknown()
{
    let mut fixture = Fixture::new(", gracePeriodSeconds: 60");
    fixture.see(&["a"], true);
    let new = fixture.reported().remove(0);
    fixture.merged(&[NODE], &new);
    let select = |fixture: &mut Fixture, selection| {
        fixture.accepted().selection = selection;
    };
    select(&mut fixture, Selection::Unknown);
    assert_eq!(fixture.reported()[0].state, None);
    assert!(!fixture.plan().reports.of[&key("cam")].complete);
    select(&mut fixture, Selection::LeftOut);
    assert_eq!(fixture.reported(), vec![]);
    assert!(fixture.plan().reports.of[&key("cam")].complete);
    let instances = std::mem::take(&mut fixture.instances);
    assert!(!fixture.plan().reports.of.contains_key(&key("cam")));
    fixture.instances = instances;
    fixture.settle();
    assert!(fixture.instances.is_empty());
}

#[test]
fn a_container_keeps_its_slot_when_the_labels_of_its_node_change_and_the_node_is_free_after_it() {
    let mut fixture = Fixture::new("");
    fixture.see(&["a"], true);
    let new = fixture.reported().remove(0);
    let named = fixture.merged(&[NODE], &new);
    fixture.hold(Some(NODE));
    fixture.accepted().selection = Selection::LeftOut;
    let [left] = fixture.reported().try_into().unwrap();
    assert_eq!(
        (left.state.as_deref(), left.instance),
        (Some("Left"), Some(named.name.into()))
    );
    // The container goes on while the node is selected again.
    fixture
        .validated
        .accepted
        .get_mut(&key("cam"))
        .unwrap()
        .selection = Selection::Selected;
    assert_eq!(fixture.reported()[0].state, None);
    fixture
        .validated
        .accepted
        .get_mut(&key("cam"))
        .unwrap()
        .selection = Selection::LeftOut;
    fixture.hold(None);
    assert_eq!(fixture.reported(), vec![]);
}

#[test]
fn a_report_has_the_generation_that_was_validated() {
    let mut fixture = Fixture::new("");
    let generation = |fixture: &mut Fixture| fixture.plan().reports.of[&key("cam")].generation;
    assert_eq!(generation(&mut fixture), None);
    fixture.validated.generations.insert(key("cam"), 3);
    assert_eq!(generation(&mut fixture), Some(3));
}

#[test]
fn nothing_is_reported_before_all_configurations_are_known_and_validated() {
    let mut fixture = Fixture::new("");
    assert!(fixture.plan().reports.is_whole);
    fixture.configurations.is_complete = false;
    assert!(!fixture.plan().reports.is_whole);
    fixture.configurations.is_complete = true;
    let accepted = fixture.validated.accepted.remove(&key("cam"));
    assert!(!fixture.plan().reports.is_whole);
    // One that is refused keeps what it had.
    let problem = Problem::new(Reason::BadSpec, "x");
    fixture.validated.problems.insert(key("cam"), problem);
    let id = Some("a".to_owned());
    fixture.merged(
        &[NODE],
        &SeenDevice {
            id,
            ..SeenDevice::default()
        },
    );
    let planned = fixture.plan();
    assert!(planned.reports.is_whole && accepted.is_some());
    assert_eq!(planned.reports.of[&key("cam")].devices.len(), 1);
}

#[test]
fn new_devices_are_reported_as_fast_as_instances_may_come() {
    let mut fixture = Fixture::new(", maxInstances: 2");
    fixture.see(&["a", "b"], true);
    assert_eq!(fixture.reported().len(), 2);
    assert_eq!(fixture.reported().len(), 2, "and go on to be");
    fixture.see(&["c", "d"], true);
    assert_eq!(fixture.reported().len(), 0);
    fixture.uptime = 1;
    assert_eq!(fixture.reported().len(), 2);
}

#[test]
fn the_pin_of_a_device_is_reported_until_its_instance_has_it_and_then_another_host() {
    const FIRST: &str = "10.0.0.0/24 porch.local";
    let pinned = |pin: &str| {
        let mut device = Device::new("a");
        device.pin = Some(pin.parse().unwrap());
        device
    };
    let mut fixture = Fixture::new(", gracePeriodSeconds: 10");
    fixture.see_devices([pinned(FIRST)], true);
    let new = fixture.reported().remove(0);
    assert_eq!(new.pin.as_deref(), Some(FIRST));
    let key = fixture.merged(&[NODE], &new);
    assert_eq!(fixture.reported()[0].pin.as_deref(), Some(FIRST));
    let pin = |fixture: &mut Fixture, nodes: &[&str]| {
        fixture.merged(nodes, &new);
        let instance = Arc::make_mut(fixture.instances.get_mut(&key).unwrap());
        let annotations = instance.metadata.annotations.as_mut().unwrap();
        annotations.insert(names::PIN.to_owned(), FIRST.to_owned());
    };
    pin(&mut fixture, &[NODE]);
    assert_eq!(fixture.reported()[0].pin, None);
    assert_eq!(fixture.reported()[0].state, None);
    fixture.see_devices([pinned("10.0.0.0/24 gate.local")], true);
    fixture.uptime = 3600;
    let [moved] = fixture.reported().try_into().unwrap();
    assert_eq!(moved.state.as_deref(), Some("Unhealthy"));
    let message = moved.other_host.unwrap();
    assert!(message.contains("gate.local"), "{message}");
    assert_eq!((moved.flapping, moved.pin), (None, None));
    // A node that the Instance does not name is not added by it.
    pin(&mut fixture, &["node-b"]);
    assert_eq!(fixture.reported(), vec![]);
}
