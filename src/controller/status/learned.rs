//! Keeps what a replica learns by trying. One that has just begun to lead does not know it yet, which does not end it. Pure.
use super::verdict::{Verdict, trouble};
use crate::api::{
    condition::{Condition, ConditionStatus, ConditionType},
    configuration::{Configuration, Problem},
    reason::Reason,
};

const LEARNED: [Reason; 4] = [
    Reason::BrokerSpecInvalid,
    Reason::DeviceListRefused,
    Reason::SlicesRefused,
    Reason::SlotsNotShared,
];

/// Returns a verdict, and instead of one that all is well what is still refused, as far as a replica knows that `is_early`.
pub(super) fn held(
    configuration: &Configuration,
    type_: ConditionType,
    verdict: Verdict,
    is_early: bool,
) -> Verdict {
    let is_well = verdict.status == ConditionStatus::True;
    match learned(configuration, type_).filter(|_| is_early && is_well) {
        Some(before) => trouble(Problem {
            reason: before.reason.clone(),
            message: before.message.clone(),
        }),
        None => verdict,
    }
}

/// Returns whether a Configuration has such a condition.
pub(super) fn is_held(configuration: &Configuration) -> bool {
    let types = [ConditionType::Ready, ConditionType::BrokersReady];
    let mut learned = types
        .into_iter()
        .filter_map(|type_| learned(configuration, type_));
    learned.next().is_some()
}

/// Returns the condition that says of the present spec what was learned.
fn learned(configuration: &Configuration, type_: ConditionType) -> Option<&Condition> {
    let condition = configuration.condition(type_)?;
    let is_present = condition.observed_generation == configuration.metadata.generation;
    let is_learned = LEARNED
        .iter()
        .any(|reason| condition.reason == reason.as_str());
    (condition.has_status(ConditionStatus::False) && is_present && is_learned).then_some(condition)
}
