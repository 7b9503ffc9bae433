//! Defines the results of actions on brokers, and the notices for users. Pure.
use super::action::Broker;
use crate::model::{status_code::is_busy, typed_names::ConfigurationKey};
use k8s_openapi::jiff::SignedDuration;
use kube::core::{Status, response::StatusCause};

/// The result of an action.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// The action was carried out.
    Done,
    /// The object was replaced, or exists already.
    Conflict,
    /// Somebody else's object has the name.
    Taken,
    /// The object is not there.
    Gone,
    /// The API server refuses the object.
    Refused { code: u16, message: String },
    /// The API server is unreachable or busy.
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
}

/// Returns the result of an action that failed.
pub(super) fn outcome_of(error: &kube::Error) -> Outcome {
    if let kube::Error::Api(status) = error {
        Outcome::from_status(status.code, &first_error(status))
    } else {
        Outcome::Failed(error.to_string())
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

/// An Event for users.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Notice {
    Created(Broker),
    /// A Pod ended.
    Ended {
        broker: Broker,
        why: String,
        retry_in: SignedDuration,
    },
    Refused {
        broker: Broker,
        message: String,
        retry_in: SignedDuration,
    },
    SpecInvalid {
        configuration: ConfigurationKey,
        message: String,
    },
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
