//! Text for terminals and logs. Names and values come from anyone on the LAN.

/// The text with everything that would steer a terminal, begin a line or reorder what is shown written out as an escape.
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

/// Marks, embeddings, overrides and isolates of Unicode's bidirectional algorithm, and its separators of lines.
fn is_invisible_order(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
    fn names_of_all_languages_stay_as_they_are() {
        for name in ["Küche", "カメラ", "مطبخ", "\u{1f4f7} cam", "a\\nb"] {
            assert_eq!(printable(name), name);
        }
    }
}
