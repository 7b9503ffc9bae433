//! Updates the tree of selected devices from sysfs: completely, or at some paths.
use super::{
    details::{Details, USB_ATTRIBUTES},
    parameters::Parameters,
    plan::Tree,
    record::{Chain, Record, parents},
    rules::DeviceHead,
    subsystems::Subsystems,
    sysfs::{Candidate, Sysfs, SysfsLook},
    uevent::Event,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// The time that udev gets to process a new device. Its rules query slow devices.
pub(super) const UDEV_PATIENCE: Duration = Duration::from_secs(3);

/// One look at devices. An ancestor of several devices is read once.
struct Scan<'a> {
    sysfs: &'a Sysfs,
    details: &'a Details,
    allowed: &'a Subsystems,
    attributes: BTreeSet<String>,
    ancestors: BTreeMap<String, Option<Arc<Record>>>,
    /// Until when udev has the time for a device that is new to us: no time, if udev does not run.
    until: Option<Instant>,
    /// The devices that were known without udev's entry before this look.
    unprocessed: BTreeMap<String, Option<Instant>>,
    tree: Tree,
}

/// Reads the devices again that events name, and those that udev has not processed in time.
pub(super) fn again(
    parameters: &Parameters,
    mut tree: Tree,
    events: &[Event],
    now: Instant,
) -> Tree {
    let mut paths = tree.end_waits(now);
    let Parameters { sysfs, details, .. } = parameters;
    let until = sysfs.has_udev().then(|| now + UDEV_PATIENCE);
    for event in events {
        match event {
            Event::Anything => return Scan::new(parameters, tree, until).all(),
            Event::Device {
                devpath,
                subsystem,
                is_alone,
                is_removal,
            } => {
                if *is_removal {
                    tree.end_time_of(devpath);
                }
                let kernel = super::record::kernel_name(devpath);
                let place = DeviceHead {
                    devpath,
                    kernel: &kernel,
                    subsystem,
                };
                if !is_alone || details.may_take(place) || tree.has_at_or_below(devpath) {
                    paths.insert(devpath.clone());
                }
            }
        }
    }
    Scan::new(parameters, tree, until).at(&paths)
}

impl<'a> Scan<'a> {
    fn new(parameters: &'a Parameters, tree: Tree, until: Option<Instant>) -> Self {
        let Parameters {
            sysfs,
            details,
            allowed,
            ..
        } = parameters;
        Self {
            sysfs,
            details,
            allowed,
            attributes: details.attributes(),
            ancestors: BTreeMap::new(),
            until,
            unprocessed: tree.unprocessed.clone(),
            tree,
        }
    }

    /// Reads all devices.
    fn all(mut self) -> Tree {
        let is_wanted = |subsystem: &str| self.details.may_take_subsystem(subsystem);
        let look = self.sysfs.all(is_wanted, self.details.candidates_max());
        self.tree = Tree::default();
        if look.is_cut {
            self.tree.problems.push(format!(
                "the node has more than {} devices of the subsystems that the rules may take, and the others are left out: name a SUBSYSTEM in each rule, and use fewer rules and patterns",
                look.candidates.len()
            ));
        }
        self.add(look);
        self.tree
    }

    /// Reads the devices at these paths, and those below them.
    fn at(mut self, paths: &BTreeSet<String>) -> Tree {
        for path in paths {
            self.tree.forget(path);
        }
        for path in paths {
            let look = self.sysfs.at_and_below(path);
            if look.is_cut {
                return self.all();
            }
            self.add(look);
        }
        self.tree
    }

    fn add(&mut self, look: SysfsLook) {
        for candidate in look.candidates {
            let Some(chain) = self.find(&candidate) else {
                continue;
            };
            let subsystem = chain.own().subsystem.clone().unwrap_or_default();
            if self.allowed.allow(&subsystem) {
                self.tree.taken.insert(candidate.devpath, chain);
            } else {
                self.tree.refused.insert(candidate.devpath, subsystem);
            }
        }
    }

    /// Reads a device. Returns it if the rules take it now.
    fn find(&mut self, candidate: &Candidate) -> Option<Chain> {
        let devpath = &candidate.devpath;
        let kernel = candidate.kernel();
        let place = DeviceHead {
            devpath,
            kernel: &kernel,
            subsystem: &candidate.subsystem,
        };
        if !self.details.may_take(place) {
            return None;
        }
        let own = self.read(devpath)?;
        if own.is_always_in_database() && !own.is_in_database {
            let until = *self.unprocessed.get(devpath).unwrap_or(&self.until);
            self.tree.unprocessed.insert(devpath.clone(), until);
            if until.is_some() {
                return None;
            }
        }
        let ancestors = parents(devpath)
            .filter_map(|path| Some((path.to_owned(), self.ancestor(path)?)))
            .collect();
        let chain = Chain::new(devpath.clone(), own, ancestors);
        self.details.take(&chain).then_some(chain)
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
