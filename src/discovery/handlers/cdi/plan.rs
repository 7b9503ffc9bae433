//! Selects the devices that the CDI files of this node describe. Pure.
use super::{
    details::Details,
    spec::{Described, Refused, Spec},
};
use crate::model::device::{Device, DeviceSet};
use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

/// The prefix of each variable that holds an annotation.
const ANNOTATION_PREFIX: &str = "CDI_ANNOTATION_";
/// The most variables that a CDI device's annotations become. All of them are copied with the environment of a
/// container. Beyond it: further ones are left out.
pub(super) const ANNOTATIONS_MAX: usize = 64;
/// The most bytes of the names and values of these variables together. Beyond it: further ones are left out.
pub(super) const ANNOTATION_BYTES_MAX: usize = 32 * 1024;

/// The content of a file, or the error of a file or folder that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    /// The precedence of the folder; files in a folder with a higher one win.
    pub(super) precedence: usize,
    pub(super) path: String,
    /// The text, or the reason why it cannot be read.
    pub(super) text: Result<String, String>,
}

struct FoundSpec<'a> {
    file: &'a File,
    device: Described,
}

/// Returns the devices that `details` select. A file that cannot be used is reported, and the other files count.
pub(super) fn devices(files: &[File], details: &Details) -> DeviceSet {
    let mut found: BTreeMap<String, FoundSpec<'_>> = BTreeMap::new();
    let mut ambiguous = BTreeSet::new();
    let mut problems = vec![];
    for file in files {
        let spec = match parse(file) {
            Ok(spec) => spec,
            Err(refused) => {
                if refused
                    .kind
                    .is_none_or(|kind| kind == details.kind.to_string())
                {
                    problems.push(format!("{}: {}", file.path, refused.why));
                }
                continue;
            }
        };
        if spec.kind != details.kind {
            continue;
        }
        for device in spec.devices.into_iter().filter(|d| details.takes(&d.name)) {
            match found.entry(device.name.clone()) {
                Entry::Vacant(entry) => drop(entry.insert(FoundSpec { file, device })),
                Entry::Occupied(mut entry) if entry.get().file.precedence < file.precedence => {
                    entry.insert(FoundSpec { file, device });
                }
                Entry::Occupied(entry) => {
                    problems.push(format!(
                        "{}={} is in {} and in {}, so that no container runtime resolves it: remove one",
                        details.kind, device.name, entry.get().file.path, file.path
                    ));
                    ambiguous.insert(device.name);
                }
            }
        }
    }
    // Runtimes do not resolve an ambiguous name, even if another folder has it once.
    found.retain(|name, _| !ambiguous.contains(name));
    let devices = found
        .into_values()
        .map(|found| device(details, &found.device));
    DeviceSet {
        problems,
        ..DeviceSet::complete(devices)
    }
}

fn parse(file: &File) -> Result<Spec, Refused> {
    match &file.text {
        Ok(text) => Spec::parse(text),
        Err(why) => Err(Refused {
            kind: None,
            why: why.clone(),
        }),
    }
}

fn device(details: &Details, described: &Described) -> Device {
    let qualified = format!("{}={}", details.kind, described.name);
    let mut device = Device::new(&qualified);
    device.properties = annotations(&described.annotations);
    device.properties.extend([
        ("CDI_DEVICE".to_owned(), qualified.clone()),
        ("CDI_KIND".to_owned(), details.kind.to_string()),
        ("CDI_NAME".to_owned(), described.name.clone()),
    ]);
    device.cdi_devices = vec![qualified];
    device
}

/// Returns the variables of a device's annotations. Of two keys that give one name the first wins. Annotations beyond
/// the limits, and those with a NUL, are left out.
fn annotations(annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let mut bytes = 0;
    for (key, value) in annotations
        .iter()
        .filter(|(_, value)| !value.contains('\0'))
    {
        let safe = |c: char| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        };
        let name: String = ANNOTATION_PREFIX
            .chars()
            .chain(key.chars().map(safe))
            .collect();
        let size = name.len() + value.len();
        if variables.len() < ANNOTATIONS_MAX
            && bytes + size <= ANNOTATION_BYTES_MAX
            && !variables.contains_key(&name)
        {
            bytes += size;
            variables.insert(name, value.clone());
        }
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ETC: usize = 0;
    const RUN: usize = 1;

    fn text(kind: &str, names: &[&str]) -> String {
        let device = |name: &&str| format!("{{name: {name}, containerEdits: {{env: [A=b]}}}}");
        let devices: Vec<String> = names.iter().map(device).collect();
        format!(
            "{{cdiVersion: 0.5.0, kind: {kind}, devices: [{}]}}",
            devices.join(", ")
        )
    }

    fn file(precedence: usize, path: &str, text: &str) -> File {
        File {
            precedence,
            path: path.to_owned(),
            text: Ok(text.to_owned()),
        }
    }

    fn block(precedence: usize, path: &str, names: &[&str]) -> File {
        file(precedence, path, &text("pflex.io/block", names))
    }

    fn devices_of(files: &[File]) -> DeviceSet {
        devices(files, &Details::parse("kind: pflex.io/block").unwrap())
    }

    fn names(set: &DeviceSet) -> Vec<&str> {
        set.devices
            .values()
            .map(|d| d.properties["CDI_NAME"].as_str())
            .collect()
    }

    #[test]
    fn a_device_is_its_qualified_name_and_what_its_annotations_say() {
        let text = "{cdiVersion: 0.6.0, kind: pflex.io/block, devices: [{name: pflex1, annotations: {pflex.io/size: 3T, pflex.io_size: 4T}, containerEdits: {env: [A=b]}}]}";
        let set = devices_of(&[file(ETC, "a", text)]);
        assert!(set.complete && set.problems.is_empty());
        let device = set.devices.values().next().unwrap();
        assert_eq!(device.id.as_str(), "pflex.io/block=pflex1");
        assert_eq!(device.cdi_devices, ["pflex.io/block=pflex1"]);
        let properties: Vec<(&str, &str)> = (device.properties.iter())
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            properties,
            [
                ("CDI_ANNOTATION_PFLEX_IO_SIZE", "3T"),
                ("CDI_DEVICE", "pflex.io/block=pflex1"),
                ("CDI_KIND", "pflex.io/block"),
                ("CDI_NAME", "pflex1"),
            ]
        );
    }

    #[test]
    fn only_the_kind_and_the_names_that_are_asked_for() {
        let files = [
            block(ETC, "a", &["pflex1", "pflex2", "other"]),
            file(ETC, "b", &text("pflex.io/net", &["pflex3"])),
        ];
        assert_eq!(names(&devices_of(&files)), ["other", "pflex1", "pflex2"]);
        let some = Details::parse("{kind: pflex.io/block, name: {regex: 'pflex.*'}}").unwrap();
        assert_eq!(names(&devices(&files, &some)), ["pflex1", "pflex2"]);
    }

    #[test]
    fn the_later_folder_wins_and_two_files_of_one_folder_are_a_conflict() {
        let annotated = text("pflex.io/block", &["a"])
            .replace("0.5.0", "0.6.0")
            .replace("name: a", "name: a, annotations: {from: run}");
        let overridden = [
            block(ETC, "/etc/1", &["a", "b"]),
            file(RUN, "/run/1", &annotated),
        ];
        let set = devices_of(&overridden);
        assert_eq!((names(&set), set.problems.len()), (vec!["a", "b"], 0));
        let a = set.devices.values().next().unwrap();
        assert_eq!(a.properties["CDI_ANNOTATION_FROM"], "run");

        let twice = [
            block(ETC, "/etc/1", &["a", "b"]),
            block(ETC, "/etc/2", &["a"]),
            block(RUN, "/run/1", &["a"]),
        ];
        let set = devices_of(&twice);
        assert_eq!(names(&set), ["b"]);
        assert_eq!(set.problems.len(), 1);
        for part in ["pflex.io/block=a", "/etc/1", "/etc/2"] {
            assert!(set.problems[0].contains(part), "{:?}", set.problems);
        }
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_and_the_others_go_on() {
        let unreadable = File {
            text: Err("permission denied".to_owned()),
            ..block(ETC, "/etc/cdi/d.yaml", &[])
        };
        let bad = [
            file(ETC, "/etc/cdi/b.json", "{"),
            block(ETC, "/etc/cdi/c.json", &["a b"]),
            unreadable,
            // A Configuration that selects devices of that kind reports the file.
            file(ETC, "/etc/cdi/e.json", &text("other.io/x", &["a b"])),
        ];
        let mut files = vec![block(ETC, "/etc/cdi/a.json", &["a"])];
        files.extend(bad);
        let set = devices_of(&files);
        assert_eq!(names(&set), ["a"]);
        let places: Vec<&str> = (set.problems.iter())
            .filter_map(|p| Some(p.split_once(": ")?.0))
            .collect();
        assert_eq!(
            places,
            ["/etc/cdi/b.json", "/etc/cdi/c.json", "/etc/cdi/d.yaml"]
        );
    }

    proptest! {
        #[test]
        fn annotations_become_few_and_safe_variables(
            given in prop::collection::btree_map("\\PC{1,20}", "\\PC*", 0..80)
        ) {
            let variables = annotations(&given);
            prop_assert!(variables.len() <= ANNOTATIONS_MAX);
            for (name, value) in variables {
                prop_assert!(name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_'));
                prop_assert!(given.values().any(|v| *v == value));
            }
        }
    }
}
