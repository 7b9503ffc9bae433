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
        self.add_to("default", name, devices);
    }

    fn add_to(&mut self, namespace: &str, name: &str, devices: Vec<Device>) {
        let like = &self.validated.accepted[&key("cam")];
        let mut accepted = like.clone();
        let metadata = &mut Arc::make_mut(&mut accepted.configuration).metadata;
        metadata.name = Some(name.to_owned());
        metadata.namespace = Some(namespace.to_owned());
        let key = ConfigurationKey::new(namespace, name);
        (self.configurations.objects).insert(key.clone(), accepted.configuration.clone());
        self.validated.accepted.insert(key.clone(), accepted);
        let state = DiscoveryState {
            set: Arc::new(DeviceSet::complete(devices)),
            ..DiscoveryState::default()
        };
        self.discoveries.insert(key, state);
    }

    fn remove(&mut self, name: &str) {
        self.discoveries.remove(&key(name));
        self.validated.accepted.remove(&key(name));
        self.configurations.objects.remove(&key(name));
    }

    fn instances_in(&self, namespace: &str) -> usize {
        let keys = self.instances.keys();
        keys.filter(|key| key.namespace == namespace).count()
    }

    /// The agent starts again: it knows the Instances, and the first look at each device is to come.
    fn restart(&mut self) {
        self.absences.clear();
        self.arrivals = Arrivals::default();
        let discoveries = std::mem::take(&mut self.discoveries);
        for key in discoveries.keys() {
            self.discoveries
                .insert(key.clone(), DiscoveryState::default());
        }
        assert!(self.settle().is_nothing());
        self.discoveries = discoveries;
    }
}

/// A device that a host of the LAN announces.
fn announced(of: &str, count: usize, host: &str) -> Vec<Device> {
    let small = (0..count).map(|n| Device::new(format!("{of}{n:04}")));
    small
        .map(|device| device.announced_by(host.parse().unwrap()))
        .collect()
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
    assert!(first + second > 150_000, "{first} {second}");
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
        (problem.message).contains("\"default\" may have half of what the others leave"),
        "{}",
        problem.message
    );
    assert!(
        problem.message.contains("100 Instances"),
        "{}",
        problem.message
    );
    fixture.add("dam", devices("b", 12));
    fixture.settle();
    assert_eq!(fixture.instances.len(), 62, "nobody else notices");
    assert_eq!(fixture.plan().reports.of[&key("dam")].problems, vec![]);
}

#[test]
fn a_namespace_with_many_configurations_has_half_of_the_instances_that_the_others_leave() {
    for [many, one] in [["a", "b"], ["b", "a"]] {
        let fill = |fixture: &mut Fixture| {
            for n in 0..64 {
                let name = format!("c{n:02}");
                fixture.add_to(many, &name, devices(&name, 10));
            }
        };
        let honest = |fixture: &mut Fixture| fixture.add_to(one, "cam", devices("x", 20));
        // Together, the many first, and the one first.
        for order in 0..3 {
            let mut fixture = Fixture::new("");
            fixture.add("cam", vec![]);
            match order {
                0 => {
                    fill(&mut fixture);
                    honest(&mut fixture);
                }
                1 => {
                    fill(&mut fixture);
                    fixture.settle();
                    honest(&mut fixture);
                }
                _ => {
                    honest(&mut fixture);
                    fixture.settle();
                    fill(&mut fixture);
                }
            }
            fixture.remove("cam");
            for _ in 0..2 {
                fixture.settle();
                assert_eq!(fixture.instances_in(one), 20, "{one} {order}");
                let of_many = fixture.instances_in(many);
                assert!((38..=50).contains(&of_many), "{of_many} {order}");
                let reports = fixture.plan().reports.of;
                let problems = |namespace: &str| -> usize {
                    let of = reports.iter();
                    let of = of.filter(|(key, _)| key.namespace == namespace);
                    of.map(|(_, report)| report.problems.len()).sum()
                };
                assert_eq!(problems(one), 0, "nobody else notices");
                assert!(problems(many) > 50, "{}", problems(many));
                fixture.restart();
                assert!(fixture.settle().is_nothing(), "nothing comes and goes");
            }
        }
    }
}

#[test]
fn a_host_that_announces_many_devices_leaves_half_of_the_instances_to_others() {
    let mut fixture = Fixture::new(", maxInstances: 100");
    fixture.max_instances = 1000;
    let old = announced("old", 10, "10.0.0.7");
    fixture.see_devices(old.clone(), true);
    fixture.settle();
    // Invented names, which come first by name and by time.
    let invented = announced("a", 2000, "10.0.0.66");
    fixture.see_devices([old.clone(), invented.clone()].concat(), true);
    fixture.settle();
    assert_eq!(fixture.instances.len(), 10 + 45);
    let problem = fixture.plan().reports.of[&key("cam")].problems[0].clone();
    assert_eq!(problem.reason, Reason::TooManyDevices);
    assert!(problem.message.contains("10.0.0.66"), "{}", problem.message);
    fixture.restart();
    let new = announced("new", 20, "10.0.0.8");
    fixture.see_devices([old, invented, new].concat(), true);
    let settled = fixture.settle();
    assert_eq!((settled.created, settled.deleted), (20, 0));
    assert!(fixture.settle().is_nothing());
}

#[test]
fn a_host_that_announces_other_names_all_the_time_leaves_room_for_others() {
    let mut fixture = Fixture::new(", maxInstances: 200");
    fixture.max_instances = 1000;
    let old = announced("old", 10, "10.0.0.7");
    for names in ["a", "b", "c", "d"] {
        let invented = announced(names, 2000, "10.0.0.66");
        fixture.see_devices([old.clone(), invented].concat(), true);
        fixture.settle();
        assert_eq!(fixture.instances.len(), 10 + 95);
    }
    let new = announced("new", 20, "10.0.0.8");
    fixture.see_devices([old, new].concat(), true);
    assert_eq!(fixture.settle().created, 20);
}

#[test]
fn a_host_that_announces_for_thirty_has_as_many_instances_as_there_are_places() {
    let mut fixture = Fixture::new(", maxInstances: 32");
    let proxied = announced("p", 30, "10.0.0.7");
    let other = announced("o", 2, "10.0.0.8");
    fixture.see_devices([proxied, other].concat(), true);
    fixture.settle();
    assert_eq!(fixture.instances.len(), 32);
    assert_eq!(fixture.problems(), [""; 0]);
}

#[test]
fn hosts_take_turns_when_a_few_new_devices_a_second_get_an_instance() {
    let mut fixture = Fixture::new(", gracePeriodSeconds: 0, maxInstances: 20");
    fixture.see_devices(announced("a", 20, "10.0.0.66"), true);
    fixture.settle();
    let invented = announced("b", 20, "10.0.0.66");
    fixture.see_devices(invented.clone(), true);
    fixture.settle();
    fixture.see_devices([invented, announced("z", 1, "10.0.0.7")].concat(), true);
    fixture.settle();
    fixture.uptime += 1;
    fixture.settle();
    let has =
        |id: &str| (fixture.instances.values()).any(|i| device_id(i) == Some(DeviceId::new(id)));
    assert!(has("z0000") && has("b0000") && !has("b0001"));
}

#[test]
fn a_configuration_has_half_of_the_bytes_that_the_others_leave() {
    let mut fixture = Fixture::new(&with_properties());
    fixture.max_instances = 2000;
    fixture.see_devices(devices("a", 1000), true);
    let planned = fixture.plan();
    let report = &planned.reports.of[&key("cam")];
    assert!(
        (200..250).contains(&report.instances),
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
