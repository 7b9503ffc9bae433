//! Describes failed requests to the user, and decides whether to repeat them.
use crate::cluster;
use anyhow::anyhow;

/// A failed request.
pub(super) struct Failure {
    pub(super) error: anyhow::Error,
    /// The same request may succeed later.
    pub(super) is_temporary: bool,
}

impl Failure {
    pub(super) fn new(error: kube::Error, verb: &str, resource: &str) -> Self {
        let code = cluster::code(&error);
        let why = match code {
            Some(403) => format!("this needs the right to `{verb}` `{resource}`"),
            Some(_) | None => cluster::reason(&error),
        };
        Self {
            is_temporary: code.is_none_or(|code| code == 429 || code >= 500),
            error: anyhow!("cannot {verb} {resource}: {why}"),
        }
    }

    pub(super) fn permanent(error: anyhow::Error) -> Self {
        Self {
            error,
            is_temporary: false,
        }
    }
}
