//! Parses the filter of the log. `tracing` takes a single word that is no level for the name of a module, and then logs
//! nothing else: a typo would turn the log off. So a word without `=` must be a level here.
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};

/// A part of a filter that is neither a level nor `MODULE=LEVEL`.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadFilter {
    #[error(
        "{0:?} is no level: write error, warn, info, debug or off, or MODULE=LEVEL such as petiole=debug"
    )]
    Level(String),
    #[error(transparent)]
    Directive(#[from] ParseError),
}

/// Parses directives such as `info` or `petiole=debug,warn`.
pub(super) fn targets(text: &str) -> Result<Targets, BadFilter> {
    let words = text.split(',').map(str::trim);
    let mut bare = words.filter(|word| !word.contains('=') && !word.is_empty());
    match bare.find(|word| word.parse::<LevelFilter>().is_err()) {
        Some(word) => Err(BadFilter::Level(word.to_owned())),
        None => Ok(text.parse()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused_with_the_levels() {
        for text in ["verbose", "warn,verbose", "petiole", "petiole=debug,wran"] {
            let error = targets(text).unwrap_err().to_string();
            assert!(error.contains("error, warn, info, debug or off"), "{error}");
        }
        let error = targets("warn,verbose").unwrap_err().to_string();
        assert!(error.starts_with("\"verbose\" is no level"), "{error}");
        assert!(targets("petiole=debgu").is_err());
    }

    #[test]
    fn levels_and_directives_are_taken() {
        for text in [
            "info",
            "OFF",
            "trace",
            "petiole=debug,warn",
            "warn, kube_client=info",
            "petiole::agent=debug",
        ] {
            assert!(targets(text).is_ok(), "{text}");
        }
    }
}
