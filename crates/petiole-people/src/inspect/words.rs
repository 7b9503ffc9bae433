//! Puts numbers and lists into words. Pure.

/// Returns a number with its noun.
pub fn plural(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// Returns the first names of a list, and the number of the others.
pub(crate) fn listed<T: AsRef<str>>(all: &[T]) -> String {
    const SHOWN: usize = 3;
    let first: Vec<&str> = all.iter().take(SHOWN).map(AsRef::as_ref).collect();
    let first = first.join(", ");
    match all.len().saturating_sub(SHOWN) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
