//! Defines the notices for users about brokers. Pure.
use super::action::Broker;
use crate::model::typed_names::ConfigurationKey;
use k8s_openapi::jiff::SignedDuration;

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
