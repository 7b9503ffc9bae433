//! Formats the output of `discover`: lines for the changes of a set, and the whole set as a list. Pure.
use crate::model::{
    device::{Device, DeviceId, DeviceSet, Scope},
    instance_name::InstanceName,
    name_template::NameTemplate,
    printable::printable,
    typed_names::{ConfigurationName, NodeName},
};
use anyhow::Context as _;
use petiole_base::collect::CollectMap as _;
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The width of the column. It fits the name of a Configuration and its digest; longer names shift their line.
const INSTANCE_WIDTH: usize = 32;
const REACH_WIDTH: usize = 40;

/// The values from which the names of Instances are built.
#[derive(Debug, Clone)]
pub(super) struct Naming {
    pub(super) configuration: ConfigurationName,
    pub(super) node: NodeName,
    pub(super) scope: Scope,
    pub(super) template: Option<NameTemplate>,
    pub(super) broker_properties: BTreeMap<String, String>,
}

/// A device in the list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Listed<'a> {
    id: &'a str,
    instance: InstanceName,
    shared: bool,
    properties: &'a BTreeMap<String, String>,
    /// The connection properties: a running container is ended if one of them changes.
    connection: Vec<&'a str>,
}

/// Turns sets into lines, and remembers the last set.
#[derive(Debug)]
pub(super) struct Report {
    naming: Naming,
    /// True if a line has the properties of the device.
    is_wide: bool,
    last: DeviceSet,
}

impl Naming {
    /// Returns the names that the Configuration's template gives. Of two devices that want one name, the first by its id has it here.
    fn templated<'a>(&self, set: &'a DeviceSet) -> BTreeMap<&'a DeviceId, InstanceName> {
        let Some(template) = &self.template else {
            return BTreeMap::new();
        };
        let mut taken = BTreeSet::new();
        let name = |(id, device): (&'a DeviceId, &'a Arc<Device>)| {
            let name = template.name(&[&self.broker_properties, &device.properties]);
            let name = name.ok().filter(|name| taken.insert(name.clone()))?;
            Some((id, name))
        };
        set.devices.iter().filter_map(name).collect_map()
    }

    /// Returns the name of a device's Instance. The digest takes time: of a large set only those that are shown are named.
    fn name(&self, device: &Device, templated: &BTreeMap<&DeviceId, InstanceName>) -> InstanceName {
        let digest = || {
            let [digest, _] =
                InstanceName::candidates(&self.configuration, &device.id, self.scope, &self.node);
            digest
        };
        templated.get(&device.id).cloned().unwrap_or_else(digest)
    }
}

impl Report {
    pub(super) fn new(naming: Naming) -> Self {
        Self {
            naming,
            is_wide: false,
            last: DeviceSet::default(),
        }
    }

    /// Adds the properties to the lines.
    pub(super) fn wide(self) -> Self {
        Self {
            is_wide: true,
            ..self
        }
    }

    pub(super) fn header(&self) -> String {
        let properties = if self.is_wide {
            ["PROPERTIES"].as_slice()
        } else {
            &[]
        };
        row(["CHANGE", "INSTANCE", "REACH", "DEVICE"], properties)
    }

    /// Returns a line for each device that is new, changed or gone.
    pub(super) fn changes(&mut self, set: &DeviceSet) -> String {
        let mut text = String::new();
        let names = self.naming.templated(&self.last);
        for (id, device) in &self.last.devices {
            if !set.devices.contains_key(id) {
                text += &line(["gone", &self.naming.name(device, &names)], device, &[]);
            }
        }
        let names = self.naming.templated(set);
        for (id, device) in &set.devices {
            let change = match self.last.devices.get(id) {
                None => "new",
                Some(last) if last != device => "changed",
                Some(_) => continue,
            };
            let name = self.naming.name(device, &names);
            text += &line([change, &name], device, &self.properties(device));
        }
        self.last = set.clone();
        text
    }

    fn properties(&self, device: &Device) -> Vec<String> {
        let properties = device.properties.iter().filter(|_| self.is_wide);
        properties.map(|(k, v)| format!("{k}={v}")).collect()
    }

    pub(super) fn list<'a>(&self, set: &'a DeviceSet) -> Vec<Listed<'a>> {
        let names = self.naming.templated(set);
        let listed = |device: &'a Arc<Device>| Listed {
            id: device.id.as_str(),
            instance: self.naming.name(device, &names),
            shared: self.naming.scope == Scope::Shared,
            properties: &device.properties,
            connection: device.connection.iter().map(String::as_str).collect(),
        };
        set.devices.values().map(listed).collect()
    }
}

fn line([change, instance]: [&str; 2], device: &Device, properties: &[String]) -> String {
    let connection = device.connection.iter();
    let reach = connection.filter_map(|name| device.properties.get(name));
    let reach: Vec<&str> = reach.map(String::as_str).collect();
    let reach = if reach.is_empty() {
        "-".to_owned()
    } else {
        reach.join(" ")
    };
    row([change, instance, &reach, device.id.as_str()], properties)
}

/// Returns the ids of the devices that are marked by their id, or by the name of their Instance.
pub(super) fn marked<'a>(list: &[Listed<'a>], marks: &[String]) -> anyhow::Result<Vec<&'a str>> {
    let id = |mark: &String| {
        let mut all = list.iter();
        let found = all.find(|listed| listed.id == mark || *listed.instance == **mark);
        found.map(|listed| listed.id).with_context(|| {
            format!("no device that was found has the id or the Instance {mark}: `-o table` shows those that were found")
        })
    };
    marks.iter().map(id).collect()
}

fn row([change, instance, reach, device]: [&str; 4], properties: &[impl AsRef<str>]) -> String {
    let (reach, device) = (printable(reach), printable(device));
    let mut row =
        format!("{change:<8}  {instance:<INSTANCE_WIDTH$}  {reach:<REACH_WIDTH$}  {device}");
    for (n, property) in properties.iter().enumerate() {
        row += if n == 0 { "  " } else { " " };
        row += &printable(property.as_ref());
    }
    row.push('\n');
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(scope: Scope) -> Report {
        Report::new(Naming {
            configuration: "cams".into(),
            node: "node-a".into(),
            scope,
            template: None,
            broker_properties: BTreeMap::new(),
        })
    }

    fn device(id: &str, port: &str) -> Device {
        let mut device = Device::new(id);
        device.properties.insert("PORT".into(), port.into());
        device.connection.insert("PORT".into());
        device
    }

    #[test]
    fn each_change_of_a_set_is_a_line() {
        let mut report = report(Scope::Shared);
        let first = DeviceSet::complete([device("a", "1"), device("b", "1"), device("c", "1")]);
        let then = DeviceSet::complete([device("b", "2"), device("c", "1"), device("d", "1")]);
        assert_eq!(report.changes(&first).lines().count(), 3);
        let text = report.changes(&then);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        let short: Vec<_> = lines.iter().map(|l| (l[0], l[2], l[3])).collect();
        assert_eq!(
            short,
            [("gone", "1", "a"), ("changed", "2", "b"), ("new", "1", "d")]
        );
        assert_eq!(report.changes(&then), "");
    }

    #[test]
    fn a_device_is_marked_by_its_id_or_its_instance_and_another_mark_is_named() {
        let report = report(Scope::Shared);
        let set = DeviceSet::complete([device("a", "1"), device("b", "1"), device("c", "1")]);
        let list = report.list(&set);
        let marks = |marks: &[&str]| {
            let marks: Vec<String> = marks.iter().map(|m| (*m).to_owned()).collect();
            marked(&list, &marks).map_err(|e| e.to_string())
        };
        assert_eq!(marks(&[&list[2].instance, "a"]).unwrap(), ["c", "a"]);
        assert!(marks(&["a", "d"]).unwrap_err().contains("Instance d:"));
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        let report = report(Scope::Shared);
        let set = DeviceSet::complete([device("a\x1b[2J\nb", "1")]);
        let text = report.wide().changes(&set);
        assert!(text.ends_with("a\\u{1b}[2J\\nb  PORT=1\n"), "{text:?}");
    }

    #[test]
    fn a_device_is_called_as_the_configuration_says_and_of_two_the_first() {
        let mut report = report(Scope::Shared);
        report.naming.template = Some("hall-{PORT}".parse().unwrap());
        let set = DeviceSet::complete([device("a", "1"), device("b", "1"), device("c", "2")]);
        let names = report.list(&set).into_iter().map(|listed| listed.instance);
        let names: Vec<InstanceName> = names.collect();
        assert_eq!([&*names[0], &*names[2]], ["hall-1", "hall-2"]);
        assert!(names[1].starts_with("cams-"), "{}", names[1]);
        assert!(report.changes(&set).contains("new       hall-2 "));
    }

    #[test]
    fn a_local_device_is_named_after_its_node_too() {
        let set = DeviceSet::complete([device("a", "1")]);
        let name = |scope| report(scope).list(&set)[0].instance.clone();
        assert!(name(Scope::Shared).starts_with("cams-") && name(Scope::Shared).len() == 11);
        assert_ne!(name(Scope::Shared), name(Scope::Node));
    }
}
