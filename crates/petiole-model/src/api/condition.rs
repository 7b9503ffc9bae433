//! The conditions of Configurations and Instances, and the rule for their transition times.
use crate::model::limits;
use k8s_openapi::jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One statement about an object that is true, false or unknown, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The subject of the statement.
    #[serde(rename = "type")]
    #[schemars(length(max = limits::WORD_MAX))]
    pub type_: String,
    /// True, False or Unknown.
    #[schemars(length(max = limits::WORD_MAX))]
    pub status: String,
    /// One word that names the cause.
    #[schemars(length(max = limits::WORD_MAX))]
    pub reason: String,
    /// The cause in a sentence, and what to do about it.
    #[serde(default)]
    #[schemars(length(max = limits::CONDITION_MESSAGE_MAX))]
    pub message: String,
    /// The time of the last change of `status`, RFC 3339.
    #[schemars(length(max = limits::WORD_MAX))]
    pub last_transition_time: String,
    /// The `metadata.generation` that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Returns a time as Kubernetes writes it: RFC 3339, to the second.
pub fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The types of conditions that Petiole writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionType {
    /// At least one node sees the device of an Instance.
    Available,
    /// All brokers of a Configuration or an Instance run. A Configuration without a broker spec does not have this
    /// condition, and an Instance has it only while it is false.
    BrokersReady,
    /// The device of an Instance comes and goes. An Instance has this condition only while it is true.
    Flapping,
    /// Another host announces the pinned device of an Instance. An Instance has this condition only while it is true.
    IdentityChanged,
    /// Every node uses a Configuration as it is written.
    Ready,
}

impl ConditionType {
    pub const ALL: &[Self] = &[
        Self::Available,
        Self::BrokersReady,
        Self::Flapping,
        Self::IdentityChanged,
        Self::Ready,
    ];

    /// Returns the text as objects carry it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "Available",
            Self::BrokersReady => "BrokersReady",
            Self::Flapping => "Flapping",
            Self::IdentityChanged => "IdentityChanged",
            Self::Ready => "Ready",
        }
    }
}

/// The status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl ConditionStatus {
    /// Returns the text as objects carry it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl Condition {
    /// Returns a condition whose status has changed at `now`.
    pub fn new(
        type_: ConditionType,
        status: ConditionStatus,
        reason: &str,
        message: String,
        now: &str,
    ) -> Self {
        Self {
            type_: type_.as_str().to_owned(),
            status: status.as_str().to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: now.to_owned(),
            observed_generation: None,
        }
    }

    /// Returns this condition with the transition time of the condition that it replaces, if the status is the same.
    pub fn replacing(mut self, before: &[Self]) -> Self {
        let mut before = before.iter().filter(|before| before.type_ == self.type_);
        if let Some(same) = before.find(|before| before.status == self.status) {
            (self.last_transition_time).clone_from(&same.last_transition_time);
        }
        self
    }

    /// Returns the condition of this type.
    pub fn of_type(conditions: &[Self], type_: ConditionType) -> Option<&Self> {
        let mut conditions = conditions.iter();
        conditions.find(|condition| condition.type_ == type_.as_str())
    }

    pub fn has_status(&self, status: ConditionStatus) -> bool {
        self.status == status.as_str()
    }

    pub fn is_true(&self) -> bool {
        self.has_status(ConditionStatus::True)
    }
}
