//! Holds what a host says about itself. Pure.
use std::collections::BTreeMap;

/// The longest value of a fact, in bytes. Beyond it: the end is cut off.
pub const VALUE_MAX: usize = 256;

/// The facts that are known of a host, by names such as `VENDOR`. No value is empty, too long, or has control characters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts(BTreeMap<&'static str, String>);

impl Facts {
    /// Sets a fact that is not known yet. An empty value is none.
    pub(crate) fn set(&mut self, name: &'static str, value: &str) {
        let printable = |c: char| if c.is_control() { ' ' } else { c };
        let mut value: String = value
            .trim()
            .chars()
            .take(VALUE_MAX)
            .map(printable)
            .collect();
        value.truncate(value.floor_char_boundary(VALUE_MAX));
        let value = value.trim();
        if !value.is_empty() {
            self.0.entry(name).or_insert_with(|| value.to_owned());
        }
    }

    /// Sets a fact of bytes that should be text.
    pub(crate) fn set_bytes(&mut self, name: &'static str, value: &[u8]) {
        // A control character of the host is one byte, and its text begins in the first part.
        let value = &value[..value.len().min(4 * VALUE_MAX)];
        self.set(name, &String::from_utf8_lossy(value));
    }

    /// Returns the value of a fact.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns all facts, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// Removes facts whose values have this secret in them.
    #[must_use]
    pub fn without(mut self, secret: &str) -> Self {
        self.0.retain(|_, value| !value.contains(secret));
        self
    }

    /// Adds the facts of another conversation with the same host. Those that are known stay.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        for (name, value) in other.0 {
            self.0.entry(name).or_insert(value);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_printable_bounded_and_the_first_one_of_its_name() {
        let mut facts = Facts::default();
        facts.set("A", " Press\n4\0 ");
        facts.set("A", "another");
        facts.set("B", " \0 ");
        facts.set("C", &"é".repeat(VALUE_MAX));
        facts.set_bytes("D", &[0xFF, b'x']);
        assert_eq!(facts.get("A"), Some("Press 4"));
        assert_eq!(facts.get("B"), None);
        assert_eq!(facts.get("C").map(str::len), Some(VALUE_MAX));
        assert_eq!(facts.get("D"), Some("\u{FFFD}x"));
        let facts = facts.without("ess");
        assert!(facts.get("A").is_none() && facts.get("C").is_some());
    }
}
