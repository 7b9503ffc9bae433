//! YAML as Kubernetes and its container runtimes read it: by YAML 1.1's rules for numbers, so that `0644` is octal. Pure.
use serde::de::DeserializeOwned;
use serde_saphyr::{Deserializer, Error, Options, budget, options};

fn as_in_go() -> Options {
    options! { legacy_octal_numbers: true }
}

/// The one document of a text; JSON is YAML too.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_saphyr::from_str_with_options(text, as_in_go())
}

/// The one document of a text that is read by YAML 1.2's rules, as Akri reads `discoveryDetails`. All that it says has at
/// most so many bytes: aliases can make a short text very long.
pub fn bounded<T: DeserializeOwned>(text: &str, bytes: usize) -> Result<T, Error> {
    let bounded = options! {
        budget: budget! { max_total_scalar_bytes: bytes },
    };
    serde_saphyr::from_str_with_options(text, bounded)
}

/// Every document of a text.
pub fn from_multiple<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, Error> {
    serde_saphyr::from_multiple_with_options(text, as_in_go())
}

/// The one document of a text, by a deserializer that the caller wraps.
pub fn with_deserializer<T>(
    text: &str,
    read: impl for<'e> FnOnce(Deserializer<'_, 'e>) -> Result<T, Error>,
) -> Result<T, Error> {
    serde_saphyr::with_deserializer_from_str_with_options(text, as_in_go(), read)
}

/// An error as one line, for conditions, Events and logs: the place and what is wrong, without the picture.
pub fn one_line(error: &Error) -> String {
    let error = error.without_snippet().to_string();
    error.strip_prefix("error: ").unwrap_or(&error).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn aliases_do_not_make_a_short_text_a_long_one() {
        let long = "x".repeat(20_000);
        let anchors: String = (0..1000).map(|n| format!("&a{n} y, ")).collect();
        let aliases = "*a, ".repeat(8000);
        let text = format!("[&a {long}, {anchors}{aliases}]");
        assert!(text.len() < 64_000);
        let error = bounded::<Value>(&text, 64_000).unwrap_err();
        assert!(one_line(&error).contains("scalar"), "{error}");
        assert!(bounded::<Value>(&format!("[&a {long}, *a]"), 64_000).is_ok());
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
            assert_eq!(from_str::<Value>(text).unwrap(), number, "{text}");
        }
    }
}
