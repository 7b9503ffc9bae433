//! Puts numbers and lists into words. Pure.
use petiole_model::model::printable;

/// Returns a number with its noun.
pub fn plural(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// Returns the first names of a list, and the number of the others.
pub(crate) fn listed<T: AsRef<str>>(all: &[T]) -> String {
    const SHOWN: usize = 3;
    printable::listed(all, SHOWN)
}
