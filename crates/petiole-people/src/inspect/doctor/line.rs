//! Defines the lines of `petiole doctor`. Pure.

/// The most characters of a line. The end of a longer one, which has names or messages of others, is left out.
pub(super) const LINE_MAX: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Ok,
    Warn,
    Fail,
}

/// One line of `petiole doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub level: Level,
    pub text: String,
}

pub(super) fn check(level: Level, text: impl Into<String>) -> Check {
    let mut text: String = text.into();
    if text.chars().count() > LINE_MAX {
        text = text.chars().take(LINE_MAX - 1).chain(['…']).collect();
    }
    Check { level, text }
}
