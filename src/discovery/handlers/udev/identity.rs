//! Recognizes devices by their serial numbers. Pure.
//!
//! A USB device keeps its serial number in another port, but its path in sysfs changes.
use super::record::{Chain, Record};
use std::collections::{BTreeMap, BTreeSet};

/// A serial number, with its scope and the part of the device.
struct Serial<'a> {
    base: String,
    devpath: &'a str,
    /// The part of the device: `/1.0/tty`, or empty for the device itself.
    part: String,
}

/// Returns the id of each device, in their order: by serial number, or else by path. Two devices with one serial number
/// have ids by path, because they could not be distinguished after a move.
pub(super) fn by_serial(devices: &[&Chain], problems: &mut Vec<String>) -> Vec<String> {
    let serials: Vec<Option<Serial<'_>>> = devices.iter().map(|chain| serial(chain)).collect();
    let mut owners: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for serial in serials.iter().flatten() {
        owners
            .entry(&serial.base)
            .or_default()
            .insert(serial.devpath);
    }
    for (base, devices) in owners.iter().filter(|(_, devices)| devices.len() > 1) {
        problems.push(format!(
            "{} devices have the serial number {base}: their identity is their path in sysfs",
            devices.len()
        ));
    }
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let id = |(chain, serial): (&&Chain, &Option<Serial<'_>>)| {
        let unique = (serial.as_ref()).filter(|serial| owners[serial.base.as_str()].len() == 1);
        let Some(serial) = unique else {
            return chain.devpath().to_owned();
        };
        let id = format!("{}{}", serial.base, serial.part);
        let count = seen.entry(id.clone()).or_default();
        *count += 1;
        match *count {
            1 => id,
            more => format!("{id}/{more}"),
        }
    };
    devices.iter().zip(&serials).map(id).collect()
}

fn serial(chain: &Chain) -> Option<Serial<'_>> {
    let attribute = |record: &Record, name: &str| {
        let value = record
            .attributes
            .get(name)
            .map(|value| value.trim().to_owned());
        value.filter(|value| !value.is_empty())
    };
    let usb = chain
        .links()
        .find(|(_, record)| record.is_type("usb_device"));
    if let Some((devpath, record)) = usb {
        let (vendor, product) = (
            attribute(record, "idVendor")?,
            attribute(record, "idProduct")?,
        );
        let serial = attribute(record, "serial")?;
        return Some(Serial {
            base: format!("usb-{vendor}:{product}-{serial}"),
            devpath,
            part: part(chain, devpath),
        });
    }
    // Disks on other buses have this property, because udev's rules read their serial number.
    chain.property("ID_SERIAL_SHORT")?;
    let whole = chain
        .property("ID_SERIAL")
        .filter(|serial| !serial.is_empty())?;
    Some(Serial {
        base: format!("{}-{whole}", chain.own().subsystem.as_deref()?),
        devpath: chain.devpath(),
        part: chain
            .property("PARTN")
            .map(|n| format!("/{n}"))
            .unwrap_or_default(),
    })
}

/// Returns the part of a USB device. Numbers that the kernel gives in the order of plugging are left out.
fn part(chain: &Chain, usb_device: &str) -> String {
    if chain.devpath() == usb_device {
        return String::new();
    }
    let interface = chain
        .links()
        .find(|(_, record)| record.is_type("usb_interface"));
    let number = interface.and_then(|(path, _)| path.rsplit_once(':').map(|(_, number)| number));
    let number = number
        .map(|number| format!("/{number}"))
        .unwrap_or_default();
    format!(
        "{number}/{}",
        chain.own().subsystem.as_deref().unwrap_or_default()
    )
}
