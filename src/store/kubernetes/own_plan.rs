//! Decides the contents of this node's NodeDevices, and when it is written. Pure.
use super::own_bounds;
use crate::{
    api::{
        configuration::Problem,
        node_devices::{ConfigurationView, NodeDevices, NodeDevicesSpec, SeenDevice},
        reason::Reason,
    },
    model::{limits, typed_names::ConfigurationKey},
    store::interface::{Report, version_of},
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The problems, each with its Configuration.
pub(crate) type Problems = Vec<(ConfigurationKey, Problem)>;

/// The next write.
#[derive(Debug, PartialEq)]
pub(crate) enum Step<'a> {
    Nothing,
    /// The node has just begun to search for the devices of Configurations, and its results may arrive at once.
    Wait,
    Create(&'a NodeDevicesSpec),
    Patch(&'a NodeDevicesSpec),
}

/// The urgency of a write: the wanted content has just changed, or it has been wanted for so long that it is written
/// anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    Fresh,
    Due,
}

/// The result of the last write, which the watch may not show yet.
#[derive(Debug, Default)]
pub(crate) enum Written {
    /// There was no write: the watch shows the present state.
    #[default]
    Nothing,
    There(Box<NodeDevices>),
    /// The object was missing when it was to be patched.
    Gone,
    /// The object existed when it was to be created.
    Other,
}

impl Written {
    pub(crate) fn set_written(&mut self, object: NodeDevices) {
        *self = Self::There(Box::new(object));
    }

    /// Records that the watch shows the present state: an event shows no object, and a new one would be shown, or it has listed anew.
    pub(crate) fn forget(&mut self) {
        *self = Self::Nothing;
    }

    pub(crate) fn note_missing(&mut self) {
        *self = Self::Gone;
    }

    pub(crate) fn note_other(&mut self) {
        *self = Self::Other;
    }

    /// Returns the problems that were written last, by this run or an earlier one.
    pub(crate) fn reported(&self, seen: Option<&NodeDevices>) -> Problems {
        let object = match self {
            Self::There(object) => Some(&**object),
            Self::Nothing | Self::Gone | Self::Other => seen,
        };
        let all = object
            .into_iter()
            .flat_map(|object| &object.spec.configurations);
        let all = all.flat_map(|view| {
            let key = ConfigurationKey::new(&view.namespace, view.name.as_str());
            let problems = view.problems.iter();
            problems.map(move |problem| (key.clone(), problem.clone()))
        });
        all.collect()
    }
}

/// Returns the problems that are new.
pub(crate) fn new_problems(before: &Problems, now: &Problems) -> Problems {
    let is_new = |one: &&(ConfigurationKey, Problem)| !before.contains(one);
    now.iter().filter(is_new).cloned().collect()
}

/// Returns the contents that the object should have. `left_out` are Configurations that are not read, because there are too
/// many: one line is about all of them.
pub(crate) fn wanted(
    reports: &BTreeMap<ConfigurationKey, Report>,
    left_out: &BTreeSet<ConfigurationKey>,
) -> NodeDevicesSpec {
    let problem = (!left_out.is_empty()).then(too_many);
    let view = |(key, report): (&ConfigurationKey, &Report)| {
        let mut view = report.view(key);
        if left_out.contains(key) {
            view.problems = problem.iter().cloned().collect();
        }
        view
    };
    let mut spec = NodeDevicesSpec {
        configurations: reports.iter().map(view).collect(),
        left_out: problem.clone(),
    };
    own_bounds::fit(&mut spec, reports, limits::NODE_DEVICES_BYTES_MAX);
    spec
}

/// Returns a merge patch to this content. Its list replaces the old one as a whole, and a field that is not said is removed.
pub(crate) fn patch(spec: &NodeDevicesSpec) -> Value {
    let (configurations, left_out) = (&spec.configurations, &spec.left_out);
    json!({ "spec": { "configurations": configurations, "leftOut": left_out } })
}

fn too_many() -> Problem {
    let message = format!(
        "a node works with so many Configurations at most as agent.maxConfigurations of the chart (--max-configurations) says, with {} MiB of text, and this namespace has the largest part of them; its older Configurations have their places: delete one, or raise the number",
        limits::CONFIGURATIONS_BYTES_MAX >> 20
    );
    Problem::new(Reason::TooManyConfigurations, message)
}

/// Returns the next write. `seen` is the object as the watch has it, which may be older than the last write.
pub(crate) fn step<'a>(
    wanted: &'a NodeDevicesSpec,
    seen: Option<&NodeDevices>,
    written: &Written,
    urgency: Urgency,
) -> Step<'a> {
    let none = NodeDevicesSpec::default();
    let (stands, change) = match (written, seen) {
        (Written::Gone, _) => (&none, Step::Create(wanted)),
        (Written::Other, None) => return Step::Patch(wanted),
        (Written::There(written), Some(seen)) if is_newer(written, seen) => {
            (&written.spec, Step::Patch(wanted))
        }
        (_, Some(seen)) => (&seen.spec, Step::Patch(wanted)),
        // The watch does not show the object yet.
        (Written::There(written), None) => (&written.spec, Step::Patch(wanted)),
        (Written::Nothing, None) => (&none, Step::Create(wanted)),
    };
    match (change, urgency) {
        (Step::Patch(_), _) if says(stands, wanted) => Step::Nothing,
        (_, Urgency::Fresh) if looks(wanted) && says(stands, &without_looks(wanted)) => Step::Wait,
        (change, _) => change,
    }
}

/// Returns whether the only report about a Configuration is that the node searches.
fn only_looks(view: &ConfigurationView) -> bool {
    !view.complete && view.all().next().is_none() && view.problems.is_empty()
}

fn looks(wanted: &NodeDevicesSpec) -> bool {
    wanted.configurations.iter().any(only_looks)
}

fn without_looks(wanted: &NodeDevicesSpec) -> NodeDevicesSpec {
    let said = wanted
        .configurations
        .iter()
        .filter(|view| !only_looks(view));
    NodeDevicesSpec {
        configurations: said.cloned().collect(),
        left_out: wanted.left_out.clone(),
    }
}

/// Returns whether `a` is newer. Resource versions are ordered as numbers (KEP-5504).
fn is_newer(a: &NodeDevices, b: &NodeDevices) -> bool {
    version_of(&a.metadata) > version_of(&b.metadata)
}

/// Returns whether the API server kept what was written: it drops fields that the definition of NodeDevices does not have.
pub(crate) fn is_kept(answer: &NodeDevicesSpec, wanted: &NodeDevicesSpec) -> bool {
    says(answer, wanted)
}

/// Returns whether nothing needs to be written. Properties that the Instance already has are not a reason to write.
fn says(stands: &NodeDevicesSpec, wanted: &NodeDevicesSpec) -> bool {
    let is_same = |(there, wanted): (&ConfigurationView, &ConfigurationView)| {
        (&there.namespace, &there.name) == (&wanted.namespace, &wanted.name)
            && (there.generation, there.complete) == (wanted.generation, wanted.complete)
            && there.problems == wanted.problems
            && there.devices.len() == wanted.devices.len()
            && there.own.as_ref().map(Vec::len) == wanted.own.as_ref().map(Vec::len)
            && (there.all().zip(wanted.all())).all(|(a, b)| is_same_device(a, b))
    };
    stands.left_out == wanted.left_out
        && stands.configurations.len() == wanted.configurations.len()
        && (stands.configurations.iter().zip(&wanted.configurations)).all(is_same)
}

fn is_same_device(there: &SeenDevice, wanted: &SeenDevice) -> bool {
    if there == wanted {
        return true;
    }
    // The messages are ignored: that of a flapping device contains a count, and that of another host its addresses.
    let slim = |device: &SeenDevice| SeenDevice {
        flapping: device.flapping.as_ref().map(|_| String::new()),
        other_host: device.other_host.as_ref().map(|_| String::new()),
        pin: None,
        properties: None,
        usage: BTreeMap::new(),
        ..device.clone()
    };
    slim(there) == slim(wanted)
        && (wanted.pin.is_none() || there.pin == wanted.pin)
        && (wanted.properties.is_none() || there.properties == wanted.properties)
        && ((wanted.properties.is_none() && wanted.usage.is_empty()) || there.usage == wanted.usage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::budget::json_bytes;

    fn device(id: &str) -> SeenDevice {
        SeenDevice {
            id: Some(id.to_owned()),
            ..SeenDevice::default()
        }
    }

    fn reports(report: Report) -> BTreeMap<ConfigurationKey, Report> {
        BTreeMap::from([(ConfigurationKey::new("default", "cam"), report)])
    }

    fn wanting(devices: Vec<SeenDevice>) -> NodeDevicesSpec {
        let report = Report {
            devices,
            ..Report::default()
        };
        wanted(&reports(report), &BTreeSet::new())
    }

    fn object(version: &str, spec: &NodeDevicesSpec) -> NodeDevices {
        let mut object = NodeDevices::new("a", spec.clone());
        object.metadata.resource_version = Some(version.to_owned());
        object
    }

    #[test]
    fn what_stands_there_is_written_anew_only_where_it_says_something_else() {
        let (one, two) = (wanting(vec![device("1")]), wanting(vec![device("2")]));
        let nothing = Written::default();
        assert_eq!(step(&one, None, &nothing, Urgency::Due), Step::Create(&one));
        assert_eq!(
            step(&one, Some(&object("1", &one)), &nothing, Urgency::Due),
            Step::Nothing
        );
        assert_eq!(
            step(&one, Some(&object("1", &two)), &nothing, Urgency::Due),
            Step::Patch(&one)
        );
        // First the watch is behind the last write, then it has caught up.
        let mut written = Written::default();
        written.set_written(object("5", &one));
        assert_eq!(
            step(&one, Some(&object("4", &two)), &written, Urgency::Due),
            Step::Nothing
        );
        assert_eq!(
            step(&one, Some(&object("6", &two)), &written, Urgency::Due),
            Step::Patch(&one)
        );
        assert_eq!(step(&one, None, &written, Urgency::Due), Step::Nothing);
        assert_eq!(step(&two, None, &written, Urgency::Due), Step::Patch(&two));
        written.forget();
        assert_eq!(step(&one, None, &written, Urgency::Due), Step::Create(&one));
        written.note_other();
        assert_eq!(step(&one, None, &written, Urgency::Due), Step::Patch(&one));
        written.note_missing();
        assert_eq!(
            step(&one, Some(&object("6", &one)), &written, Urgency::Due),
            Step::Create(&one)
        );
    }

    #[test]
    fn that_a_node_has_validated_another_generation_is_written() {
        let of = |generation| {
            let report = Report {
                generation,
                ..Report::default()
            };
            wanted(&reports(report), &BTreeSet::new())
        };
        let (first, second) = (of(Some(1)), of(Some(2)));
        let next = |wanted| match step(
            wanted,
            Some(&object("1", &first)),
            &Written::default(),
            Urgency::Due,
        ) {
            Step::Nothing => None,
            Step::Patch(spec) | Step::Create(spec) => spec.configurations[0].generation,
            Step::Wait => Some(0),
        };
        assert_eq!([next(&first), next(&second)], [None, Some(2)]);
    }

    #[test]
    fn that_a_node_looks_is_written_with_what_it_finds_if_that_comes_soon() {
        let view = |name: &str, complete| ConfigurationView {
            name: name.to_owned(),
            complete,
            ..ConfigurationView::default()
        };
        let spec = |configurations| NodeDevicesSpec {
            configurations,
            left_out: None,
        };
        let stands = object("1", &spec(vec![view("a", true)]));
        let step = |wanted: &NodeDevicesSpec, urgency| {
            let nothing = Written::default();
            match super::step(wanted, Some(&stands), &nothing, urgency) {
                Step::Wait => "wait",
                Step::Patch(_) => "patch",
                Step::Nothing | Step::Create(_) => "neither",
            }
        };
        let looks = spec(vec![view("a", true), view("b", false)]);
        assert_eq!(step(&looks, Urgency::Fresh), "wait");
        assert_eq!(step(&looks, Urgency::Due), "patch");
        let found = spec(vec![view("a", true), view("b", true)]);
        assert_eq!(step(&found, Urgency::Fresh), "patch");
        let gone = spec(vec![view("b", false)]);
        assert_eq!(step(&gone, Urgency::Fresh), "patch");
        assert_eq!(step(&stands.spec, Urgency::Fresh), "neither");
    }

    #[test]
    fn properties_that_the_instance_says_by_now_are_no_reason_to_write() {
        let said = |value: Option<&str>| {
            let properties = value.map(|v| BTreeMap::from([("KEY".to_owned(), v.to_owned())]));
            wanting(vec![SeenDevice {
                properties,
                ..device("1")
            }])
        };
        assert!(says(&said(Some("x")), &said(None)));
        assert!(!says(&said(Some("x")), &said(Some("y"))));
        assert!(!says(&said(None), &said(Some("y"))));
        let flaps = |message: &str| {
            wanting(vec![SeenDevice {
                flapping: Some(message.to_owned()),
                ..device("1")
            }])
        };
        assert!(says(&flaps("it went 3 times"), &flaps("it went 4 times")));
        assert!(!says(&flaps("it went 3 times"), &said(None)));
    }

    #[test]
    fn of_sixteen_hundred_configurations_beyond_the_bound_one_line_is_written() {
        let left_out = (0..1600).map(|n| ConfigurationKey::new("many", format!("c-{n}")));
        let left_out: BTreeSet<ConfigurationKey> = left_out.collect();
        // One of them has an Instance here, which stays.
        let mut reports = reports(Report::default());
        let first = left_out.first().unwrap().clone();
        reports.insert(first, Report::default());
        let spec = wanted(&reports, &left_out);
        let said = |n: usize| spec.configurations[n].problems.len();
        assert_eq!((spec.configurations.len(), said(0), said(1)), (2, 0, 1));
        assert_eq!(
            spec.left_out.as_ref().unwrap().reason,
            Reason::TooManyConfigurations
        );
        assert!(json_bytes(&spec) < 2048);
        let without = wanted(&reports, &BTreeSet::new());
        assert!(!says(&without, &spec));
        assert_eq!(
            patch(&without)["spec"]["leftOut"],
            Value::Null,
            "it is removed"
        );
    }

    #[test]
    fn only_problems_that_are_new_are_reported() {
        let problem = |reason| {
            let key = ConfigurationKey::new("default", "cam");
            (key, Problem::new(reason, "m"))
        };
        let now = vec![problem(Reason::BadName), problem(Reason::BadSpec)];
        assert_eq!(new_problems(&vec![], &now).len(), 2);
        assert_eq!(
            new_problems(&vec![problem(Reason::BadName)], &now),
            [problem(Reason::BadSpec)]
        );
    }
}
