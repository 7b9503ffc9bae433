//! Brokers: a Pod for each Instance and each node that sees its device, or a Job for each Instance. The scheduler decides on
//! which of these nodes each is.
mod action;
mod avoided;
mod claim;
mod failures;
pub(crate) mod memory;
mod perform;
pub(crate) mod plan;
pub(crate) mod report;
mod specs;

use super::{
    nodes::absent_node::Now,
    outcome::{Note, Outcome},
    queue::Waits,
    reported::Reported,
    world::World,
};
use crate::{
    cluster::events::about,
    model::{names::ObjectKey, resource_name::ResourcePrefix},
};
use memory::{BrokerMemory, Notice};
pub(super) use perform::perform;
use plan::{Action, Input, plan};
use report::Reports;
use std::fmt::Display;
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// Remembers of brokers what the next look needs.
pub(crate) struct Brokers {
    pub(crate) memory: BrokerMemory,
    resource_prefix: ResourcePrefix,
    /// The reports of all Configurations, which their status shows.
    pub(crate) reports: Reports,
}

impl Brokers {
    pub(crate) fn new(resource_prefix: ResourcePrefix) -> Self {
        Self {
            memory: BrokerMemory::default(),
            resource_prefix,
            reports: Reports::new(),
        }
    }

    /// Returns the actions of a part.
    pub(crate) fn plan(
        &mut self,
        reported: &Reported<'_>,
        now: Now,
        notes: &mut Vec<Note>,
    ) -> (Vec<Action>, Waits) {
        let world = reported.world;
        let notices = self.memory.observe(world, now);
        let planned = plan(&Input {
            world,
            device_reports: reported.by_device(),
            memory: &self.memory,
            resource_prefix: &self.resource_prefix,
            now,
        });
        for (configuration, (digest, error)) in &planned.broken {
            let specs = &mut self.memory.specs;
            specs.refuse(configuration, digest, &error.to_string());
        }
        // The reports of the other parts stay as they are.
        self.reports.retain(|key, _| !world.includes(&key.name));
        self.reports.extend(planned.reports);
        for notice in notices {
            warn!(instance = %notice.instance, "broker: {}", notice.text);
            notes.extend(note(world, notice));
        }
        (planned.actions, planned.waits)
    }

    /// Takes in the result of an action.
    pub(crate) fn settle(
        &mut self,
        world: &World,
        action: &Action,
        outcome: &Outcome,
        now: Instant,
    ) -> Option<Note> {
        log(action, outcome);
        let notice = self.memory.settle(action, outcome, now)?;
        note(world, notice)
    }
}

/// Returns the object that an action has deleted, or found deleted, by its result.
pub(crate) fn deleted<'a>(
    action: &'a Action,
    outcome: &Outcome,
) -> Option<(&'a ObjectKey, &'a String)> {
    let is_known = matches!(outcome, Outcome::Done | Outcome::Gone);
    match action {
        // A conflict means that it has changed meanwhile, and stays.
        Action::DeletePod {
            key,
            uid,
            version: Some(_),
            ..
        }
        | Action::ReplacePod {
            key,
            uid,
            version: Some(_),
            ..
        } => is_known.then_some((key, uid)),
        Action::DeletePod { key, uid, .. }
        | Action::ReplacePod { key, uid, .. }
        | Action::DeleteJob { key, uid, .. } => {
            (is_known || *outcome == Outcome::Conflict).then_some((key, uid))
        }
        Action::CreatePod { .. }
        | Action::TryPod { .. }
        | Action::CreateJob { .. }
        | Action::Remember { .. } => None,
    }
}

fn log(action: &Action, outcome: &Outcome) {
    let (what, object, why): (&str, &dyn Display, &str) = match action {
        Action::CreatePod { broker, .. } => ("broker Pod created", &broker.key, "wanted"),
        Action::DeletePod { key, why, .. } => ("broker Pod deleted", key, *why),
        Action::ReplacePod { key, cause, .. } => ("broker Pod deleted", key, cause.as_str()),
        Action::TryPod { broker, .. } => ("broker Pod of a new spec tried", &broker.key, "wanted"),
        Action::CreateJob { broker, .. } => ("broker Job created", &broker.key, "wanted"),
        Action::DeleteJob { key, why, .. } => ("broker Job deleted", key, *why),
        Action::Remember { instance, .. } => ("generation of the broker Job noted", instance, ""),
    };
    match outcome {
        Outcome::Done | Outcome::Partly => info!(%object, why, "{what}"),
        Outcome::Gone => debug!(%object, why, "not {what}: it is gone"),
        Outcome::Taken => info!(%object, why, "not {what}: a Pod of somebody else has the name"),
        Outcome::Conflict => debug!(%object, why, "not {what}: it is another one now"),
        Outcome::Refused { code, message } => {
            warn!(%object, why, code, "not {what}, refused: {message}");
        }
        Outcome::Failed(e) => warn!(%object, why, "not {what}, tried again: {e}"),
    }
}

/// Returns the Event on the Instance of a broker.
fn note(world: &World, notice: Notice) -> Option<Note> {
    let instance = world.instances.get(&notice.instance)?;
    Some(Note {
        about: about(&**instance),
        reason: notice.reason.as_str().to_owned(),
        text: notice.text,
        is_warning: notice.is_warning,
    })
}

#[cfg(test)]
mod tests;
