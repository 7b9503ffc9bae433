//! Reads a device of generic-device-plugin: the value of its flag `--device`, or an entry of its file. Pure.
use super::draft::{Draft, allowed, pattern};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Device {
    name: String,
    groups: Vec<Group>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Group {
    /// The number of containers that may have it; 0 means 1.
    count: u32,
    paths: Vec<Path>,
    usb: Vec<Usb>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Path {
    path: String,
    mount_path: String,
    permissions: String,
    r#type: String,
    optional: bool,
    /// It has an effect only beside a glob.
    limit: u32,
    /// It has an effect only on mounts.
    read_only: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Usb {
    vendor: String,
    product: String,
    serial: String,
}

/// Returns the draft of a device, whose resource has the prefix `domain`.
pub(super) fn draft(entry: &Value, domain: Option<&str>) -> Result<Draft, String> {
    let of = |why: String| format!("device {}: {why}", entry["name"]);
    let device = serde_path_to_error::deserialize(entry);
    let device: Device = device.map_err(|e| of(e.to_string()))?;
    let resource = format!("{}/{}", domain.unwrap_or("squat.ai"), device.name.trim());
    of_groups(resource, &device.groups).map_err(of)
}

fn of_groups(resource: String, groups: &[Group]) -> Result<Draft, String> {
    let counts: BTreeSet<u32> = groups.iter().map(|group| group.count.max(1)).collect();
    let (Some(capacity), 1) = (counts.first(), counts.len()) else {
        return Err("its groups have no count, or different ones, and a Configuration has one capacity: give those with another count a name of their own".to_owned());
    };
    let paths: Vec<&Path> = groups.iter().flat_map(|group| &group.paths).collect();
    let usb: Vec<&Usb> = groups.iter().flat_map(|group| &group.usb).collect();
    let is_empty = |group: &Group| group.paths.is_empty() && group.usb.is_empty();
    if groups.iter().any(is_empty) || paths.is_empty() == usb.is_empty() {
        return Err("all groups must have paths, or all usb, because a Configuration has one handler: give the others a name of their own".to_owned());
    }
    if paths.is_empty() {
        let rules = usb.into_iter().map(rule).collect::<Result<String, _>>()?;
        let details = format!("udevRules:\n{rules}permissions: rw");
        return Ok(Draft::new(resource, "udev", &details, *capacity));
    }
    let permissions = paths.iter().map(|path| path.permissions());
    let permissions = permissions.collect::<Result<BTreeSet<_>, _>>()?;
    let patterns = groups.iter().map(group).collect::<Result<String, _>>()?;
    let (Some(permissions), 1) = (permissions.first(), permissions.len()) else {
        return Err(
            "its paths have different permissions, and a Configuration has one: make them equal"
                .to_owned(),
        );
    };
    let details = format!("groups:\n{patterns}permissions: {permissions}");
    let mut draft = Draft::new(resource, "paths", &details, *capacity);
    draft.spec["containerDevices"] = container(groups, &paths)?;
    draft.allow = paths.iter().flat_map(|path| allowed(path.own())).collect();
    Ok(draft)
}

impl Path {
    fn own(&self) -> &str {
        self.path.trim()
    }

    /// Returns another path that it has in the container.
    fn moved(&self) -> Option<&str> {
        let to = self.mount_path.trim();
        (!to.is_empty() && to != self.own()).then_some(to)
    }

    fn permissions(&self) -> Result<String, String> {
        let (path, kind, given) = (self.own(), &*self.r#type, &*self.permissions);
        if !matches!(kind, "" | "Device") {
            return Err(format!(
                "path {path}: its type is {kind}, and Petiole gives device nodes only: mount it in the Pod (hostPath)"
            ));
        }
        let has = |c: &char| given.is_empty() || given.contains(*c);
        if given.contains(|c| !"rwm".contains(c)) {
            Err(format!(
                "path {path}: permissions is {given:?}; it must be of r, w and m"
            ))
        } else {
            Ok("rwm".chars().filter(has).collect())
        }
    }
}

/// Returns a line with the group of the handler `paths`.
fn group(group: &Group) -> Result<String, String> {
    let glob = group
        .paths
        .iter()
        .find(|path| path.own().contains(['*', '?', '[']));
    let of = |is_optional: bool| {
        let paths = group
            .paths
            .iter()
            .filter(|path| path.optional == is_optional);
        paths.map(|path| pattern(path.own())).collect::<Vec<_>>()
    };
    // JSON is YAML.
    let group = match (&group.paths[..], of(false), of(true)) {
        ([path], ..) if glob.is_none() => json!(pattern(path.own())),
        ([path], ..) => json!({"paths": path.own(), "each": true}),
        _ if glob.is_some() => return Err("a group pairs the matches of a glob with other paths, one by one, and Petiole does not: write a group for each pair, without globs".to_owned()),
        (_, always, _) if always.is_empty() => return Err("all paths of a group are optional, and a device of Petiole has one that is always there: make it such a path, or give each path a group".to_owned()),
        (_, always, optional) if optional.is_empty() => json!(always),
        (_, always, optional) => json!({"paths": always, "optional": optional}),
    };
    Ok(format!("- {group}\n"))
}

/// Returns `containerDevices`, by which containers have their devices at the same paths as before.
fn container(groups: &[Group], paths: &[&Path]) -> Result<Value, String> {
    let Some(to) = paths.iter().find_map(|path| path.moved()) else {
        // A path may be a link.
        return Ok(json!({"links": true}));
    };
    let is_folder = to.ends_with('/');
    let is_same = |path: &&Path| {
        let own = path.own();
        path.moved().unwrap_or(own) == to
            && pattern(own) == own
            && !(is_folder && own.contains("/by-"))
    };
    let is_alone = |group: &Group| is_folder || group.paths.len() == 1;
    if paths.iter().all(is_same) && groups.iter().all(is_alone) {
        Ok(json!({"path": to}))
    } else {
        Err(format!(
            "mountPath {to}: a Configuration has one for all its devices: the path of one device node, or a folder in which each has its own name, not that of a link. Give devices with another mountPath a name of their own"
        ))
    }
}

/// Returns a line with the rule of udev for a USB device.
fn rule(usb: &Usb) -> Result<String, String> {
    let id = |field: &str, text: &str| {
        let id = u16::from_str_radix(text, 16);
        id.map_err(|_| {
            format!("usb: {field} is {text:?}; it must be hexadecimal, such as \"1a86\"")
        })
    };
    let (vendor, product) = (id("vendor", &usb.vendor)?, id("product", &usb.product)?);
    let serial = match usb.serial.as_str() {
        "" => String::new(),
        serial if serial.contains(|c: char| "\"'*?[|\\".contains(c) || c.is_control()) => {
            return Err(format!(
                "usb: serial is {serial:?}, which has characters with a meaning in rules of udev: write a Configuration of udev by hand"
            ));
        }
        serial => format!(", ATTR{{serial}}==\"{serial}\""),
    };
    Ok(format!(
        "- 'SUBSYSTEM==\"usb\", ATTR{{idVendor}}==\"{vendor:04x}\", ATTR{{idProduct}}==\"{product:04x}\"{serial}'\n"
    ))
}
