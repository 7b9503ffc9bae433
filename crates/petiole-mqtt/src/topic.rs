//! Reads patterns of topics, and checks topics that others name. Pure.
use std::str::FromStr;

/// The longest topic, in bytes. Beyond it: the message is ignored, and a pattern is refused.
pub const TOPIC_MAX: usize = 1024;
/// The most levels of a topic, which brokers bound, too. Beyond it: the topic is ignored, and a pattern is refused.
pub const LEVELS_MAX: usize = 100;
/// The longest identity of a device, in bytes. Beyond it: the message is not used, and that is said.
pub const ID_MAX: usize = 256;
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
            return Err(
                "must be a topic of at most 1024 bytes and 100 levels, without the wildcards + and #, control characters and a $ at its beginning",
            );
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

/// Returns whether a text can be the topic of a message, and not a filter for several. A broker may end the session of a client that
/// subscribes to anything else: so characters that no text of MQTT should have are refused, and topics with `$`, which have a meaning
/// of their own.
pub fn is_topic(text: &str) -> bool {
    let is_whole = !text.is_empty() && text.len() <= TOPIC_MAX && !text.starts_with('$');
    is_whole
        && is_plain(text)
        && !text.contains(['+', '#'])
        && text.split('/').count() <= LEVELS_MAX
}

/// Returns whether a text can be the identity of a device.
pub(crate) fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= ID_MAX && is_plain(text)
}

/// Returns whether a text has neither control characters nor what Unicode calls non-characters.
fn is_plain(text: &str) -> bool {
    let is_no_character = |c: char| {
        let number = u32::from(c);
        number & 0xFFFE == 0xFFFE || (0xFDD0..=0xFDEF).contains(&number)
    };
    !text.contains(|c: char| c.is_control() || is_no_character(c))
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
            "a\r\n/{name}",
            "a\u{FFFE}/{name}",
            "$share/g/{name}",
            &format!("{{name}}{}", "/x".repeat(LEVELS_MAX)),
            &long,
        ] {
            assert!(text.parse::<Pattern>().is_err(), "{text}");
        }
    }
}
