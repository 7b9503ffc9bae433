//! Updates the tree of selected devices from sysfs: completely, or at some paths.
use super::{
    details::{Details, USB_ATTRIBUTES},
    plan::Tree,
    record::{Chain, Record, parents},
    rules::DeviceHead,
    sysfs::{Candidate, Sysfs, SysfsLook},
    uevent::Event,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The outcome of reading a device.
enum Found {
    Taken(Chain),
    /// udev has not processed it yet.
    Waiting,
    Other,
}

/// One look at devices. An ancestor of several devices is read once.
struct Scan<'a> {
    sysfs: &'a Sysfs,
    details: &'a Details,
    attributes: BTreeSet<String>,
    ancestors: BTreeMap<String, Option<Arc<Record>>>,
    /// True if a device is complete only with udev's entry of it.
    waits_for_udev: bool,
}

/// Reads all devices.
pub(super) fn all(sysfs: &Sysfs, details: &Details) -> Tree {
    let is_wanted = |subsystem: &str| details.may_take_subsystem(subsystem);
    let look = sysfs.all(is_wanted, details.candidates_max());
    let mut tree = Tree::default();
    if look.is_cut {
        tree.problems.push(format!(
            "the node has more than {} devices of the subsystems that the rules may take, and the others are left out: name a SUBSYSTEM in each rule, and use fewer rules and patterns",
            look.candidates.len()
        ));
    }
    Scan::new(sysfs, details).add(look, &mut tree);
    tree
}

/// Reads the devices again that events name.
pub(super) fn again(sysfs: &Sysfs, details: &Details, mut tree: Tree, events: &[Event]) -> Tree {
    let mut paths = BTreeSet::new();
    for event in events {
        match event {
            Event::Anything => return all(sysfs, details),
            Event::Device {
                devpath,
                subsystem,
                is_alone,
            } => {
                let kernel = super::record::kernel_name(devpath);
                let place = DeviceHead {
                    devpath,
                    kernel: &kernel,
                    subsystem,
                };
                if !is_alone || details.may_take(place) || tree.has_at_or_below(devpath) {
                    paths.insert(devpath.as_str());
                }
            }
        }
    }
    at(sysfs, details, tree_without(&mut tree, &paths), &paths)
}

/// Reads the devices that udev has not processed in time, without its entry.
pub(super) fn without_udev(sysfs: &Sysfs, details: &Details, mut tree: Tree) -> Tree {
    let waiting = std::mem::take(&mut tree.waiting);
    let mut scan = Scan::without_udev(sysfs, details);
    for devpath in waiting {
        scan.add(sysfs.at_and_below(&devpath), &mut tree);
    }
    tree
}

fn tree_without(tree: &mut Tree, paths: &BTreeSet<&str>) -> Tree {
    for path in paths {
        tree.forget(path);
    }
    std::mem::take(tree)
}

fn at(sysfs: &Sysfs, details: &Details, mut tree: Tree, paths: &BTreeSet<&str>) -> Tree {
    let mut scan = Scan::new(sysfs, details);
    for path in paths {
        let look = sysfs.at_and_below(path);
        if look.is_cut {
            return all(sysfs, details);
        }
        scan.add(look, &mut tree);
    }
    tree
}

impl<'a> Scan<'a> {
    fn new(sysfs: &'a Sysfs, details: &'a Details) -> Self {
        Self {
            waits_for_udev: sysfs.has_udev(),
            ..Self::without_udev(sysfs, details)
        }
    }

    fn without_udev(sysfs: &'a Sysfs, details: &'a Details) -> Self {
        Self {
            sysfs,
            details,
            attributes: details.attributes(),
            ancestors: BTreeMap::new(),
            waits_for_udev: false,
        }
    }

    fn add(&mut self, look: SysfsLook, tree: &mut Tree) {
        for candidate in look.candidates {
            match self.find(&candidate) {
                Found::Taken(chain) => drop(tree.taken.insert(candidate.devpath, chain)),
                Found::Waiting => drop(tree.waiting.insert(candidate.devpath)),
                Found::Other => {}
            }
        }
    }

    fn find(&mut self, candidate: &Candidate) -> Found {
        let kernel = candidate.kernel();
        let place = DeviceHead {
            devpath: &candidate.devpath,
            kernel: &kernel,
            subsystem: &candidate.subsystem,
        };
        if !self.details.may_take(place) {
            return Found::Other;
        }
        let Some(own) = self.read(&candidate.devpath) else {
            return Found::Other;
        };
        if self.waits_for_udev && own.is_always_in_database() && !own.is_in_database {
            return Found::Waiting;
        }
        let ancestors = parents(&candidate.devpath)
            .filter_map(|path| Some((path.to_owned(), self.ancestor(path)?)))
            .collect();
        let chain = Chain::new(candidate.devpath.clone(), own, ancestors);
        if self.details.take(&chain) {
            Found::Taken(chain)
        } else {
            Found::Other
        }
    }

    fn ancestor(&mut self, path: &str) -> Option<Arc<Record>> {
        if let Some(known) = self.ancestors.get(path) {
            return known.clone();
        }
        let read = self.read(path);
        self.ancestors.insert(path.to_owned(), read.clone());
        read
    }

    fn read(&self, devpath: &str) -> Option<Arc<Record>> {
        let names = self.attributes.iter().map(String::as_str);
        let is_usb = devpath.contains("/usb");
        let usb = USB_ATTRIBUTES.into_iter().filter(|_| is_usb);
        self.sysfs.record(devpath, names.chain(usb)).map(Arc::new)
    }
}
