//! A condition, as Kubernetes objects carry it.
use crate::model::limits;
use k8s_openapi::jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One statement about an object that is true, false or unknown, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the statement is about.
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
    /// When `status` last changed, RFC 3339.
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

impl Condition {
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}
