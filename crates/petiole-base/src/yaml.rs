//! Parses YAML as Kubernetes and container runtimes do: by YAML 1.1 rules for numbers, so `0644` is octal. Pure.
use serde::Serialize;
use serde_json::Value;
use serde_saphyr::{DefaultMessageFormatter, MessageFormatter as _, Options, budget, options, ser};

/// An error in a text, with its place: one line, for conditions, Events and logs.
///
/// The library's own message has an excerpt of the text, and the code that draws it is a two-hundredth of the program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl From<serde_saphyr::Error> for Error {
    fn from(error: serde_saphyr::Error) -> Self {
        let formatter = DefaultMessageFormatter;
        let message = formatter.format_message(error.without_snippet());
        let place = error.location();
        let message = match place {
            Some(place) => formatter.localizer().attach_location(message, place),
            None => message,
        };
        // A key of the text, which the message names, may have several lines.
        Self(message.replace(char::is_control, " "))
    }
}

fn as_in_go() -> Options {
    options! { legacy_octal_numbers: true, with_snippet: false }
}

/// Returns the one document of a text; JSON is YAML too.
///
/// Types are read from the value: a YAML reader for every type would be a twentieth of the program.
pub fn from_str(text: &str) -> Result<Value, Error> {
    Ok(serde_saphyr::from_str_with_options(text, as_in_go())?)
}

/// Returns the one document of a text by YAML 1.2's rules, as Akri reads `discoveryDetails`. Its values may have at
/// most `bytes` bytes in total, because aliases can make a short text very long.
pub fn bounded(text: &str, bytes: usize) -> Result<Value, Error> {
    let bounded = options! {
        budget: budget! { max_total_scalar_bytes: bytes },
        with_snippet: false,
    };
    Ok(serde_saphyr::from_str_with_options(text, bounded)?)
}

/// Returns an object as one document.
pub fn to_string(object: &impl Serialize) -> Result<String, ser::Error> {
    serde_saphyr::to_string(object)
}

/// Returns every document of a text.
pub fn from_multiple(text: &str) -> Result<Vec<Value>, Error> {
    Ok(serde_saphyr::from_multiple_with_options(text, as_in_go())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn aliases_do_not_make_a_short_text_a_long_one() {
        let long = "x".repeat(20_000);
        let anchors: String = (0..1000).map(|n| format!("&a{n} y, ")).collect();
        let aliases = "*a, ".repeat(8000);
        let text = format!("[&a {long}, {anchors}{aliases}]");
        assert!(text.len() < 64_000);
        let error = bounded(&text, 64_000).unwrap_err();
        assert!(error.to_string().contains("scalar"), "{error}");
        assert!(bounded(&format!("[&a {long}, *a]"), 64_000).is_ok());
    }

    #[test]
    fn an_error_is_one_line_with_its_place() {
        let texts = [
            "a: 1\na: 2\n",
            "a: 1\nb: }\n",
            "a: 1\nb: \"\\q\"\n",
            "? \"a\\nb\"\n? \"a\\nb\"\n",
            "b: 1\nc: *a\n",
        ];
        for text in texts {
            let error = from_str(text).unwrap_err().to_string();
            assert_eq!(error.lines().count(), 1, "{error}");
            let (_, column) = error.split_once(" at line 2, column ").expect(&error);
            // An excerpt of the text would follow.
            assert!(column.bytes().all(|b| b.is_ascii_digit()), "{error}");
        }
    }

    #[test]
    fn numbers_are_those_that_kubernetes_reads() {
        for (text, number) in [
            ("0644", json!(420)),
            ("0o644", json!(420)),
            ("420", json!(420)),
            ("0", json!(0)),
            ("1.5", json!(1.5)),
            ("'0644'", json!("0644")),
        ] {
            assert_eq!(from_str(text).unwrap(), number, "{text}");
        }
    }
}
