//! Makes text fit for terminals, logs and messages: without control characters, because anyone on the LAN can choose names and
//! values, and without the rest of a long list.

/// Returns the text with escapes for all characters that control a terminal, start a line or reorder the text.
pub fn printable(text: &str) -> String {
    text.chars().fold(String::new(), |mut safe, c| {
        if c.is_control() || is_invisible_order(c) {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
        safe
    })
}

/// Returns whether a character is a mark, embedding, override or isolate of Unicode's bidirectional algorithm, or a
/// line separator.
fn is_invisible_order(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the first names of a list, at most so many, and the number of the others.
pub fn listed<T: AsRef<str>>(all: &[T], most: usize) -> String {
    let first: Vec<&str> = all.iter().take(most).map(AsRef::as_ref).collect();
    let first = first.join(", ");
    match all.len().saturating_sub(most) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_shown_instead_of_sent() {
        assert_eq!(
            printable("a\x1b[2J\nb\r\t\u{9b}1m"),
            "a\\u{1b}[2J\\nb\\r\\t\\u{9b}1m"
        );
        assert_eq!(printable("safe\u{202e}gnp.exe"), "safe\\u{202e}gnp.exe");
    }

    #[test]
    fn a_list_names_the_first_ones_and_counts_the_others() {
        assert_eq!(listed(&["a", "b"], 2), "a, b");
        assert_eq!(listed(&["a", "b", "c", "d"], 2), "a, b and 2 more");
    }

    #[test]
    fn names_of_all_languages_stay_as_they_are() {
        for name in ["Küche", "カメラ", "مطبخ", "\u{1f4f7} cam", "a\\nb"] {
            assert_eq!(printable(name), name);
        }
    }
}
