//! Logs the result of each write, and says what is known after it.
use super::parts::News;
use crate::{
    api::configuration::Problem,
    cluster::{self, changes::Change, events::Events},
    model::{status_code::is_busy, typed_names::ConfigurationKey},
};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{Status, response::StatusCause};
use std::{collections::BTreeMap, fmt::Display};
use tracing::{debug, warn};

/// A problem with each Configuration.
pub(crate) type Problems = BTreeMap<ConfigurationKey, Problem>;

/// An Event for users, which the log has, too.
#[derive(Debug)]
pub(crate) struct Note {
    pub(crate) about: ObjectReference,
    pub(crate) reason: String,
    pub(crate) text: String,
    pub(crate) is_warning: bool,
}

impl Note {
    pub(crate) fn new(
        about: ObjectReference,
        reason: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self {
            about,
            reason: reason.into(),
            text: text.into(),
            is_warning: false,
        }
    }

    pub(crate) fn warning(
        about: ObjectReference,
        reason: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self {
            is_warning: true,
            ..Self::new(about, reason, text)
        }
    }

    /// Writes the Event.
    pub(super) fn write(self, events: &Events) {
        if self.is_warning {
            events.warning(self.about, &self.reason, self.text);
        } else {
            events.normal(self.about, &self.reason, self.text);
        }
    }
}

/// The outcome of a write.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Done,
    /// Some of it was done, and the rest was not.
    Partly,
    /// The object is not there.
    Gone,
    /// The object has changed meanwhile, or exists already: the write is planned again.
    Conflict,
    /// Somebody else's object has the name.
    Taken,
    /// The API server refuses the object.
    Refused {
        code: u16,
        message: String,
    },
    /// The write failed for another reason, such as an API server that is unreachable or busy.
    Failed(String),
}

impl Outcome {
    pub(crate) fn from_status(code: u16, message: &str) -> Self {
        match code {
            404 => Self::Gone,
            409 => Self::Conflict,
            code if is_busy(code) => Self::Failed(message.to_owned()),
            code => Self::Refused {
                code,
                message: message.to_owned(),
            },
        }
    }

    /// Returns the outcome of a request that failed.
    pub(crate) fn of(error: &kube::Error) -> Self {
        if let kube::Error::Api(status) = error {
            Self::from_status(status.code, &first_error(status))
        } else {
            Self::Failed(error.to_string())
        }
    }

    /// Returns whether the write was refused or has failed.
    pub(crate) fn is_failed(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Failed(_))
    }
}

/// The result of a write.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) outcome: Outcome,
    /// The objects as the API server has them after the write.
    pub(crate) objects: Vec<News>,
    /// The problem that the Configuration is to show.
    pub(crate) problem: Option<Problem>,
}

impl Written {
    /// Returns the result of a write that returned no object.
    pub(crate) const fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            objects: vec![],
            problem: None,
        }
    }

    /// Returns the result of a write that failed for this reason.
    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self::new(Outcome::Failed(why.into()))
    }

    /// Returns the result of a write with the object that was returned.
    pub(crate) fn with<T, Name>(change: Change<T, Name>) -> Self
    where
        News: From<Vec<Change<T, Name>>>,
    {
        Self {
            objects: vec![vec![change].into()],
            ..Self::new(Outcome::Done)
        }
    }

    pub(crate) fn with_problem(self, problem: Problem) -> Self {
        Self {
            problem: Some(problem),
            ..self
        }
    }
}

/// Logs the result of a write. `what` completes the sentence "cannot …".
pub(super) fn tried(
    object: &dyn Display,
    what: &'static str,
    result: Result<(), kube::Error>,
) -> Outcome {
    match result {
        Ok(()) => {
            debug!(%object, "done: {what}");
            Outcome::Done
        }
        Err(e) if cluster::is_not_found(&e) => {
            debug!(%object, "nothing to do, the object is gone: {what}");
            Outcome::Gone
        }
        // A `test` of a JSON patch has failed. With causes the object itself is refused.
        Err(e)
            if cluster::is_conflict(&e)
                || cluster::is_unprocessable(&e) && !cluster::has_causes(&e) =>
        {
            debug!(%object, "the object has changed, planned again: {what}: {e}");
            Outcome::Conflict
        }
        Err(e) => {
            warn!(%object, "cannot {what}; tried again: {e}");
            Outcome::of(&e)
        }
    }
}

/// Returns the answer of the API server with its first error alone. It lists each rule that a value breaks, and each bad
/// limit a second time as the request that follows from it.
fn first_error(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let causes: Vec<&StatusCause> = causes.filter(|cause| !cause.field.is_empty()).collect();
    // Such as `Pod "a" is invalid`.
    let object = status.message.split_once(": ").map(|(object, _)| object);
    let ([first, ..], Some(object)) = (causes.as_slice(), object) else {
        return status.message.clone();
    };
    // Examples and a regular expression follow.
    let (rule, _) = (first.message.split_once(" (e.g.")).unwrap_or((&first.message, ""));
    let field = &first.field;
    match causes.len() {
        1 => format!("{object}: {field}: {rule}"),
        all => format!("{object}: {field}: {rule} (the first of {all} errors)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn first_of(message: &str, causes: &Value) -> String {
        let status = json!({"message": message, "code": 422, "details": {"causes": causes}});
        first_error(&serde_json::from_value(status).unwrap())
    }

    #[test]
    fn an_answer_names_the_first_field_and_its_value_and_no_regular_expression() {
        let rule = "Invalid value: \"LAMP\": name part must consist of alphanumeric characters (e.g. 'MyName', regex used is '[A-Z]')";
        let cause =
            |field: &str| json!({"reason": "FieldValueInvalid", "field": field, "message": rule});
        let limits = "spec.containers[0].resources.limits[LAMP]";
        let (one, other) = (
            cause(limits),
            cause("spec.containers[0].resources.requests[LAMP]"),
        );
        let whole = format!("Pod \"a\" is invalid: [{limits}: {rule}, {limits}: {rule}]");
        let said = format!(
            "Pod \"a\" is invalid: {limits}: Invalid value: \"LAMP\": name part must consist of alphanumeric characters"
        );
        assert_eq!(first_of(&whole, &json!([one])), said);
        let several = format!("{said} (the first of 2 errors)");
        assert_eq!(first_of(&whole, &json!([one, other])), several);
        let unknown = "strict decoding error: unknown field \"spec.comand\"";
        for causes in [json!([]), json!([{"message": "x"}])] {
            assert_eq!(first_of(unknown, &causes), unknown);
        }
        let without_object = "the Pod is refused";
        assert_eq!(first_of(without_object, &json!([one])), without_object);
    }
}
