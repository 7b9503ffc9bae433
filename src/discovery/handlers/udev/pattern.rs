//! Matches the value of a rule: a glob of udev, and for some fields also a regular expression. Pure.
//!
//! Akri gives some matches to libudev, which reads the value as a glob; it reads the value of other matches as a
//! regular expression. Rules of both kinds exist, so a value that may be either matches as either.
use super::super::matcher::{Budget, Matcher};
use crate::discovery::glob::Glob;

/// The longest value in a rule, in bytes. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const VALUE_MAX: usize = 1024;

/// The value of one match.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    globs: Vec<Glob>,
    regex: Option<Matcher>,
}

impl Pattern {
    /// Parses a value. `may_be_regex` is true for the fields whose value may be a regular expression.
    pub(super) fn new(
        value: &str,
        may_be_regex: bool,
        budget: &mut Budget,
    ) -> Result<Self, String> {
        if value.len() > VALUE_MAX {
            return Err(format!(
                "it has {} bytes; {VALUE_MAX} are the most: shorten it",
                value.len()
            ));
        }
        let globs = alternatives(value);
        budget.take_steps(globs.iter().map(Glob::steps).sum())?;
        let regex = if may_be_regex && is_regex(value) {
            match budget.regex(value) {
                Ok(regex) => Some(regex),
                // `*-port` is a glob, but not a regular expression.
                Err(_) if is_glob(value) => None,
                Err(why) => return Err(why),
            }
        } else {
            None
        };
        Ok(Self { globs, regex })
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        self.globs.iter().any(|glob| glob.matches(text))
            || self.regex.as_ref().is_some_and(|regex| regex.matches(text))
    }
}

/// Returns whether a value has another meaning as a regular expression than as plain alternatives. A single dot, as in
/// the name of a USB port, does not count.
fn is_regex(value: &str) -> bool {
    value.contains(['*', '+', '?', '(', '[', '{', '\\', '^', '$'])
}

/// Returns whether a value has the characters of globs, and none that only regular expressions have.
fn is_glob(value: &str) -> bool {
    value.contains(['*', '?', '[']) && !value.contains(['+', '(', '{', '\\', '^', '$'])
}

/// Returns the globs between `|`, and also the whole value as one glob if there are several.
fn alternatives(value: &str) -> Vec<Glob> {
    let mut globs: Vec<Glob> = value.split('|').map(Glob::new).collect();
    if globs.len() > 1 {
        globs.push(Glob::new(value));
    }
    globs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn glob(value: &str) -> Pattern {
        Pattern::new(value, false, &mut Budget::default()).unwrap()
    }

    fn either(value: &str) -> Pattern {
        Pattern::new(value, true, &mut Budget::default()).unwrap()
    }

    #[test]
    fn a_glob_matches_as_udev_matches_it() {
        for (pattern, yes, no) in [
            ("video[0-9]*", "video10", "video"),
            ("video[0-9]*", "video0", "vide0"),
            ("ttyUSB?", "ttyUSB0", "ttyUSB"),
            ("?*", "x", ""),
            ("*", "", "-"),
            (
                "/devices/*/usb?/*",
                "/devices/pci0/usb1/1-1/x",
                "/devices/usb1",
            ),
            ("*:capture:*", ":video_output:capture:", "capture"),
            ("[!a-c]x", "dx", "ax"),
            ("[^a-c]x", "dx", "bx"),
            ("[]]x", "]x", "x"),
            ("[", "[", "x"),
            (r"a\*", "a*", "ab"),
            ("sd?|nvme*", "nvme0n1", "vda"),
            ("a*b*c", "aXbYbZc", "aXbY"),
            ("10c4", "10c4", "10c40"),
        ] {
            assert!(glob(pattern).matches(yes), "{pattern} {yes}");
            if (pattern, no) != ("*", "-") {
                assert!(!glob(pattern).matches(no), "{pattern} {no}");
            }
        }
    }

    #[test]
    fn a_value_that_akri_reads_as_a_regular_expression_is_one_and_also_a_glob() {
        for (pattern, texts) in [
            ("10c4|0403", &["10c4", "0403"][..]),
            ("CP210.*", &["CP2102 USB to UART", "CP210"]),
            ("CP210*", &["CP2102 USB to UART", "CP21000"]),
            ("(front|back) door", &["front door", "back door"]),
            ("1-1.*", &["1-1.2", "1-1.2:1.0"]),
            ("*-port", &["usb1-port"]),
        ] {
            for text in texts {
                assert!(either(pattern).matches(text), "{pattern} {text}");
            }
        }
        assert!(!either("1-1.2").matches("1-1x2"));
        assert!(!either("video[0-9]+").matches("myvideo0"));
        assert!(!glob("video[0-9]+").matches("video00"));
    }

    #[test]
    fn a_value_that_is_neither_and_one_that_is_too_large_are_refused() {
        let refused = |value: &str| Pattern::new(value, true, &mut Budget::default()).unwrap_err();
        assert!(refused("(a").contains("without closing"));
        assert!(refused(&"a".repeat(1025)).contains("1025 bytes"));
        assert!(refused(r"\w{9000}").contains("200000 steps"));
        assert!(refused(&format!("*{}", "a".repeat(800))).contains("200000 steps"));
    }

    #[test]
    fn the_steps_of_a_glob_are_counted_by_what_stands_between_its_stars() {
        for (value, steps) in [
            ("tty", 4),
            ("tty[a-cx]?", 3 + 3 + 1 + 1),
            ("video*", 5 + 255 + 1),
            ("*a*bc*", 255 * 3 + 1),
            ("a|b", 2 + 2 + 4),
        ] {
            let mut budget = Budget::default();
            Pattern::new(value, false, &mut budget).unwrap();
            assert_eq!(budget.steps(), steps, "{value}");
        }
    }

    proptest! {
        #[test]
        fn a_text_without_special_characters_matches_itself_alone(text in "[a-z0-9:/_.-]{0,20}", other in "[a-z0-9:/_.-]{0,20}") {
            prop_assert!(glob(&text).matches(&text));
            prop_assert_eq!(glob(&text).matches(&other), text == other);
        }

        #[test]
        fn no_pattern_makes_it_panic(pattern in "[a-c*?\\[\\]!^\\\\|-]{0,24}", text in "[a-c-]{0,40}") {
            glob(&pattern).matches(&text);
        }
    }
}
