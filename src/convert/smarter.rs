//! Reads an entry of smarter-device-manager's file: a regular expression on paths in /dev. Each device that it matches is a
//! resource of its own, so that what is no plain path needs the names that nodes offer. Pure.
use super::draft::{Draft, allowed, pattern};
use regex_lite::RegexBuilder;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The prefix of its resources.
pub(super) const PREFIX: &str = "smarter-devices/";
/// The most bytes of a compiled `devicematch`. Beyond it: `petiole convert` refuses the entry.
const REGEX_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    devicematch: String,
    nummaxdevices: u32,
}

/// Returns a draft for each device. `offered` are the resources that nodes offer.
pub(super) fn drafts(entry: &Value, offered: &BTreeSet<String>) -> Result<Vec<Draft>, String> {
    let entry: Entry = serde_path_to_error::deserialize(entry).map_err(|e| e.to_string())?;
    let wanted = entry.devicematch.as_str();
    let of = |why: &str| format!("devicematch {wanted}: {why}");
    if wanted == "nvidia-gpu" {
        return Err(of("use NVIDIA's own device plugin"));
    }
    let plain = wanted
        .strip_prefix('^')
        .and_then(|path| path.strip_suffix('$'));
    let is_plain = |path: &&str| !path.contains(|c| "\\.+*?()|[]{}^$".contains(c));
    if let Some(path) = plain.filter(is_plain) {
        return Ok(vec![draft(path, entry.nummaxdevices)]);
    }
    let mut regex = RegexBuilder::new(wanted);
    let regex = regex.size_limit(REGEX_BYTES_MAX).build();
    let regex = regex.map_err(|e| of(&e.to_string()))?;
    let names = offered.iter().filter_map(|name| name.strip_prefix(PREFIX));
    // An underscore may stand for a slash.
    let spellings = names.flat_map(|name| [name.replace('_', "/"), name.to_owned()]);
    let mut paths: Vec<String> = spellings.filter(|path| regex.is_match(path)).collect();
    paths.dedup();
    if paths.is_empty() {
        return Err(of(
            "each device that it matches is a resource of its own, and the input has no Node that offers one: add the nodes (kubectl get nodes -o yaml), or write ^video0$ for /dev/video0",
        ));
    }
    let draft = |path: &String| draft(path, entry.nummaxdevices);
    Ok(paths.iter().map(draft).collect())
}

fn draft(path: &str, capacity: u32) -> Draft {
    let is_other = |c: char| !c.is_ascii_alphanumeric() && c != '-';
    let resource = format!("{PREFIX}{}", path.replace(is_other, "_"));
    let path = format!("/dev/{path}");
    let details = format!("groups: {}\npermissions: rw", json!([pattern(&path)]));
    let mut draft = Draft::new(resource, "paths", &details, capacity);
    draft.spec["containerDevices"] = json!({"links": true});
    draft.allow = allowed(&path);
    draft
}
