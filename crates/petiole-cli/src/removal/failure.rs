//! Describes failed requests to the user, and decides whether to repeat them.
use crate::{cluster, model::status_code::is_busy};
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
            is_temporary: code.is_none_or(is_busy),
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

impl From<Failure> for anyhow::Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn only_an_answer_that_refuses_nothing_is_temporary() {
        let failure = |code| {
            let status = Status::failure("why", "Reason").with_code(code);
            Failure::new(kube::Error::Api(status.boxed()), "list", "nodes")
        };
        for code in [401, 408, 429, 500, 503] {
            assert!(failure(code).is_temporary, "{code}");
        }
        for code in [400, 403, 404, 422] {
            assert!(!failure(code).is_temporary, "{code}");
        }
    }
}
