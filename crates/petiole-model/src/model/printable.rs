//! Escapes text for terminals and logs, because anyone on the LAN can choose names and values.

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
