//! Computes what a container gets with its devices: environment, mounts, device nodes, CDI devices.
use super::{
    container_devices::ContainerDevices,
    container_nodes::{ContainerNodes, NamedDevice, NodesRefused, container_nodes},
    device::{Device, DeviceNode, Mount},
    instance_name::is_digest_of_variable,
    slot::SlotId,
};
use petiole_base::collect::CollectMap as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
};

/// The variable with the slots of a container, as `AKRI_SLOT` and `AKRI_SLOT_<DIGEST>`. With a capacity above 1 it
/// distinguishes the users of one device.
pub const SLOT_VARIABLE: &str = "AKRI_SLOT";

/// One device of a container, with all values that determine its environment.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    /// The digest by which its variables end: in the name of the Instance, or of it.
    pub digest: &'a str,
    /// The slot that the container holds, `<instance>-<index>`.
    pub slot: &'a SlotId,
    pub device: &'a Device,
    /// The properties of the Configuration, which override the device's own properties.
    pub broker_properties: &'a BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerEdits {
    pub env: BTreeMap<String, String>,
    pub mounts: Vec<Mount>,
    pub device_nodes: Vec<DeviceNode>,
    pub cdi_devices: Vec<String>,
}

impl ContainerEdits {
    /// Computes the edits for these devices of one Configuration, and its wishes. Every property appears twice: as
    /// `KEY_<DIGEST>` with its device's value, and as `KEY` with the first device's value. Of mounts with one container path
    /// the first stays, and without wishes also of device nodes.
    pub fn of(
        devices: &[Given<'_>],
        wish: Option<&ContainerDevices>,
    ) -> Result<Self, NodesRefused> {
        let nodes = match wish {
            Some(wish) => {
                let named: Vec<_> = devices.iter().map(Given::named).collect();
                container_nodes(&named, wish)?
            }
            None => first_of_each_path(devices),
        };
        let mut edits = Self {
            env: slots(devices),
            mounts: vec![],
            device_nodes: nodes.device_nodes,
            cdi_devices: nodes.cdi_devices,
        };
        let mut suffixed = BTreeMap::new();
        let (mut paths, mut cdi) = (BTreeSet::new(), BTreeSet::new());
        for given in devices {
            for (key, value) in environment(&given.device.properties, given.broker_properties) {
                let key = without_digest(key.clone());
                suffixed.insert(
                    format!("{key}_{}", given.digest.to_uppercase()),
                    value.clone(),
                );
                edits
                    .env
                    .entry(key.clone())
                    .or_insert_with(|| value.clone());
            }
            let device = given.device;
            edits.mounts.extend(
                device
                    .mounts
                    .iter()
                    .filter(|m| paths.insert(m.container_path.as_str()))
                    .cloned(),
            );
            edits.cdi_devices.extend(
                device
                    .cdi_devices
                    .iter()
                    .filter(|c| cdi.insert(*c))
                    .cloned(),
            );
        }
        edits.env.extend(suffixed);
        Ok(edits)
    }
}

impl<'a> Given<'a> {
    fn named(&self) -> NamedDevice<'a> {
        NamedDevice {
            instance: &self.slot.instance,
            device: self.device,
        }
    }
}

fn first_of_each_path(devices: &[Given<'_>]) -> ContainerNodes {
    let mut paths = BTreeSet::new();
    let nodes = devices.iter().flat_map(|given| &given.device.device_nodes);
    let first = nodes.filter(|node| paths.insert(node.container_path.as_str()));
    ContainerNodes {
        device_nodes: first.cloned().collect(),
        cdi_devices: vec![],
    }
}

/// Returns a variable's name that differs from the `KEY_<DIGEST>` of every other device. A container may have devices
/// of several resources, whose variables the kubelet merges in no order, so one could replace the other.
pub fn without_digest(name: String) -> String {
    let end = name.rsplit_once('_').map(|(_, end)| end);
    if end.is_some_and(is_digest_of_variable) {
        return name + "_X";
    }
    name
}

/// Returns the variables with all slots, and with those of each device, separated by commas.
fn slots(devices: &[Given<'_>]) -> BTreeMap<String, String> {
    let mut env: BTreeMap<String, String> = BTreeMap::new();
    for given in devices {
        let suffixed = format!("{SLOT_VARIABLE}_{}", given.digest.to_uppercase());
        for key in [SLOT_VARIABLE.to_owned(), suffixed] {
            let slots = env.entry(key).or_default();
            if !slots.is_empty() {
                slots.push(',');
            }
            slots.push_str(&given.slot.to_string());
        }
    }
    env
}

/// Returns a device's properties, overridden by those of its Configuration: `brokerProperties` of the Instance.
pub fn environment<'a>(
    properties: &'a BTreeMap<String, String>,
    broker_properties: &'a BTreeMap<String, String>,
) -> BTreeMap<&'a String, &'a String> {
    properties.iter().chain(broker_properties).collect_map()
}

/// Returns the same as it is stored in an Instance, sorted by name.
pub fn stored<'a>(
    properties: &'a BTreeMap<String, String>,
    broker_properties: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = (&'a String, &'a String)> {
    let all = environment(properties, broker_properties).into_iter();
    all.filter(|(_, value)| !is_scoped_address(value))
}

/// Returns a copy of the same.
pub fn stored_copy(
    properties: &BTreeMap<String, String>,
    broker_properties: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let all = stored(properties, broker_properties);
    all.map(|(key, value)| (key.clone(), value.clone()))
        .collect_map()
}

/// `fe80::1%eth0` means something on one node only.
fn is_scoped_address(value: &str) -> bool {
    (value.split_once('%')).is_some_and(|(address, _)| address.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edits(devices: &[Given<'_>]) -> ContainerEdits {
        ContainerEdits::of(devices, None).unwrap()
    }

    fn camera(id: &str, url: &str) -> Device {
        let mut device = Device::new(id);
        device.properties.insert("URL".to_owned(), url.to_owned());
        device.mounts.push(Mount {
            container_path: "/data".to_owned(),
            host_path: format!("/srv/{id}"),
            read_only: true,
        });
        device.cdi_devices.push("acme.com/cam=1".to_owned());
        device
    }

    #[test]
    fn two_devices_in_one_container_keep_their_suffixed_variables_apart() {
        let (a, b) = (camera("a", "rtsp://a"), camera("b", "rtsp://b"));
        let more = BTreeMap::from([("MODE".to_owned(), "night".to_owned())]);
        let slots = ["aaaaaa", "bbbbbb"].map(|digest| SlotId::new(format!("cam-{digest}"), 0));
        let given = |n: usize, digest, device| Given {
            digest,
            slot: &slots[n],
            device,
            broker_properties: &more,
        };
        let edits = edits(&[given(0, "aaaaaa", &a), given(1, "bbbbbb", &b)]);
        let env: Vec<_> = edits.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            env,
            [
                "AKRI_SLOT=cam-aaaaaa-0,cam-bbbbbb-0",
                "AKRI_SLOT_AAAAAA=cam-aaaaaa-0",
                "AKRI_SLOT_BBBBBB=cam-bbbbbb-0",
                "MODE=night",
                "MODE_AAAAAA=night",
                "MODE_BBBBBB=night",
                "URL=rtsp://a",
                "URL_AAAAAA=rtsp://a",
                "URL_BBBBBB=rtsp://b"
            ]
        );
        assert_eq!(edits.mounts, a.mounts);
        assert_eq!(edits.cdi_devices, ["acme.com/cam=1"]);
    }

    #[test]
    fn no_property_can_stand_in_for_one_of_another_device() {
        let mut forger = camera("a", "rtsp://a");
        let value = || "rtsp://forged".to_owned();
        (forger.properties).extend([
            ("URL_3B4293".to_owned(), value()),
            ("URL_0123456789".to_owned(), value()),
            ("URL_3b4293".to_owned(), value()),
            ("URL_3B429".to_owned(), value()),
            ("URL_3B429G".to_owned(), value()),
        ]);
        let more = BTreeMap::from([("URL_C0FFEE".to_owned(), value())]);
        let edits = edits(&[Given {
            digest: "aaaaaa",
            slot: &SlotId::new("cam-aaaaaa", 0),
            device: &forger,
            broker_properties: &more,
        }]);
        let names: Vec<_> = edits.env.keys().filter(|k| k.starts_with("URL")).collect();
        assert_eq!(
            names,
            [
                "URL",
                "URL_0123456789_X",
                "URL_0123456789_X_AAAAAA",
                "URL_3B429",
                "URL_3B4293_X",
                "URL_3B4293_X_AAAAAA",
                "URL_3B429G",
                "URL_3B429G_AAAAAA",
                "URL_3B429_AAAAAA",
                "URL_3b4293",
                "URL_3b4293_AAAAAA",
                "URL_AAAAAA",
                "URL_C0FFEE_X",
                "URL_C0FFEE_X_AAAAAA",
            ]
        );
        assert_eq!(edits.env["URL_AAAAAA"], "rtsp://a");
    }

    #[test]
    fn the_configuration_wins_over_the_device() {
        let device = camera("a", "rtsp://a");
        let more = BTreeMap::from([("URL".to_owned(), "rtsp://proxy".to_owned())]);
        let edits = edits(&[Given {
            digest: "aaaaaa",
            slot: &SlotId::new("cam-aaaaaa", 0),
            device: &device,
            broker_properties: &more,
        }]);
        assert_eq!(edits.env["URL"], "rtsp://proxy");
        assert_eq!(edits.env["URL_AAAAAA"], "rtsp://proxy");
    }
}
