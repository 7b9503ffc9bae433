//! Defines the Secrets and ConfigMaps that have values of `discoveryProperties`, as far as they are read. Pure.
use super::{hidden::Hidden, limits, names::ObjectKey};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use petiole_base::collect::CollectMap as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    ConfigMap,
    Secret,
}

/// An object that has values of properties.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source {
    pub kind: Kind,
    pub key: ObjectKey,
}

/// The objects to watch, each with the keys that are read. Nothing else of an object is kept.
pub type Wanted = BTreeMap<Source, BTreeSet<String>>;

/// The watched objects as they were last read. An object that is not in it has not been read yet.
pub type Contents = BTreeMap<Source, Content>;

/// A watched object as it was last read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// The object does not exist.
    Absent,
    /// The API server does not let this agent read it.
    Forbidden,
    /// The object was never read, for this reason.
    Unavailable(String),
    /// The wanted keys.
    Keys(BTreeMap<String, Value>),
}

/// The value of a wanted key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// The object has no such key.
    Absent,
    Text(Hidden<String>),
    NotUtf8,
    /// The value has so many characters.
    TooLong(usize),
}

/// The data of an object as the API server sends it.
pub struct Data<'a> {
    pub data: &'a BTreeMap<String, String>,
    /// A ConfigMap has values that are no text here, in base64.
    pub binary: &'a BTreeMap<String, String>,
}

impl Kind {
    /// Returns the name of the kind in the API's addresses.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
        }
    }

    /// Returns the wanted keys of an object of this kind.
    pub fn content(self, data: &Data<'_>, keys: &BTreeSet<String>) -> Content {
        let keys = keys.iter();
        Content::Keys(
            keys.map(|key| (key.clone(), self.value(data, key)))
                .collect_map(),
        )
    }

    fn value(self, data: &Data<'_>, key: &str) -> Value {
        let encoded = match (self, data.data.get(key)) {
            (Self::ConfigMap, Some(text)) => return bounded(text.clone()),
            (Self::Secret, Some(encoded)) => Some(encoded),
            (Self::ConfigMap, None) => data.binary.get(key),
            (Self::Secret, None) => None,
        };
        let Some(encoded) = encoded else {
            return Value::Absent;
        };
        let bytes = BASE64_STANDARD.decode(encoded).ok();
        match bytes.and_then(|bytes| String::from_utf8(bytes).ok()) {
            Some(text) => bounded(text),
            None => Value::NotUtf8,
        }
    }
}

fn bounded(text: String) -> Value {
    match text.chars().count() {
        characters if characters > limits::PROPERTY_VALUE_MAX => Value::TooLong(characters),
        _ => Value::Text(Hidden::new(text)),
    }
}

impl Content {
    /// Returns what is known after a read. An API server that does not answer changes nothing.
    pub fn after(self, before: Option<&Self>) -> Self {
        match (&self, before) {
            (Self::Unavailable(_), Some(Self::Absent | Self::Forbidden | Self::Keys(_))) => {
                before.cloned().unwrap_or(self)
            }
            _ => self,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        let entries = entries.iter();
        entries
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn read(kind: Kind, data: &[(&str, &str)], binary: &[(&str, &str)], key: &str) -> Value {
        let (data, binary) = (map(data), map(binary));
        let data = Data {
            data: &data,
            binary: &binary,
        };
        let keys = BTreeSet::from([key.to_owned()]);
        let Content::Keys(mut keys) = kind.content(&data, &keys) else {
            panic!("no keys");
        };
        assert_eq!(keys.len(), 1, "only wanted keys are kept");
        keys.remove(key).unwrap()
    }

    fn text(text: &str) -> Value {
        Value::Text(Hidden::new(text.to_owned()))
    }

    #[test]
    fn a_secret_is_base64_and_a_config_map_is_text_or_base64() {
        let encoded = [("key", "aHVudGVyMg=="), ("other", "eA==")];
        assert_eq!(read(Kind::Secret, &encoded, &[], "key"), text("hunter2"));
        let plain = [("key", "hunter2"), ("other", "x")];
        assert_eq!(read(Kind::ConfigMap, &plain, &[], "key"), text("hunter2"));
        let binary = read(Kind::ConfigMap, &[], &encoded, "key");
        assert_eq!(binary, text("hunter2"));
        for kind in [Kind::Secret, Kind::ConfigMap] {
            assert_eq!(read(kind, &plain, &[], "none"), Value::Absent);
        }
    }

    #[test]
    fn a_value_that_is_no_text_or_too_long_is_named_and_not_kept() {
        for bad in ["/w==", "no base64"] {
            let value = read(Kind::Secret, &[("key", bad)], &[], "key");
            assert_eq!(value, Value::NotUtf8, "{bad}");
        }
        let long = |n: usize| "é".repeat(n);
        let read = |text: &str| read(Kind::ConfigMap, &[("key", text)], &[], "key");
        assert_eq!(read(&long(8192)), text(&long(8192)));
        assert_eq!(read(&long(8193)), Value::TooLong(8193));
    }

    #[test]
    fn what_was_read_stays_while_the_api_server_does_not_answer() {
        let away = || Content::Unavailable("no answer".to_owned());
        let known = Content::Keys(BTreeMap::from([("key".to_owned(), text("a"))]));
        for known in [known, Content::Absent, Content::Forbidden] {
            assert_eq!(away().after(Some(&known)), known);
        }
        assert_eq!(away().after(None), away());
        let said = Content::Unavailable("refused".to_owned());
        assert_eq!(away().after(Some(&said)), away());
        assert_eq!(Content::Absent.after(Some(&said)), Content::Absent);
    }

    #[test]
    fn no_debug_output_has_a_value() {
        let content = Content::Keys(BTreeMap::from([("key".to_owned(), text("hunter2"))]));
        let printed = format!("{content:?} {content:#?}");
        assert!(printed.contains("(hidden)"), "{printed}");
        assert!(!printed.contains("hunter2"), "{printed}");
    }
}
