//! Matches a text of a device: with one of several texts, or with a regular expression. Pure.
use crate::discovery::glob::TEXT_LENGTH;
use regex_lite::{Regex, RegexBuilder};

/// The most filters of a Configuration. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const MATCHERS_MAX: usize = 32;
/// The most bytes that all texts and regular expressions of a Configuration's filters may need together, compiled and while
/// they match. Without a limit a short pattern could need gigabytes. Beyond it: the Configuration is not used
/// (`BadDiscoveryDetails`).
const BYTES_MAX: usize = 256 * 1024;
/// The most steps that all patterns of a Configuration take on texts of 255 bytes: one for each byte and each state of a
/// regular expression. A step takes up to 17 ns. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
pub(super) const STEPS_MAX: usize = 200_000;
/// The bytes of a state of a compiled regular expression.
const STATE_BYTES: usize = 32;
/// What a text takes beside its bytes: where it begins, its length, and what the allocator adds.
const TEXT_BYTES: usize = 48;
/// The precision with which the size of a compiled regular expression is found, in bytes.
const SIZE_PRECISION: usize = 2 * STATE_BYTES;
/// The longest regular expression, in bytes. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const PATTERN_MAX: usize = 1024;

/// A condition on a text.
#[derive(Debug, Clone)]
pub(super) enum Matcher {
    OneOf(Vec<String>),
    /// A regular expression that must match the whole text.
    Regex(Regex),
}

/// The matchers, bytes and steps that a Configuration may still use.
#[derive(Debug)]
pub(super) struct Budget {
    matchers: usize,
    bytes: usize,
    steps: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            matchers: MATCHERS_MAX,
            bytes: BYTES_MAX,
            steps: STEPS_MAX,
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

    /// Returns the steps that all matchers so far may take together.
    pub(super) fn steps(&self) -> usize {
        STEPS_MAX - self.steps
    }

    /// Counts steps.
    pub(super) fn take_steps(&mut self, steps: usize) -> Result<(), String> {
        match self.steps.checked_sub(steps) {
            Some(left) => self.steps = left,
            None => return Err(self.too_slow()),
        }
        Ok(())
    }

    /// Creates a matcher of several texts.
    pub(super) fn one_of(&mut self, texts: Vec<String>) -> Result<Matcher, String> {
        self.take_steps(texts.len())?;
        let bytes = texts.iter().map(|text| text.len() + TEXT_BYTES).sum();
        self.take_bytes(bytes)?;
        Ok(Matcher::OneOf(texts))
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
        self.compiled(pattern, self.size_max())?;
        let (regex, bytes) = self.sized(&format!("^(?:{pattern})$"))?;
        self.take_steps(bytes.div_ceil(STATE_BYTES) * TEXT_LENGTH)?;
        // A match takes a table with the places of all groups in each state, which is about a state's size for each group.
        // The table is kept.
        self.take_bytes(bytes.saturating_mul(1 + regex.captures_len()))?;
        Ok(Matcher::Regex(regex))
    }

    fn take_bytes(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or_else(too_large)?;
        Ok(())
    }

    /// Returns the largest size that a compiled regular expression may have, in bytes.
    fn size_max(&self) -> usize {
        self.bytes.min(self.steps / TEXT_LENGTH * STATE_BYTES)
    }

    /// Returns the compiled pattern, and its size rounded up.
    fn sized(&self, pattern: &str) -> Result<(Regex, usize), String> {
        let (mut too_small, mut enough) = (0, self.size_max());
        let mut regex = self.compiled(pattern, enough)?;
        while enough - too_small > SIZE_PRECISION {
            let middle = too_small.midpoint(enough);
            match self.compiled(pattern, middle) {
                Ok(smaller) => (regex, enough) = (smaller, middle),
                Err(_) => too_small = middle,
            }
        }
        Ok((regex, enough))
    }

    fn compiled(&self, pattern: &str, size: usize) -> Result<Regex, String> {
        let built = RegexBuilder::new(pattern).size_limit(size).build();
        built.map_err(|error| match error.to_string() {
            // The library has one kind of error; its text tells them apart, and a test holds that.
            why if !why.contains("size limit") => why,
            _ if self.size_max() == self.bytes => too_large(),
            _ => self.too_slow(),
        })
    }

    fn too_slow(&self) -> String {
        format!(
            "all patterns of a Configuration may take {STEPS_MAX} steps on a text of {TEXT_LENGTH} bytes, which is one step for each state and byte, and this one takes more than the {} that are left: use fewer repetitions and alternatives, or a second Configuration",
            self.steps
        )
    }
}

fn too_large() -> String {
    format!(
        "all texts and regular expressions of a Configuration may take {} KiB of memory, and this one exceeds the rest: use fewer texts and repetitions, and (?:…) instead of (…)",
        BYTES_MAX / 1024
    )
}

impl Matcher {
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
        assert!(why(r"\w{9000}").contains("200000 steps"));
        assert!(why("(((a{50}){50}){50}){50}").contains("200000 steps"));
        // 500 states and 200 groups, whose places would take 3 MB at the first match.
        assert!(why(&"()".repeat(200)).contains("256 KiB"));
        assert!(why(&"a".repeat(1025)).contains("1025 bytes"));
    }

    #[test]
    fn a_pattern_that_takes_many_steps_for_each_byte_is_refused_and_the_sum_counts() {
        // 3,000 states, which fit into the bytes: 765,000 steps on each TXT value of 255 bytes.
        let why = regex(".{0,3000}Z").unwrap_err();
        assert!(
            why.contains("200000 steps on a text of 255 bytes") && why.contains("use fewer"),
            "{why}"
        );
        let mut budget = Budget::default();
        let taken = (0..1000)
            .take_while(|_| budget.regex("[a-z]{20}").is_ok())
            .count();
        // Each has about 31 states.
        assert!((22..=26).contains(&taken), "{taken}");
        assert!(
            (180_000..=STEPS_MAX).contains(&budget.steps()),
            "{budget:?}"
        );
        let why = budget.one_of(vec![String::new(); STEPS_MAX]).unwrap_err();
        assert!(why.contains("that are left"), "{why}");
    }

    #[test]
    fn a_long_list_of_short_texts_counts_as_what_it_takes_in_memory() {
        let texts = |count| vec!["a".to_owned(); count];
        let mut budget = Budget::default();
        assert!(budget.one_of(texts(4_000)).is_ok());
        // As many as `discoveryDetails` may have.
        let why = budget.one_of(texts(32_000)).unwrap_err();
        assert!(why.contains("256 KiB"), "{why}");
    }
}
