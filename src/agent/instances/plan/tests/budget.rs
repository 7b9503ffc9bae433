//! The bytes of what a plan writes, and the part of Instances that a Configuration may have.
use super::*;
use crate::model::{budget::text_bytes, limits};

/// Returns the fields of a Configuration with as many `brokerProperties` as it may have.
fn with_properties() -> String {
    let property = |n: usize| format!("P{n}: {}", "x".repeat(8190));
    let properties: Vec<String> = (0..4).map(property).collect();
    format!(", brokerProperties: {{{}}}", properties.join(", "))
}

fn devices(of: &str, count: usize) -> Vec<Device> {
    let device = |n: usize| {
        let mut device = Device::new(format!("{of}{n:04}"));
        let value = "y".repeat(4096);
        device.properties.insert("OWN".to_owned(), value);
        device
    };
    (0..count).map(device).collect()
}

impl Fixture {
    /// Adds a Configuration like `cam`, with these devices.
    fn add(&mut self, name: &str, devices: Vec<Device>) {
        let accepted = self.validated.accepted[&key("cam")].clone();
        self.validated.accepted.insert(key(name), accepted);
        let mut configuration = self.configurations.objects[&key("cam")].clone();
        Arc::make_mut(&mut configuration).metadata.name = Some(name.to_owned());
        (self.configurations.objects).insert(key(name), configuration);
        let state = DiscoveryState {
            set: Arc::new(DeviceSet::complete(devices)),
            ..DiscoveryState::default()
        };
        self.discoveries.insert(key(name), state);
    }
}

#[test]
fn what_is_planned_in_one_turn_is_bounded_in_bytes_whatever_is_found() {
    let mut fixture = Fixture::new(&with_properties());
    fixture.max_instances = 2000;
    fixture.see_devices(devices("a", 1000), true);
    fixture.add("dam", devices("b", 1000));
    let bytes = |planned: &Plan, of: &str| -> usize {
        let devices = planned.reports.of[&key(of)].devices.iter();
        let described = devices.filter_map(|device| device.properties.as_ref());
        described.map(text_bytes).sum()
    };
    let planned = fixture.plan();
    let (first, second) = (bytes(&planned, "cam"), bytes(&planned, "dam"));
    assert!(first + second > 300_000, "{first} {second}");
    assert!(first + second <= limits::TURN_BYTES_MAX);
    assert!(second > 10_000, "each Configuration has a part");
    // The next turn goes on.
    fixture.arrivals.clone_from(&planned.arrivals);
    let mut settled = Settled::default();
    for step in fixture.merge(&planned.reports) {
        fixture.carry_out(step, &mut settled);
    }
    let before = fixture.instances.len();
    let planned = fixture.plan();
    assert!(bytes(&planned, "cam") > 100_000);
    assert!(fixture.merge(&planned.reports).len() > 10 && before > 10);
}

#[test]
fn a_report_has_a_devices_own_properties_and_never_those_of_its_configuration() {
    let mut fixture = Fixture::new(&with_properties());
    fixture.max_instances = 2000;
    fixture.see_devices(devices("a", 1000), true);
    let planned = fixture.plan();
    let report = &planned.reports.of[&key("cam")];
    let described: Vec<_> = (report.devices.iter())
        .filter_map(|device| device.properties.as_ref())
        .collect();
    assert!(
        described
            .iter()
            .all(|own| Vec::from_iter(own.keys()) == ["OWN"])
    );
    let bytes: usize = described.iter().map(|own| text_bytes(own)).sum();
    assert!(
        bytes > 200_000 && bytes <= limits::TURN_BYTES_MAX,
        "{bytes}"
    );
    assert_eq!(report.announced.len(), report.devices.len());
    // An Instance has the properties of both, and then nothing is left to say.
    let said = report
        .devices
        .iter()
        .find(|device| device.properties.is_some());
    let id = DeviceId::new(said.unwrap().id.as_ref().unwrap());
    let device = fixture.discoveries[&key("cam")].set.devices[&id].clone();
    fixture.see_devices([Device::clone(&device)], true);
    let accepted = &fixture.validated.accepted[&key("cam")];
    let spec = InstanceSpec {
        configuration_name: "cam".into(),
        shared: true,
        nodes: vec![NODE.into()],
        broker_properties: crate::model::container_edits::stored_copy(
            &device.properties,
            &accepted.configuration.spec.broker_properties,
        ),
        ..InstanceSpec::default()
    };
    let [name, _] = InstanceName::candidates(&"cam".into(), &id, Scope::Shared, &NODE.into());
    let mut instance = Instance::new(name.as_str(), spec);
    let annotation = (names::DEVICE_ID.to_owned(), id.to_string());
    instance.metadata.annotations = Some(BTreeMap::from([annotation]));
    (fixture.instances).insert(instance_key(name.as_str()), Arc::new(instance));
    let planned = fixture.plan();
    assert_eq!(planned.reports.of[&key("cam")].devices[0].properties, None);
}

#[test]
fn a_configuration_has_half_of_the_instances_that_the_others_leave() {
    let mut fixture = Fixture::new("");
    fixture.see_devices(devices("a", 80), true);
    fixture.settle();
    assert_eq!(fixture.instances.len(), 50);
    let planned = fixture.plan();
    let problem = &planned.reports.of[&key("cam")].problems[0];
    assert_eq!(problem.reason, Reason::TooManyDevices);
    assert!(
        problem.message.contains("half of what the others leave"),
        "{}",
        problem.message
    );
    assert!(
        problem.message.contains("100 Instances"),
        "{}",
        problem.message
    );
    fixture.add("dam", devices("b", 20));
    fixture.settle();
    assert_eq!(fixture.instances.len(), 70, "nobody else notices");
    assert_eq!(fixture.plan().reports.of[&key("dam")].problems, vec![]);
}

#[test]
fn a_configuration_has_half_of_the_bytes_that_the_others_leave() {
    let mut fixture = Fixture::new(&with_properties());
    fixture.max_instances = 2000;
    fixture.see_devices(devices("a", 1000), true);
    let planned = fixture.plan();
    let report = &planned.reports.of[&key("cam")];
    assert!(
        (400..500).contains(&report.instances),
        "{}",
        report.instances
    );
    assert_eq!(report.problems[0].reason, Reason::TooManyDevices);
    assert!(
        report.problems[0].message.contains("16 MiB"),
        "{}",
        report.problems[0].message
    );
}
