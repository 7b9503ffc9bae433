//! Tests with recorded trees of sysfs, from folder to devices: a hub of serial adapters, a webcam, a GPU, a Jetson, and
//! changes of them.
use super::*;
use crate::model::device::Device;
use std::{fs, os::unix::fs::symlink};
use tokio::sync::mpsc;

mod events;
mod machines;
mod named;

/// The folders of a machine, as the kernel and udev make them.
struct Machine {
    root: tempfile::TempDir,
}

/// A device to be added to a machine.
#[derive(Clone, Copy)]
struct Part<'a> {
    /// A value such as `class/tty` or `bus/usb`.
    subsystem: &'a str,
    devpath: &'a str,
    uevent: &'a str,
    attributes: &'a [(&'a str, &'a str)],
}

impl Machine {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for folder in ["sys/devices", "sys/class", "sys/bus", "run/udev/data"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        Self { root }
    }

    /// Creates a machine as `new` does, on which udev runs.
    fn with_udev() -> Self {
        let machine = Self::new();
        fs::write(machine.root.path().join("run/udev/control"), "").unwrap();
        machine
    }

    fn folder(&self, devpath: &str) -> PathBuf {
        self.root.path().join("sys").join(&devpath[1..])
    }

    fn plug(&self, part: Part<'_>) {
        let folder = self.folder(part.devpath);
        fs::create_dir_all(&folder).unwrap();
        let (kind, subsystem) = part.subsystem.split_once('/').unwrap();
        let name = part.devpath.rsplit_once('/').unwrap().1;
        let up = "../".repeat(part.devpath.matches('/').count());
        let link = |target: String, path: PathBuf| {
            if fs::symlink_metadata(&path).is_err() {
                symlink(target, path).unwrap();
            }
        };
        link(format!("{up}{kind}/{subsystem}"), folder.join("subsystem"));
        let (entries, up) = match kind {
            "bus" => (format!("sys/bus/{subsystem}/devices"), "../../.."),
            _ => (format!("sys/class/{subsystem}"), "../.."),
        };
        let entries = self.root.path().join(entries);
        fs::create_dir_all(&entries).unwrap();
        link(format!("{up}{}", part.devpath), entries.join(name));
        for (name, value) in part.attributes {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match name {
                &"driver" | &"iommu_group" => link(format!("../x/{value}"), path),
                _ => fs::write(path, format!("{value}\n")).unwrap(),
            }
        }
        fs::write(folder.join("uevent"), part.uevent).unwrap();
    }

    /// Plugs a camera into a port. It has no parts yet.
    fn camera(&self, port: &str) -> String {
        let devpath = format!("/devices/usb1/{port}");
        self.plug(Part {
            subsystem: "bus/usb",
            devpath: &devpath,
            uevent: "DEVTYPE=usb_device\nMAJOR=189\nMINOR=1\nDEVNAME=bus/usb/001/002\n",
            attributes: &[
                ("idVendor", "046d"),
                ("idProduct", "0825"),
                ("serial", "C920"),
            ],
        });
        devpath
    }

    /// Adds a part to a camera.
    fn video(&self, camera: &str, n: u32) -> String {
        let devpath = format!("{camera}/1.0/video4linux/video{n}");
        self.plug(Part {
            subsystem: "class/video4linux",
            devpath: &devpath,
            uevent: &format!("MAJOR=81\nMINOR={n}\nDEVNAME=video{n}\n"),
            attributes: &[],
        });
        devpath
    }

    /// Removes a device in the kernel's order: the `uevent` file first, then the links.
    fn pull(&self, devpath: &str) {
        fs::remove_dir_all(self.folder(devpath)).unwrap();
    }

    fn udev_says(&self, key: &str, entry: &str) {
        fs::write(self.root.path().join("run/udev/data").join(key), entry).unwrap();
    }

    fn look(&self, details: &str) -> Arc<Parameters> {
        self.look_with(details, &[])
    }

    fn look_with(&self, details: &str, properties: &[(&str, &str)]) -> Arc<Parameters> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let properties = properties.iter().map(owned).collect();
        let udev = Udev::new(self.root.path(), Subsystems::All);
        Arc::new(udev.parameters(details, &properties).unwrap())
    }

    fn devices(&self, details: &str) -> Vec<Device> {
        devices_of(&self.look(details))
    }
}

fn set_of(parameters: &Parameters) -> DeviceSet {
    let tree = scan::again(
        parameters,
        Tree::default(),
        &[Event::Anything],
        Instant::now(),
    );
    plan::devices(&tree, &parameters.details, &parameters.allowed)
}

fn devices_of(parameters: &Parameters) -> Vec<Device> {
    let set = set_of(parameters);
    assert!(set.complete);
    set.devices
        .into_values()
        .map(|device| (*device).clone())
        .collect()
}

fn ids(devices: &[Device]) -> Vec<&str> {
    devices.iter().map(|device| device.id.as_str()).collect()
}

fn nodes(device: &Device) -> Vec<&str> {
    (device.device_nodes.iter())
        .map(|node| node.host_path.as_str())
        .collect()
}

fn rule(rule: &str) -> String {
    format!("udevRules: ['{rule}']")
}
