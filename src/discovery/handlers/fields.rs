//! Reads `discoveryDetails` as keys and values, in the way that all handlers share. Pure.
//!
//! Every error names the path of its key.
use super::matcher::{Budget, Matcher};
use crate::{
    model::{device::Scope, limits},
    yaml,
};
use petiole_mdns::Interfaces;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// The texts about a handler in messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handler {
    pub(super) name: &'static str,
    /// An example of a line of its details.
    pub(super) example: &'static str,
}

/// The keys of one mapping.
pub(super) struct Fields {
    handler: Handler,
    /// The path of the mapping; empty for that of all details.
    path: String,
    map: Map<String, Value>,
}

impl Fields {
    /// Parses a YAML text into its keys.
    pub(super) fn read(handler: Handler, text: &str) -> Result<Self, String> {
        let value =
            yaml::bounded(text, limits::DETAILS_BYTES_MAX).map_err(|e| format!("not YAML: {e}"))?;
        Self::new(handler, "", value)
    }

    pub(super) fn new(
        handler: Handler,
        path: impl Into<String>,
        value: Value,
    ) -> Result<Self, String> {
        let path = path.into();
        match value {
            Value::Object(map) => Ok(Self { handler, path, map }),
            Value::Null => Self::new(handler, path, Map::new().into()),
            other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                Err(match path.as_str() {
                    "" => format!(
                        "must be keys and values, such as `{}`, not {other}",
                        handler.example
                    ),
                    path => format!("`{path}` must be keys and values, not {other}"),
                })
            }
        }
    }

    /// Returns the path of a key.
    pub(super) fn path_of(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    /// Takes the value of a key. A key without a value counts as absent.
    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key).filter(|value| !value.is_null())
    }

    pub(super) fn into_map(self) -> Map<String, Value> {
        self.map
    }

    /// Rejects keys other than `known`, which are separated by commas, and `aliases`, which are not named in messages. This
    /// comes before anything is taken: a key that is missing may be there with a typing mistake.
    pub(super) fn of(self, known: &str, aliases: &[&str]) -> Result<Self, String> {
        let is_known = |key: &String| {
            known.split(", ").any(|known| known == key) || aliases.contains(&key.as_str())
        };
        let Some(key) = self.map.keys().find(|key| !is_known(key)) else {
            return Ok(self);
        };
        let (path, handler) = (self.path_of(key), self.handler.name);
        Err(format!(
            "`{path}` is no key of {handler}; known here: {known}"
        ))
    }

    /// Takes the keys of a mapping, if it is there.
    pub(super) fn inner(&mut self, key: &str) -> Result<Option<Self>, String> {
        let inner = self.take(key);
        let inner = inner.map(|value| Self::new(self.handler, self.path_of(key), value));
        inner.transpose()
    }

    /// Takes a text.
    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, String> {
        let text = self.take(key);
        let text = text.map(|value| scalar(&self.path_of(key), &value));
        text.transpose()
    }

    /// Takes a list of texts, or a single text.
    pub(super) fn strings(&mut self, key: &str) -> Result<Vec<String>, String> {
        let value = self.take(key);
        strings(&self.path_of(key), value)
    }

    /// Takes a value, a list of alternatives, or `{regex: …}`.
    pub(super) fn matcher(
        &mut self,
        key: &str,
        budget: &mut Budget,
    ) -> Result<Option<Matcher>, String> {
        let value = self.take(key);
        let matcher = value.map(|value| matcher(&self.path_of(key), &value, budget));
        matcher.transpose()
    }

    /// Takes a number. Without a value it is `usual`.
    pub(super) fn number(
        &mut self,
        key: &str,
        usual: u64,
        range: RangeInclusive<u64>,
    ) -> Result<u64, String> {
        let Some(value) = self.take(key) else {
            return Ok(usual);
        };
        let number = value.as_u64().filter(|number| range.contains(number));
        number.ok_or_else(|| {
            let (path, (least, most)) = (self.path_of(key), range.into_inner());
            format!("`{path}: {value}` must be {least} to {most}")
        })
    }

    /// Takes a switch. Without a value it is as usual.
    pub(super) fn switch(&mut self, key: &str, usual: bool) -> Result<bool, String> {
        match self.take(key) {
            None => Ok(usual),
            Some(Value::Bool(is_on)) => Ok(is_on),
            Some(other) => {
                let path = self.path_of(key);
                Err(format!("`{path}: {other}` must be true or false"))
            }
        }
    }

    /// Takes one of several words. Without a value it is the first one.
    pub(super) fn word<T: Copy>(&mut self, key: &str, known: &[(&str, T)]) -> Result<T, String> {
        let Some(value) = self.take(key) else {
            return Ok(known[0].1);
        };
        let found = known.iter().find(|(word, _)| value == *word);
        found.map(|(_, it)| *it).ok_or_else(|| {
            let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
            let (path, words) = (self.path_of(key), words.join(", "));
            format!("`{path}: {value}` must be one of {words}")
        })
    }

    /// Takes `permissions`: what a container may do with the device nodes.
    pub(super) fn permissions(&mut self) -> Result<&'static str, String> {
        const KNOWN: [&str; 7] = ["rwm", "r", "w", "m", "rw", "rm", "wm"];
        self.word("permissions", &KNOWN.map(|text| (text, text)))
    }

    /// Takes the network interfaces to use.
    pub(super) fn interfaces(&mut self) -> Result<Interfaces, String> {
        let Some(inner) = self.inner("interfaces")? else {
            return Ok(Interfaces::default());
        };
        let mut inner = inner.of("allow, deny", &[])?;
        let allow = inner.strings("allow")?;
        let deny = inner.take("deny");
        let deny = deny.map(|value| strings(&inner.path_of("deny"), Some(value)));
        Ok(Interfaces::new(allow, deny.transpose()?))
    }

    /// Takes `identityScope`: whether all nodes see the same device.
    pub(super) fn scope(&mut self) -> Result<Scope, String> {
        let value = self.take("identityScope");
        match value.as_ref().map(|v| (v, v.as_str())) {
            None | Some((_, Some("cluster"))) => Ok(Scope::Shared),
            Some((_, Some("node"))) => Ok(Scope::Node),
            Some((value, _)) => Err(format!(
                "`identityScope: {value}` must be cluster (one device for all nodes that see it) or node"
            )),
        }
    }
}

/// Returns one alternative as text. Numbers and booleans are what YAML makes of an unquoted 554 or true.
pub(super) fn scalar(path: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Number(number) if !number.is_f64() => Ok(number.to_string()),
        // YAML reads 1.10 as 1.1, which would match nothing.
        Value::Number(number) => Err(format!("`{path}: {number}`: put the number in quotes")),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(format!("`{path}` must be text, not {value}"))
        }
    }
}

/// Reads a value, a list of alternatives, or `{regex: …}`.
pub(super) fn matcher(path: &str, value: &Value, budget: &mut Budget) -> Result<Matcher, String> {
    budget
        .take_one()
        .map_err(|why| format!("`{path}`: {why}"))?;
    match value {
        Value::Array(values) if values.is_empty() => Err(format!(
            "`{path}` is an empty list and can never match: leave it out to take any"
        )),
        Value::Array(values) => {
            let texts = values.iter().map(|v| scalar(path, v));
            let texts = texts.collect::<Result<_, _>>()?;
            (budget.one_of(texts)).map_err(|why| format!("`{path}`: {why}"))
        }
        Value::Object(map) => match (map.get("regex"), map.len()) {
            (Some(Value::String(regex)), 1) => {
                (budget.regex(regex)).map_err(|why| unfit(path, regex, &why))
            }
            _ => Err(format!(
                "`{path}` must be a value, a list of values or {{regex: …}}, not {value}"
            )),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let text = scalar(path, value)?;
            (budget.one_of(vec![text])).map_err(|why| format!("`{path}`: {why}"))
        }
    }
}

fn unfit(path: &str, pattern: &str, why: &str) -> String {
    const SHOWN: usize = 200;
    let shown = limits::cut(pattern.to_owned(), SHOWN);
    format!("`{path}.regex: {shown}` is not a usable regular expression: {why}")
}

/// Reads a list of texts, or a single text.
pub(super) fn strings(path: &str, value: Option<Value>) -> Result<Vec<String>, String> {
    match value {
        None => Ok(vec![]),
        Some(Value::Array(values)) => values.iter().map(|v| scalar(path, v)).collect(),
        Some(value) => Ok(vec![scalar(path, &value)?]),
    }
}
