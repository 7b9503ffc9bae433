//! Writes the problems of single devices and of several. Pure.
use crate::model::limits::cut;
use std::fmt::Display;

/// The longest problem of one server or host, in bytes. Beyond it: the end is cut off.
const PROBLEM_MAX: usize = 500;

/// Returns a problem that may have words of a server.
pub(super) fn problem(text: String) -> String {
    cut(text, PROBLEM_MAX)
}

/// Returns one problem of several devices, if there are some.
pub(super) fn such_as(
    count: usize,
    first: Option<impl Display>,
    what: &str,
    why: &str,
) -> Option<String> {
    first.map(|first| format!("{count} {what}, such as {first}: {why}"))
}
