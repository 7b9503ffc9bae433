//! Defines the results of actions on brokers, and the notices for users. Pure.
use super::plan::Broker;
use crate::model::typed_names::{ConfigurationKey, NodeName};
use k8s_openapi::jiff::SignedDuration;

/// The result of an action.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// The action was carried out. The value is the uid of the created object, if one was created.
    Done(Option<String>),
    /// The object was replaced, or exists already.
    Conflict,
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
            // Too many requests at a time; or the token was not accepted, and the next one may be.
            401 | 408 | 429 | 500.. => Self::Failed(message.to_owned()),
            code => Self::Refused {
                code,
                message: message.to_owned(),
            },
        }
    }
}

/// The effect of an outcome on the memory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settled {
    /// True if nothing is left to do until the world changes, or the wait of the broker is over.
    pub(crate) is_done: bool,
    pub(crate) notice: Option<Notice>,
}

impl Settled {
    /// The effect of an outcome that is final and has no notice.
    pub(crate) const DONE: Self = Self {
        is_done: true,
        notice: None,
    };
    /// The effect of an outcome after which the action is planned again.
    pub(crate) const NOT_DONE: Self = Self {
        is_done: false,
        notice: None,
    };

    /// Returns the effect of an outcome that is final and has a notice.
    pub(super) fn with(notice: Notice) -> Self {
        Self {
            is_done: true,
            notice: Some(notice),
        }
    }
}

/// An Event for users.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Notice {
    Created(Broker),
    /// A Pod that could not be scheduled was deleted: another follows on another node.
    Moved {
        broker: Broker,
        node: NodeName,
        why: String,
    },
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
