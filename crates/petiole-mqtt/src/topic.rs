//! Reads patterns of topics, and checks topics that others name. Pure.
use std::str::FromStr;

/// The longest topic or identity, in bytes. Beyond it: the message is ignored, and a pattern is refused.
pub const TOPIC_MAX: usize = 1024;
const NAME: &str = "{name}";

/// A topic with a part that names a device: `zigbee2mqtt/{name}/availability`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    before: String,
    after: String,
}

impl FromStr for Pattern {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(NAME);
        let (Some(before), Some(after), None) = (parts.next(), parts.next(), parts.next()) else {
            return Err("must have the part {name} once");
        };
        if !is_topic(&format!("{before}name{after}")) {
            return Err("must be a topic of at most 1024 bytes, without the wildcards + and #");
        }
        Ok(Self {
            before: before.to_owned(),
            after: after.to_owned(),
        })
    }
}

impl Pattern {
    /// Returns the filter for a subscription: the level of the name is a wildcard.
    pub fn filter(&self) -> String {
        let before = self.before.rfind('/').map_or(0, |slash| slash + 1);
        let after = self.after.find('/').unwrap_or(self.after.len());
        format!("{}+{}", &self.before[..before], &self.after[after..])
    }

    /// Returns the part of a topic that is the name.
    pub fn name<'a>(&self, topic: &'a str) -> Option<&'a str> {
        let rest = topic.strip_prefix(self.before.as_str())?;
        let name = rest.strip_suffix(self.after.as_str())?;
        (!name.is_empty() && !name.contains('/')).then_some(name)
    }
}

/// Returns whether a text can be the topic of a message, and not a filter for several.
pub(crate) fn is_topic(text: &str) -> bool {
    !text.is_empty() && text.len() <= TOPIC_MAX && !text.contains(['+', '#', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_filter_and_finds_the_name_in_a_topic() {
        let pattern: Pattern = "zigbee2mqtt/{name}/availability".parse().unwrap();
        assert_eq!(pattern.filter(), "zigbee2mqtt/+/availability");
        assert_eq!(pattern.name("zigbee2mqtt/lamp/availability"), Some("lamp"));
        for other in [
            "zigbee2mqtt/a/b/availability",
            "zigbee2mqtt//availability",
            "zigbee2mqtt/availability",
            "zigbee2mqtt/lamp/state",
        ] {
            assert_eq!(pattern.name(other), None, "{other}");
        }
    }

    #[test]
    fn a_name_may_be_a_part_of_a_level() {
        let pattern: Pattern = "site/cam-{name}.v1/LWT".parse().unwrap();
        assert_eq!(pattern.filter(), "site/+/LWT");
        assert_eq!(pattern.name("site/cam-7.v1/LWT"), Some("7"));
        assert_eq!(pattern.name("site/door-7.v1/LWT"), None);
        let alone: Pattern = "{name}".parse().unwrap();
        assert_eq!((alone.filter().as_str(), alone.name("x")), ("+", Some("x")));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        let long = format!("{}/{{name}}", "x".repeat(TOPIC_MAX));
        for text in [
            "",
            "a/b",
            "{name}/{name}",
            "a/+/{name}",
            "{name}/#",
            "a\0/{name}",
            &long,
        ] {
            assert!(text.parse::<Pattern>().is_err(), "{text}");
        }
    }
}
