//! Parses durations on the command line: `5s`, `500ms`, `1m30s`.
use std::time::Duration;

/// Parses a duration, which must not be zero.
pub fn duration(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration = text
        .parse()
        .map_err(|e| format!("{e}; write 5s or 1m30s"))?;
    match Duration::try_from(span) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("must be longer than nothing: 5s or 1m30s".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_everywhere_in_kubernetes() {
        for (text, millis) in [
            ("5s", 5000),
            ("500ms", 500),
            ("1m", 60_000),
            ("1m30s", 90_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "-5s", "0s", "soon"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
