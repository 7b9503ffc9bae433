//! Matches a text of a device: with one of several texts, or with a regular expression. Pure.
use regex_lite::{Regex, RegexBuilder};

/// The most filters of a Configuration. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const MATCHERS_MAX: usize = 32;
/// The most bytes that all regular expressions of a Configuration may need together, compiled and while they match.
/// Without a limit a short pattern could need gigabytes. Beyond it: the Configuration is not used
/// (`BadDiscoveryDetails`).
const BYTES_MAX: usize = 512 * 1024;
/// The first size limit with which a regular expression is compiled, in bytes.
const COMPILED_LEAST: usize = 4096;
/// The longest regular expression, in bytes. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const PATTERN_MAX: usize = 1024;

/// A condition on a text.
#[derive(Debug, Clone)]
pub(super) enum Matcher {
    OneOf(Vec<String>),
    /// A regular expression that must match the whole text.
    Regex(Regex),
}

/// The matchers and bytes that a Configuration may still use.
#[derive(Debug)]
pub(super) struct Budget {
    matchers: usize,
    bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            matchers: MATCHERS_MAX,
            bytes: BYTES_MAX,
        }
    }
}

impl Budget {
    /// Counts one matcher.
    pub(super) fn take_one(&mut self) -> Result<(), String> {
        match self.matchers.checked_sub(1) {
            Some(left) => self.matchers = left,
            None => {
                return Err(format!(
                    "a Configuration may have {MATCHERS_MAX} filters at most: remove some"
                ));
            }
        }
        Ok(())
    }

    /// Creates a matcher that `pattern` must match as a whole. The error says what is wrong with the pattern.
    pub(super) fn regex(&mut self, pattern: &str) -> Result<Matcher, String> {
        if pattern.len() > PATTERN_MAX {
            let bytes = pattern.len();
            return Err(format!(
                "it has {bytes} bytes; {PATTERN_MAX} are the most: shorten it"
            ));
        }
        // The pattern is compiled alone first, so that `a)|(b` is rejected and messages show the user's pattern.
        self.compiled(pattern)?;
        let (regex, bytes) = self.compiled(&format!("^(?:{pattern})$"))?;
        // A match takes a table with the places of all groups in each state, which is about a state's size for each group.
        // The table is kept.
        let needed = bytes.saturating_mul(1 + regex.captures_len());
        self.bytes = self.bytes.checked_sub(needed).ok_or_else(too_large)?;
        Ok(Matcher::Regex(regex))
    }

    /// Returns the compiled pattern, and an upper limit of the bytes that it needs.
    fn compiled(&self, pattern: &str) -> Result<(Regex, usize), String> {
        let mut limit = COMPILED_LEAST;
        loop {
            limit = limit.min(self.bytes);
            let why = match RegexBuilder::new(pattern).size_limit(limit).build() {
                Ok(regex) => return Ok((regex, limit)),
                Err(error) => error.to_string(),
            };
            // The library has one kind of error; its text tells them apart, and a test holds that.
            if !why.contains("size limit") {
                return Err(why);
            }
            if limit == self.bytes {
                return Err(too_large());
            }
            limit *= 2;
        }
    }
}

fn too_large() -> String {
    format!(
        "all regular expressions of a Configuration may take {} KiB of memory, and this one exceeds the rest: use fewer repetitions, and (?:…) instead of (…)",
        BYTES_MAX / 1024
    )
}

impl Matcher {
    pub(super) fn one_of(texts: Vec<String>) -> Self {
        Self::OneOf(texts)
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Self::OneOf(texts) => texts.iter().any(|t| t == text),
            Self::Regex(regex) => regex.is_match(text),
        }
    }

    /// Matches the name of a host. Case and the final dot are ignored.
    pub(super) fn matches_host(&self, host: &str) -> bool {
        match self {
            Self::OneOf(texts) => texts
                .iter()
                .any(|t| t.trim_end_matches('.').eq_ignore_ascii_case(host)),
            Self::Regex(regex) => regex.is_match(host),
        }
    }

    /// Returns the exact texts; a regular expression has none.
    pub(super) fn alternatives(&self) -> &[String] {
        match self {
            Self::OneOf(texts) => texts,
            Self::Regex(_) => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regex(pattern: &str) -> Result<Matcher, String> {
        Budget::default().regex(pattern)
    }

    #[test]
    fn a_regex_is_about_the_whole_text() {
        let matcher = regex("cam|door").unwrap();
        assert!(matcher.matches("cam") && matcher.matches("door"));
        assert!(!matcher.matches("camera") && !matcher.matches("outdoor"));
        assert!(regex("a)|(b").is_err());
    }

    #[test]
    fn letters_of_any_alphabet_match_a_dot_and_classes_are_ascii() {
        assert!(regex("K.che").unwrap().matches("Küche"));
        assert!(regex("K[äöü]che").unwrap().matches("Küche"));
        assert!(!regex(r"K\wche").unwrap().matches("Küche"));
    }

    #[test]
    fn a_pattern_that_takes_much_memory_is_refused_and_those_of_users_are_not() {
        let mut budget = Budget::default();
        for usual in [
            r"\w+-\w+",
            r"(?i)axis .*-[0-9a-f]{12}",
            r"HP LaserJet \d+ \[[0-9A-F]{6}\]",
            "(front|back|side) door( [0-9]+)?",
            r"192\.168\..*",
        ] {
            assert!(budget.regex(usual).is_ok(), "{usual} {budget:?}");
        }
        let why = |pattern: &str| regex(pattern).unwrap_err();
        assert!(why(r"\w{9000}").contains("512 KiB"));
        assert!(why("(((a{50}){50}){50}){50}").contains("512 KiB"));
        // 7,500 states and 500 groups, whose places would take 120 MB at the first match.
        let groups = format!("(?:{}){{5}}", "()".repeat(500));
        assert!(why(&groups).contains("512 KiB"));
        assert!(why(&"a".repeat(1025)).contains("1025 bytes"));
    }

    #[test]
    fn many_patterns_together_take_no_more_than_one_may() {
        let mut budget = Budget::default();
        let taken = (0..1000)
            .take_while(|_| budget.regex("[a-z]{20}").is_ok())
            .count();
        assert!((30..=64).contains(&taken), "{taken}");
    }
}
