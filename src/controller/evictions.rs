//! Evicts Pods that are no brokers and have lost their device, where the Configuration says so (`spec.whenGone`): so that
//! disruption budgets hold, and the Pod's owner has the next one started where the device is.
mod holders;
pub(crate) mod plan;
pub(super) mod refused;
mod request;

use super::{
    nodes::that_may_run,
    outcome::{Outcome, Written, tried},
    queue::Waits,
    reported::Reported,
    shared::Shared,
};
use crate::{
    api::reason::Reason,
    cluster::{events::about, is_conflict, is_not_found, parts::PodPart, reason, watch::apis},
    model::resource_name::ResourcePrefix,
    store::key_of,
};
use holders::{Holder, Holders, holders};
use plan::{APART, Action, Evicted, Input, Lost, plan};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tracing::{debug, info, warn};

/// The most Pods of a node that are looked at for an eviction. Beyond it: none of them is evicted.
const PODS_MAX: u32 = 1000;

/// The time for the list and the evictions of an action. It is shorter than the time for an answer, so that it is known
/// which of the Pods were evicted.
const EVICTED_WITHIN: Duration = Duration::from_secs(20);

/// Remembers of evictions what the next look needs.
pub(crate) struct Evictions {
    resource_prefix: ResourcePrefix,
    evicted: Evicted,
}

impl Evictions {
    pub(crate) fn new(resource_prefix: ResourcePrefix) -> Self {
        Self {
            resource_prefix,
            evicted: Evicted::new(),
        }
    }

    /// Returns the actions of a part.
    pub(crate) fn plan(&mut self, reported: &Reported<'_>, now: Instant) -> (Vec<Action>, Waits) {
        self.evicted.retain(|_, at| now < *at + APART);
        let input = Input {
            resource_prefix: &self.resource_prefix,
            evicted: &self.evicted,
            now,
        };
        plan(reported, &input)
    }

    /// Takes in the result of an action.
    pub(crate) fn settle(&mut self, action: &Action, written: &Written, now: Instant) {
        if matches!(written.outcome, Outcome::Done | Outcome::Partly) {
            let of = (action.configuration.clone(), action.node.clone());
            self.evicted.insert(of, now);
        }
    }
}

/// Carries out an action. It is done once a Pod was evicted and none was refused.
pub(super) async fn act(shared: &Shared, action: &Action) -> Written {
    let until = Instant::now() + EVICTED_WITHIN;
    let pods = match pods_of(shared, action).await {
        Ok(pods) => pods,
        Err(e) => {
            let what = "find the Pods that have lost its devices";
            return Written::new(tried(&action.configuration, what, Err(e)));
        }
    };
    let found = holders(&action.held, &pods, shared.clock.now());
    say_possible(shared, action, &found);
    let mut all = vec![];
    for holder in &found.certain {
        let evicted = timeout_at(until, evict(shared, action, holder)).await;
        all.push(evicted.unwrap_or_else(|_| Outcome::Failed("there is no time left".to_owned())));
    }
    Written::new(whole(all))
}

/// Returns the result of several evictions.
fn whole(all: Vec<Outcome>) -> Outcome {
    let is_done = all.contains(&Outcome::Done);
    match all.into_iter().find(Outcome::is_failed) {
        Some(_) if is_done => Outcome::Partly,
        Some(failed) => failed,
        None if is_done => Outcome::Done,
        None => Outcome::Gone,
    }
}

/// Returns the Pods of a node that have not ended, as far as this controller may see.
async fn pods_of(shared: &Shared, action: &Action) -> kube::Result<Vec<PodPart>> {
    let node = &action.node;
    let some = that_may_run(node).limit(PODS_MAX);
    let mut pods = vec![];
    for api in apis::<PodPart>(&shared.client, &shared.settings.watch_namespaces) {
        let list = api.list(&some).await?;
        if list
            .metadata
            .continue_
            .is_some_and(|token| !token.is_empty())
        {
            warn!(%node, "it has more than {PODS_MAX} Pods: none of them is evicted");
            return Ok(vec![]);
        }
        // One that cannot be read asks for no device that we know of.
        pods.extend(list.items.into_iter().filter_map(|read| read.0.ok()));
    }
    Ok(pods)
}

async fn evict(shared: &Shared, action: &Action, Holder { pod, of }: &Holder<'_>) -> Outcome {
    let (key, why) = (key_of(&pod.metadata), action.why(of));
    let events = &shared.events;
    match request::evict(&shared.client, pod).await {
        Ok(_) => {
            info!(pod = %key, "evicted: {why}");
            let reason = Reason::PodEvicted.as_str();
            events.normal(about(*pod), reason, format!("evicted, because {why}"));
            for Lost { instance, .. } in action.named(of) {
                let text = format!("Pod {key} is evicted, because {why}");
                events.normal(about(&**instance), reason, text);
            }
            Outcome::Done
        }
        Err(e) if is_not_found(&e) || is_conflict(&e) => {
            debug!(pod = %key, "not evicted, it is gone: {e}");
            Outcome::Gone
        }
        // A disruption budget, mostly.
        Err(e) => {
            let says = reason(&e);
            warn!(pod = %key, "cannot evict it, tried again: {says}");
            let text =
                format!("Pod {key} cannot be evicted, though {why}; it is tried again: {says}");
            let reason = Reason::EvictionRefused.as_str();
            events.warning(about(*pod), reason, text.clone());
            for Lost { instance, .. } in action.named(of) {
                events.warning(about(&**instance), reason, text.clone());
            }
            Outcome::Failed(says)
        }
    }
}

/// Says that it is not known which Pod has lost its device.
fn say_possible(shared: &Shared, action: &Action, found: &Holders<'_>) {
    let [Holder { pod, of }, others @ ..] = &found.possible[..] else {
        return;
    };
    let text = format!(
        "Pod {} or one of {} more is not evicted, though {}: which of them has the slot is known from Kubernetes 1.36 on; delete the one that uses the device",
        key_of(&pod.metadata),
        others.len(),
        action.why(of),
    );
    warn!(configuration = %action.configuration, "{text}");
    let reason = Reason::EvictionRefused.as_str();
    for Lost { instance, .. } in action.named(of) {
        (shared.events).warning(about(&**instance), reason, text.clone());
    }
}

#[cfg(test)]
mod tests;
