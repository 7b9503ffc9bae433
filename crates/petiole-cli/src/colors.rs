//! Colours the words of an output that say how something is, on a terminal whose user has not refused colours.
use std::{
    env,
    io::{IsTerminal as _, stdout},
};

/// A foreground colour, as its SGR parameter (ECMA-48 8.3.117).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Color {
    Red = 31,
    Green = 32,
    Yellow = 33,
}

/// Returns the text with colours if the standard output shows them: it is a terminal, which is not a dumb one, and
/// `NO_COLOR` is unset or empty (no-color.org).
#[expect(
    clippy::disallowed_methods,
    reason = "these are settings of the terminal, not of the program"
)]
pub fn for_stdout(text: String) -> String {
    let is_refused = env::var("NO_COLOR").is_ok_and(|value| !value.is_empty());
    let is_dumb = env::var("TERM").is_ok_and(|term| term == "dumb");
    if stdout().is_terminal() && !is_refused && !is_dumb {
        paint(&text)
    } else {
        text
    }
}

/// Colours each word that is a state. White space stays as it is, because the columns are aligned already.
fn paint(text: &str) -> String {
    let parts = text.split_inclusive(char::is_whitespace);
    let painted = parts.map(|part| {
        let word = part.trim_end();
        match color_of(word) {
            Some(color) => format!("\x1b[{}m{word}\x1b[0m{}", color as u8, &part[word.len()..]),
            None => part.to_owned(),
        }
    });
    painted.collect()
}

fn color_of(word: &str) -> Option<Color> {
    match word {
        "Healthy" | "Running" | "Connected" | "ok" => Some(Color::Green),
        "Pending" | "Registered" | "Stopped" | "warn" => Some(Color::Yellow),
        "Unhealthy" | "Deleted" | "Failed" | "Refused" | "FAIL" => Some(Color::Red),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_state_have_a_colour_and_the_columns_stay() {
        assert_eq!(
            paint("NAME   HEALTH\ncam    Healthy\ndoor   Unhealthy on node-1\n"),
            "NAME   HEALTH\ncam    \x1b[32mHealthy\x1b[0m\ndoor   \x1b[31mUnhealthy\x1b[0m on node-1\n"
        );
    }

    #[test]
    fn a_word_that_only_contains_a_state_has_none() {
        let text = "Healthy-cam   unhealthy\n";
        assert_eq!(paint(text), text);
    }
}
