//! What a text of a device must be to be taken: one of some texts, or a regular expression. Pure.
use regex::Regex;

/// What a text must be.
#[derive(Debug, Clone)]
pub(super) enum Matcher {
    OneOf(Vec<String>),
    /// The whole text, not a part of it.
    Regex(Regex),
}

impl Matcher {
    pub(super) fn one_of(texts: Vec<String>) -> Self {
        Self::OneOf(texts)
    }

    pub(super) fn regex(pattern: &str) -> Result<Self, regex::Error> {
        // Compiled bare first, so that `a)|(b` is refused and messages show the user's pattern.
        Regex::new(pattern)?;
        Regex::new(&format!("^(?:{pattern})$")).map(Self::Regex)
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Self::OneOf(texts) => texts.iter().any(|t| t == text),
            Self::Regex(regex) => regex.is_match(text),
        }
    }

    /// Names of hosts: case and the final dot mean nothing.
    pub(super) fn matches_host(&self, host: &str) -> bool {
        match self {
            Self::OneOf(texts) => texts
                .iter()
                .any(|t| t.trim_end_matches('.').eq_ignore_ascii_case(host)),
            Self::Regex(regex) => regex.is_match(host),
        }
    }

    /// The exact texts; none for a regular expression.
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

    #[test]
    fn a_regex_is_about_the_whole_text() {
        let matcher = Matcher::regex("cam|door").unwrap();
        assert!(matcher.matches("cam") && matcher.matches("door"));
        assert!(!matcher.matches("camera") && !matcher.matches("outdoor"));
        assert!(Matcher::regex("a)|(b").is_err());
    }
}
