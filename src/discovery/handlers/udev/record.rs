//! Holds the data of one device of the kernel: its `uevent` file, its attributes and its entry in udev's database.
//! Pure.
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The most bytes of one property or link of udev. udev has the same limit. Beyond it: it is left out.
const VALUE_MAX: usize = 16 << 10;

/// One device of sysfs. Its path is its key in the tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) subsystem: Option<String>,
    pub(super) driver: Option<String>,
    /// The lines of its `uevent` file, and the lines that udev's rules added.
    pub(super) properties: BTreeMap<String, String>,
    pub(super) tags: BTreeSet<String>,
    /// The symbolic links that udev made, without `/dev/`.
    pub(super) links: BTreeSet<String>,
    /// The requested attributes that the device has.
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) iommu_group: Option<String>,
    /// True if udev's database has an entry of the device.
    pub(super) is_in_database: bool,
}

/// A device and its ancestors. The device comes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chain {
    devpath: String,
    own: Arc<Record>,
    ancestors: Vec<(String, Arc<Record>)>,
}

impl Chain {
    pub(super) fn new(
        devpath: String,
        own: Arc<Record>,
        ancestors: Vec<(String, Arc<Record>)>,
    ) -> Self {
        Self {
            devpath,
            own,
            ancestors,
        }
    }

    /// Returns the path in sysfs without `/sys`.
    pub(super) fn devpath(&self) -> &str {
        &self.devpath
    }

    pub(super) fn own(&self) -> &Record {
        &self.own
    }

    /// Iterates over the device, its parent, and so on.
    pub(super) fn links(&self) -> impl Iterator<Item = (&str, &Record)> {
        let ancestors = self.ancestors.iter().map(|(path, r)| (path.as_str(), &**r));
        std::iter::once((self.devpath(), self.own())).chain(ancestors)
    }

    /// Returns a property as libudev does. Some properties are derived, because they are not stored anywhere.
    pub(super) fn property(&self, name: &str) -> Option<Cow<'_, str>> {
        let own = self.own();
        let joined = |texts: &BTreeSet<String>| {
            let all: Vec<&str> = texts.iter().map(String::as_str).collect();
            format!(":{}:", all.join(":"))
        };
        let written = || own.properties.get(name).map(String::as_str);
        match name {
            "DEVPATH" => Some(self.devpath().into()),
            "SUBSYSTEM" => own.subsystem.as_deref().map(Cow::from),
            "DEVNAME" => own.devnode().map(Cow::from),
            "TAGS" => (!own.tags.is_empty()).then(|| joined(&own.tags).into()),
            "DEVLINKS" => {
                let links: Vec<String> = own.links.iter().map(|l| format!("/dev/{l}")).collect();
                (!links.is_empty()).then(|| links.join(" ").into())
            }
            _ => written().map(Cow::from),
        }
    }
}

impl Record {
    /// Adds the lines `KEY=value` of a `uevent` file.
    pub(super) fn read_uevent(&mut self, text: &str) {
        let lines = lines(text).filter_map(|line| line.split_once('='));
        (self.properties).extend(lines.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    /// Adds an entry of udev's database.
    pub(super) fn read_database(&mut self, text: &str) {
        self.is_in_database = true;
        for line in lines(text) {
            match line.split_once(':') {
                Some(("E", property)) => {
                    if let Some((key, value)) = property.split_once('=') {
                        self.properties.insert(key.to_owned(), value.to_owned());
                    }
                }
                Some(("G", tag)) => drop(self.tags.insert(tag.to_owned())),
                Some(("S", link)) => drop(self.links.insert(link.to_owned())),
                Some(_) | None => {}
            }
        }
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.properties.get(name)?.parse().ok()
    }

    /// Returns the path of the device node, if the kernel made one.
    pub(super) fn devnode(&self) -> Option<String> {
        self.number("MAJOR")?;
        let name = self.properties.get("DEVNAME")?;
        let name = name.strip_prefix("/dev/").unwrap_or(name);
        let is_path = name.split('/').all(|part| !matches!(part, "" | "." | ".."));
        is_path.then(|| format!("/dev/{name}"))
    }

    /// Returns the name of the device's file in udev's database.
    pub(super) fn database_key(&self, devpath: &str) -> Option<String> {
        let subsystem = self.subsystem.as_deref()?;
        if let (Some(major), Some(minor)) = (self.number("MAJOR"), self.number("MINOR")) {
            let kind = if subsystem == "block" { 'b' } else { 'c' };
            return Some(format!("{kind}{major}:{minor}"));
        }
        match self.number("IFINDEX") {
            Some(index) => Some(format!("n{index}")),
            None => Some(format!("+{subsystem}:{}", last_part(devpath))),
        }
    }

    /// Returns whether udev, where it runs, always writes an entry of the device.
    pub(super) fn is_always_in_database(&self) -> bool {
        self.number("MAJOR").is_some() || self.number("IFINDEX").is_some()
    }

    pub(super) fn is_type(&self, devtype: &str) -> bool {
        self.properties
            .get("DEVTYPE")
            .is_some_and(|own| own == devtype)
    }
}

/// Returns the lines that are valid in a variable: without NUL, and of bounded length.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| line.len() <= VALUE_MAX && !line.contains('\0'))
}

fn last_part(devpath: &str) -> &str {
    devpath.rsplit_once('/').map_or(devpath, |(_, name)| name)
}

/// Returns the kernel's name of a device. sysfs writes `!` for a slash.
pub(super) fn kernel_name(devpath: &str) -> Cow<'_, str> {
    let name = last_part(devpath);
    if name.contains('!') {
        name.replace('!', "/").into()
    } else {
        name.into()
    }
}

/// Returns the paths above a device, the nearest first.
pub(super) fn parents(devpath: &str) -> impl Iterator<Item = &str> {
    fn parent<'a>(path: &&'a str) -> Option<&'a str> {
        let (parent, _) = path.rsplit_once('/')?;
        (!parent.is_empty()).then_some(parent)
    }
    std::iter::successors(parent(&devpath), parent)
}

/// Returns whether `devpath` is `top` or below it. Paths are compared by part: `1-10` is not below `1-1`.
pub(super) fn is_at_or_below(devpath: &str, top: &str) -> bool {
    (devpath.strip_prefix(top)).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_database_adds_properties_tags_and_links() {
        let mut record = Record {
            subsystem: Some("tty".to_owned()),
            ..Record::default()
        };
        record.read_uevent("MAJOR=188\nMINOR=0\nDEVNAME=ttyUSB0\nno line\n");
        assert_eq!(record.database_key("/devices/x/ttyUSB0").unwrap(), "c188:0");
        record.read_database(
            "S:serial/by-id/usb-FTDI-if00\nI:12\nE:ID_SERIAL=FTDI_A1\nE:bad\nG:systemd\nQ:systemd\nV:1\n\u{0}",
        );
        let chain = Chain::new("/devices/x/ttyUSB0".to_owned(), Arc::new(record), vec![]);
        for (name, value) in [
            ("ID_SERIAL", Some("FTDI_A1")),
            ("DEVNAME", Some("/dev/ttyUSB0")),
            ("DEVLINKS", Some("/dev/serial/by-id/usb-FTDI-if00")),
            ("TAGS", Some(":systemd:")),
            ("DEVPATH", Some("/devices/x/ttyUSB0")),
            ("SUBSYSTEM", Some("tty")),
            ("OTHER", None),
        ] {
            assert_eq!(chain.property(name).as_deref(), value, "{name}");
        }
    }

    #[test]
    fn each_kind_of_device_has_its_own_file_in_the_database() {
        let key = |subsystem: &str, uevent: &str| {
            let mut record = Record {
                subsystem: Some(subsystem.to_owned()),
                ..Record::default()
            };
            record.read_uevent(uevent);
            record.database_key("/devices/a/0000:01:00.0").unwrap()
        };
        assert_eq!(key("block", "MAJOR=8\nMINOR=1"), "b8:1");
        assert_eq!(key("net", "IFINDEX=3"), "n3");
        assert_eq!(key("pci", ""), "+pci:0000:01:00.0");
    }

    #[test]
    fn a_devnode_stays_in_dev() {
        let node = |name: &str| {
            let mut record = Record::default();
            record.read_uevent(&format!("MAJOR=1\nDEVNAME={name}"));
            record.devnode()
        };
        assert_eq!(node("bus/usb/001/004").unwrap(), "/dev/bus/usb/001/004");
        assert_eq!(node("/dev/sda").unwrap(), "/dev/sda");
        for bad in ["../etc/passwd", "", "a//b", "/etc/passwd", "."] {
            assert_eq!(node(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_path_is_below_another_part_by_part() {
        assert!(is_at_or_below(
            "/devices/usb1/1-1/1-1:1.0",
            "/devices/usb1/1-1"
        ));
        assert!(is_at_or_below("/devices/usb1/1-1", "/devices/usb1/1-1"));
        assert!(!is_at_or_below("/devices/usb1/1-10", "/devices/usb1/1-1"));
        let all: Vec<&str> = parents("/devices/a/b").collect();
        assert_eq!(all, ["/devices/a", "/devices"]);
        assert_eq!(kernel_name("/devices/x/cciss!c0d0"), "cciss/c0d0");
    }
}
