//! Reads devices from sysfs and from udev's database. It decides only where to look.
use super::record::{Record, kernel_name};
use crate::files;
use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

/// The largest file of sysfs that is read, in bytes. A `uevent` file or an attribute has at most a page; some files
/// are larger, such as a device's configuration space. Beyond it: it counts as missing.
const FILE_MAX: u64 = 64 << 10;
/// The largest entry of udev's database that is read, in bytes. Beyond it: it counts as missing.
const ENTRY_MAX: u64 = 256 << 10;
/// The most folders below one device that are searched. Beyond it: the search ends, and devices that are not seen
/// stay as they were.
const FOLDERS_MAX: usize = 4096;

/// The folders of one machine.
#[derive(Debug, Clone)]
pub(super) struct Sysfs {
    sys: PathBuf,
    udev: PathBuf,
}

/// A device to which rules may apply.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    pub(super) devpath: String,
    pub(super) subsystem: String,
}

/// The devices that a look found, and whether these are all.
#[derive(Debug, Default)]
pub(super) struct SysfsLook {
    pub(super) candidates: BTreeSet<Candidate>,
    pub(super) is_cut: bool,
}

impl Sysfs {
    /// Creates the reader. `root` is `/`, except in tests.
    pub(super) fn new(root: &Path) -> Self {
        Self {
            sys: root.join("sys"),
            udev: root.join("run/udev"),
        }
    }

    /// Returns an error if there is no sysfs.
    pub(super) fn check(&self) -> io::Result<()> {
        let devices = self.sys.join("devices");
        fs::metadata(&devices)
            .map(drop)
            .map_err(|e| files::at(&devices, &e))
    }

    /// Returns whether udev runs, so that it processes each new device.
    pub(super) fn has_udev(&self) -> bool {
        self.udev.join("control").exists()
    }

    /// Returns at most `most` devices of the subsystems that `is_wanted` selects.
    pub(super) fn all(&self, is_wanted: impl Fn(&str) -> bool, most: usize) -> SysfsLook {
        let mut look = SysfsLook::default();
        for subsystem in names(&self.sys.join("bus")) {
            if is_wanted(&subsystem) {
                let folder = self.sys.join("bus").join(&subsystem).join("devices");
                look.is_cut |= !self.links(
                    &folder,
                    &["bus", &subsystem, "devices"],
                    most,
                    &mut look.candidates,
                );
            }
        }
        for subsystem in names(&self.sys.join("class")) {
            if is_wanted(&subsystem) {
                let folder = self.sys.join("class").join(&subsystem);
                look.is_cut |=
                    !self.links(&folder, &["class", &subsystem], most, &mut look.candidates);
            }
        }
        look
    }

    /// Adds the devices to which the links of a folder lead. Returns whether these are all.
    fn links(
        &self,
        folder: &Path,
        base: &[&str],
        most: usize,
        candidates: &mut BTreeSet<Candidate>,
    ) -> bool {
        for name in names(folder) {
            if candidates.len() >= most {
                return false;
            }
            let target = fs::read_link(folder.join(&name)).ok();
            let devpath = target.and_then(|target| resolved(base, target.to_str()?));
            candidates.extend(devpath.map(|devpath| Candidate {
                devpath,
                subsystem: base[1].to_owned(),
            }));
        }
        true
    }

    /// Returns the device at a path and those below it.
    pub(super) fn at_and_below(&self, devpath: &str) -> SysfsLook {
        let mut look = SysfsLook::default();
        let mut folders = vec![devpath.to_owned()];
        let mut count = 0;
        while let Some(devpath) = folders.pop() {
            let folder = self.folder(&devpath);
            count += 1;
            if count > FOLDERS_MAX {
                look.is_cut = true;
                break;
            }
            let Ok(entries) = fs::read_dir(&folder) else {
                continue; // it is gone
            };
            for entry in entries
                .flatten()
                .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
            {
                if let Some(name) = entry.file_name().to_str() {
                    folders.push(format!("{devpath}/{name}"));
                }
            }
            if let Some(subsystem) = last_of_link(&folder.join("subsystem")) {
                look.candidates.insert(Candidate { devpath, subsystem });
            }
        }
        look
    }

    fn folder(&self, devpath: &str) -> PathBuf {
        self.sys.join(devpath.trim_start_matches('/'))
    }

    /// Reads a device. Returns `None` without a `uevent` file, because the kernel removes that file first.
    pub(super) fn record<'a>(
        &self,
        devpath: &str,
        attributes: impl Iterator<Item = &'a str>,
    ) -> Option<Record> {
        let folder = self.folder(devpath);
        let uevent = files::read_text(&folder.join("uevent"), FILE_MAX).ok()?;
        let mut record = Record {
            subsystem: last_of_link(&folder.join("subsystem")),
            driver: last_of_link(&folder.join("driver")),
            iommu_group: last_of_link(&folder.join("iommu_group")),
            ..Record::default()
        };
        record.read_uevent(&uevent);
        if let Some(key) = record.database_key(devpath) {
            let entry = files::read_text(&self.udev.join("data").join(key), ENTRY_MAX);
            if let Ok(entry) = entry {
                record.read_database(&entry);
            }
        }
        for name in attributes {
            let value = attribute(&folder, name);
            record
                .attributes
                .extend(value.map(|value| (name.to_owned(), value)));
        }
        Some(record)
    }
}

/// Reads an attribute as libudev does: without the last white space, and only the last part of some links.
fn attribute(folder: &Path, name: &str) -> Option<String> {
    let path = folder.join(name);
    if matches!(name, "driver" | "subsystem" | "module") {
        return last_of_link(&path);
    }
    let value = files::read_text(&path, FILE_MAX).ok()?;
    Some(value.trim_end().trim_end_matches('\0').to_owned())
}

/// Returns the names in a folder, or none if it does not exist.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

fn last_of_link(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

/// Returns the path of the device to which a relative link in the folder `base` of sysfs leads.
fn resolved(base: &[&str], target: &str) -> Option<String> {
    let mut parts = base.to_vec();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    (parts.len() > 1 && parts[0] == "devices").then(|| format!("/{}", parts.join("/")))
}

impl Candidate {
    /// Returns the kernel's name, which rules can use before the device is read.
    pub(super) fn kernel(&self) -> std::borrow::Cow<'_, str> {
        kernel_name(&self.devpath)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_to_a_device_or_nowhere() {
        let class = ["class", "tty"];
        let path = "../../devices/pci0000:00/tty/ttyS0";
        assert_eq!(
            resolved(&class, path).unwrap(),
            "/devices/pci0000:00/tty/ttyS0"
        );
        for bad in ["../../module/x", "../../../etc", "x", "../../devices", ""] {
            assert_eq!(resolved(&class, bad), None, "{bad}");
        }
        let bus = ["bus", "usb", "devices"];
        assert_eq!(
            resolved(&bus, "../../../devices/usb1").unwrap(),
            "/devices/usb1"
        );
    }
}
