//! Parses one CDI file: from its text to the devices that it describes, by the rules of CDI 1.1.0. Pure.
//!
//! The fields are those of the specification's JSON schema. The rules beyond the schema are those that container
//! runtimes check before they resolve a device of a file.
use super::schema::{Device, SpecFile, Version, is_name};
use crate::yaml;
use serde_json::Value;
use std::{collections::BTreeMap, fmt, str::FromStr};

const NEWEST: Version = (1, 1);
/// The accepted versions. 0.1.0 and 0.2.0 are missing, because container runtimes need at least 0.3.0 (specs-go,
/// version.go: `vEarliest`).
const VERSIONS: [Version; 8] = [
    (0, 3),
    (0, 4),
    (0, 5),
    (0, 6),
    (0, 7),
    (0, 8),
    (1, 0),
    NEWEST,
];

/// The fields whose values are numbers, lists of numbers or truth values.
const IS_NO_TEXT: [&str; 10] = [
    "additionalGids",
    "enableCMT",
    "enableMBM",
    "enableMonitoring",
    "fileMode",
    "gid",
    "major",
    "minor",
    "timeout",
    "uid",
];

/// The kind of a device: `vendor/class`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    vendor: String,
    class: String,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.vendor, self.class)
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((vendor, class)) = text.split_once('/') else {
            return Err("must be vendor/class, such as vendor.com/device".to_owned());
        };
        for (what, name, limit) in [("vendor", vendor, 253), ("class", class, 63)] {
            let is_first = |c: char| c.is_ascii_alphabetic();
            let is_inner = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
            if name.len() > limit || !is_name(name, is_first, is_inner) {
                return Err(format!(
                    "the {what} has a letter first, then letters, digits, `_`, `-` and `.`, a letter or digit last, and {limit} characters at most"
                ));
            }
        }
        Ok(Self {
            vendor: vendor.to_owned(),
            class: class.to_owned(),
        })
    }
}

/// A valid CDI file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) kind: Kind,
    pub(super) devices: Vec<Described>,
}

/// A device that a file describes. The container runtime applies the file's edits to containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) name: String,
    pub(super) annotations: BTreeMap<String, String>,
}

/// A CDI file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    /// The value of `kind`, if it can be read.
    pub(super) kind: Option<String>,
    pub(super) why: String,
}

impl Spec {
    /// Parses YAML, which includes JSON. A file of a newer minor version may have fields that are unknown here.
    pub(super) fn parse(text: &str) -> Result<Self, Refused> {
        // A file that cannot be used may still have a readable kind.
        let value: Value = yaml::from_str(text).map_err(|e| Refused {
            kind: None,
            why: format!("it is neither YAML nor JSON: {e}"),
        })?;
        let kind = value.get("kind").and_then(Value::as_str);
        let refused = |why| Refused {
            kind: kind.map(str::to_owned),
            why,
        };
        if !value.is_object() {
            return Err(refused("it must be keys and values".to_owned()));
        }
        Self::read(value.clone()).map_err(refused)
    }

    fn read(value: Value) -> Result<Self, String> {
        let (file, unknown) = fields(value)?;
        let version = version(&file.cdi_version)?;
        if version <= NEWEST && !unknown.is_empty() {
            let unknown = unknown.join(", ");
            return Err(format!("unknown field {unknown}"));
        }
        let kind: Kind =
            (file.kind.parse()).map_err(|why| format!("kind {:?}: {why}", file.kind))?;
        file.check(version)?;
        let described = |device: Device| Described {
            name: device.name,
            annotations: device.annotations.unwrap_or_default(),
        };
        Ok(Self {
            kind,
            devices: file.devices.into_iter().map(described).collect(),
        })
    }
}

/// Returns a file's fields, and the paths of unknown fields.
fn fields(mut value: Value) -> Result<(SpecFile, Vec<String>), String> {
    write_as_text(&mut value);
    let mut unknown = vec![];
    let mut note = |path: serde_ignored::Path<'_>| unknown.push(path.to_string());
    let noting = serde_ignored::Deserializer::new(value, &mut note);
    let file = serde_path_to_error::deserialize(noting).map_err(|e| e.to_string())?;
    Ok((file, unknown))
}

/// Converts every number and truth value to text where the format has text: a name may be `0`, as for container
/// runtimes (sigs.k8s.io/yaml, `convertToJSONableObject`).
fn write_as_text(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                match value {
                    // The keys of annotations can be any text.
                    Value::Object(entries) if field == "annotations" => {
                        entries.values_mut().for_each(write_as_text);
                    }
                    value if !IS_NO_TEXT.contains(&field.as_str()) => write_as_text(value),
                    Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::String(_)
                    | Value::Array(_)
                    | Value::Object(_) => {}
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(write_as_text),
        Value::Number(_) | Value::Bool(_) => *value = Value::String(value.to_string()),
        Value::String(_) | Value::Null => {}
    }
}

fn version(text: &str) -> Result<Version, String> {
    let mut numbers = text.trim_start_matches('v').split('.').map(str::parse);
    let parsed = match (
        numbers.next(),
        numbers.next(),
        numbers.next(),
        numbers.next(),
    ) {
        (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch)), None) => Some((major, minor, patch)),
        _ => None,
    };
    match parsed {
        Some((major, minor, 0)) if VERSIONS.contains(&(major, minor)) => Ok((major, minor)),
        Some((major, minor, _)) if major == NEWEST.0 && minor > NEWEST.1 => Ok((major, minor)),
        Some(_) | None => Err(format!(
            "cdiVersion {text:?} is not supported by container runtimes, which accept 0.3.0 to {}.{}.0",
            NEWEST.0, NEWEST.1
        )),
    }
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
