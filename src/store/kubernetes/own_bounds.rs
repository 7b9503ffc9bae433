//! Keeps this node's NodeDevices within its bytes: the API server refuses an object above 1.5 MB, and then no device would
//! be reported any more. Pure.
use crate::{
    api::{
        configuration::Problem,
        node_devices::{ConfigurationView, NodeDevicesSpec, SeenDevice},
        reason::Reason,
    },
    model::{budget::json_bytes, limits, typed_names::ConfigurationKey},
    store::interface::Report,
};
use std::collections::{BTreeMap, BTreeSet};

/// The bytes of a message that is cut because there is no room for all.
const SHORT_MESSAGE: usize = 96;
/// The bytes that a problem about devices that are left out may take.
const RESERVED: usize = 512;

/// Makes the object fit into `most` bytes: messages are cut, then the newest devices without an Instance are left out, those
/// of the namespace first that has the most bytes of them, and there of the Configuration that has the most.
pub(super) fn fit(
    spec: &mut NodeDevicesSpec,
    reports: &BTreeMap<ConfigurationKey, Report>,
    most: usize,
) {
    let mut bytes = json_bytes(spec);
    if bytes <= most {
        return;
    }
    spec.configurations.iter_mut().for_each(cut_messages);
    bytes = json_bytes(spec);
    let mut candidates: Vec<Candidates> = (spec.configurations.iter().zip(reports.values()))
        .map(|(view, report)| Candidates::new(view, report))
        .collect();
    while bytes > most
        && let Some(largest) = largest(&mut candidates)
        && let Some(saved) = largest.leave_out_newest()
    {
        bytes = bytes.saturating_sub(saved);
    }
    for (view, candidates) in spec.configurations.iter_mut().zip(candidates) {
        candidates.apply(view, most);
    }
    // Instances that were made while there was no such bound: what is not reported stays as it is.
    while json_bytes(spec) > most
        && let Some(largest) = spec
            .configurations
            .iter_mut()
            .max_by_key(|view| view.all().count())
        && largest.all().next().is_some()
    {
        for devices in lists(largest) {
            devices.truncate(devices.len() / 2);
        }
        largest.complete = false;
    }
}

fn lists(view: &mut ConfigurationView) -> impl Iterator<Item = &mut Vec<SeenDevice>> {
    [&mut view.devices].into_iter().chain(&mut view.own)
}

fn cut_messages(view: &mut ConfigurationView) {
    let short = |text: &mut String| *text = limits::cut(std::mem::take(text), SHORT_MESSAGE);
    view.problems
        .iter_mut()
        .for_each(|problem| short(&mut problem.message));
    let messages = |device: &mut SeenDevice| {
        device
            .flapping
            .iter_mut()
            .chain(&mut device.other_host)
            .for_each(short);
    };
    lists(view).flatten().for_each(messages);
}

/// Returns the largest Configuration of the namespace whose Configurations are largest together.
fn largest(candidates: &mut [Candidates]) -> Option<&mut Candidates> {
    let mut of_namespaces: BTreeMap<&str, usize> = BTreeMap::new();
    for one in candidates.iter() {
        *of_namespaces.entry(&one.namespace).or_default() += one.bytes;
    }
    let (namespace, _) = of_namespaces.into_iter().max_by_key(|(_, bytes)| *bytes)?;
    let namespace = namespace.to_owned();
    let of_it = candidates.iter_mut();
    let of_it = of_it.filter(|one| one.namespace == namespace);
    of_it.max_by_key(|one| one.bytes)
}

/// The devices of one Configuration that have no Instance.
struct Candidates {
    namespace: String,
    /// The bytes of each, the newest last.
    devices: Vec<(String, usize)>,
    bytes: usize,
    left_out: BTreeSet<String>,
}

impl Candidates {
    fn new(view: &ConfigurationView, report: &Report) -> Self {
        let sizes: BTreeMap<&str, usize> = (view.all())
            .filter_map(|device| Some((device.id.as_deref()?, json_bytes(device) + 1)))
            .collect();
        let devices = report.announced.iter();
        let devices: Vec<_> = devices
            .filter_map(|id| Some((id.clone(), *sizes.get(id.as_str())?)))
            .collect();
        Self {
            namespace: view.namespace.clone(),
            bytes: devices.iter().map(|(_, bytes)| bytes).sum(),
            left_out: BTreeSet::new(),
            devices,
        }
    }

    /// Returns the bytes that this saves. The first one of a Configuration pays for the problem that tells of it.
    fn leave_out_newest(&mut self) -> Option<usize> {
        let (id, bytes) = self.devices.pop()?;
        self.bytes -= bytes;
        let is_first = self.left_out.is_empty();
        self.left_out.insert(id);
        Some(bytes.saturating_sub(if is_first { RESERVED } else { 0 }))
    }

    fn apply(self, view: &mut ConfigurationView, most: usize) {
        if self.left_out.is_empty() {
            return;
        }
        let is_left_out = |device: &SeenDevice| {
            let id = device.id.as_ref();
            id.is_some_and(|id| self.left_out.contains(id))
        };
        lists(view).for_each(|devices| devices.retain(|device| !is_left_out(device)));
        // One may have got an Instance by an earlier report.
        view.complete = false;
        let message = format!(
            "{} new devices are left out: what a node reports has {} KiB at most, and of the namespace with the largest part this Configuration has the largest; narrow what is found, or give devices shorter names and fewer properties",
            self.left_out.len(),
            most >> 10
        );
        view.problems.truncate(limits::PROBLEMS_MAX - 1);
        view.problems
            .push(Problem::new(Reason::TooManyDevices, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(id: String, bytes: usize) -> SeenDevice {
        SeenDevice {
            id: Some(id),
            // A control character takes six bytes as JSON.
            properties: Some(BTreeMap::from([(
                "K".to_owned(),
                "\u{1}".repeat(bytes / 6),
            )])),
            flapping: Some("it comes and goes ".repeat(50)),
            ..SeenDevice::default()
        }
    }

    /// The report of a Configuration with `old` devices with an Instance, and `new` ones.
    fn report(old: usize, new: usize, bytes: usize) -> Report {
        let id = |n: usize| format!("{n:04}");
        Report {
            complete: true,
            devices: (0..old + new).map(|n| device(id(n), bytes)).collect(),
            announced: (old..old + new).map(id).collect(),
            ..Report::default()
        }
    }

    /// Fits the reports of Configurations, each with its namespace and its name.
    fn fitted(reports: &[(&str, Report)], most: usize) -> NodeDevicesSpec {
        let key = |path: &str| {
            let (namespace, name) = path.split_once('/').unwrap_or(("default", path));
            ConfigurationKey::new(namespace, name.to_owned())
        };
        let reports: BTreeMap<_, _> = (reports.iter().cloned())
            .map(|(name, report)| (key(name), report))
            .collect();
        let view = |(key, report): (&ConfigurationKey, &Report)| ConfigurationView {
            namespace: key.namespace.clone(),
            name: key.name.to_string(),
            complete: report.complete,
            devices: report.devices.clone(),
            ..ConfigurationView::default()
        };
        let mut spec = NodeDevicesSpec {
            configurations: reports.iter().map(view).collect(),
            left_out: None,
        };
        fit(&mut spec, &reports, most);
        assert!(json_bytes(&spec) <= most, "{} bytes", json_bytes(&spec));
        spec
    }

    #[test]
    fn the_newest_devices_of_the_largest_are_left_out_and_nobody_else_notices() {
        let spec = fitted(
            &[
                ("large", report(10, 90, 6000)),
                ("small", report(1, 5, 600)),
            ],
            300_000,
        );
        let [large, small] = &*spec.configurations else {
            panic!("{spec:?}")
        };
        assert_eq!((small.devices.len(), small.problems.len()), (6, 0));
        let left: Vec<_> = large
            .devices
            .iter()
            .filter_map(|d| d.id.as_deref())
            .collect();
        assert!((30..60).contains(&left.len()), "{left:?}");
        assert!(
            left.iter()
                .enumerate()
                .all(|(n, id)| *id == format!("{n:04}")),
            "{left:?}"
        );
        assert_eq!(large.problems[0].reason, Reason::TooManyDevices);
        assert_eq!((large.complete, small.complete), (false, true));
    }

    #[test]
    fn a_namespace_of_many_small_reports_loses_its_own_devices_and_no_other_does() {
        for [many, one] in [["a", "b"], ["b", "a"]] {
            let mut reports: Vec<(String, Report)> = (0..64)
                .map(|n| (format!("{many}/c{n}"), report(0, 10, 600)))
                .collect();
            reports.push((format!("{one}/cam"), report(0, 40, 600)));
            let reports: Vec<_> = (reports.iter())
                .map(|(path, report)| (path.as_str(), report.clone()))
                .collect();
            let spec = fitted(&reports, 300_000);
            let views = spec.configurations.iter();
            let of = |namespace| {
                views
                    .clone()
                    .filter(move |view| view.namespace == namespace)
            };
            let [cam] = &*of(one).collect::<Vec<_>>() else {
                panic!("{spec:?}")
            };
            assert_eq!((cam.devices.len(), cam.problems.len()), (40, 0));
            let left: usize = of(many).map(|view| view.devices.len()).sum();
            assert!((100..600).contains(&left), "{left}");
        }
    }

    #[test]
    fn messages_are_cut_before_a_device_is_left_out() {
        let spec = fitted(&[("a", report(0, 100, 6))], 30_000);
        assert_eq!(spec.configurations[0].devices.len(), 100);
        assert_eq!(spec.configurations[0].problems, vec![]);
        let message = spec.configurations[0].devices[0].flapping.as_ref().unwrap();
        assert!(message.len() <= SHORT_MESSAGE, "{message}");
    }

    #[test]
    fn devices_with_an_instance_that_do_not_fit_are_not_said_to_be_gone() {
        let spec = fitted(&[("a", report(100, 0, 6000))], 300_000);
        assert!(!spec.configurations[0].complete);
    }

    #[test]
    fn a_thousand_devices_with_the_longest_ids_fit() {
        let mut report = report(0, 1000, 6);
        for device in &mut report.devices {
            let id = device.id.as_mut().unwrap();
            *id = format!("{id}{}", "x".repeat(900));
            device.flapping = None;
        }
        report.announced = report.devices.iter().filter_map(|d| d.id.clone()).collect();
        let spec = fitted(&[("a", report)], limits::NODE_DEVICES_BYTES_MAX);
        assert_eq!(spec.configurations[0].devices.len(), 1000);
    }
}
