//! Which Configurations this node works with: every change is judged, and discovery is told.
mod plan;
mod resource;

pub(super) use plan::{Accepted, AcceptedConfiguration};

use super::{
    Node,
    kubelet_folder::KubeletSocket,
    pod_resources::{self, Ids},
};
use crate::{
    api::configuration::Problem,
    backoff::Backoff,
    discovery::{plan::SessionSpec, session::Handlers},
    model::{device::Scope, names::ObjectKey, resource_names::ResourceNames},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// After a change the kubelet is asked who has a resource name soon and then less and less often: another plugin's list
/// comes a moment after its registration, and a plugin that has the name may stop at any time.
const ASKED_AGAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));
/// How long a kubelet that is there may leave the question unanswered. After it nobody else has a name: a node may be
/// without the pod resources API.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// What is known of the Configurations after judging them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Judged {
    pub(super) accepted: Accepted,
    /// What is wrong with each that is not accepted as it stands.
    pub(super) problems: BTreeMap<ObjectKey, Problem>,
    /// What the resources are called.
    pub(super) names: ResourceNames,
}

/// Judges the Configurations at each change of them.
pub(super) async fn run(
    node: Arc<Node>,
    handlers: Arc<Handlers>,
    sessions: watch::Sender<BTreeMap<ObjectKey, SessionSpec>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut configurations = node.store.configurations();
    let (mut kubelet, mut registered) = (node.kubelet.subscribe(), node.registered.subscribe());
    let mut asked = Asked::default();
    let mut backoff = Backoff::new(ASKED_AGAIN.0, ASKED_AGAIN.1);
    loop {
        let current = configurations.borrow_and_update().clone();
        let before = node.judged.borrow().clone();
        let there = *kubelet.borrow_and_update();
        let ours = registered.borrow_and_update().clone();
        let wanted = resource::wanted(&current, &before.accepted);
        let is_unsettled = there.is_some() && !wanted.is_subset(&ours);
        if is_unsettled && asked.ask(&node, there).await {
            backoff.reset();
        }
        let now = plan::judge(&plan::World {
            configurations: &current,
            before: &before.accepted,
            prefix: &node.resource_prefix,
            prefixes: &node.resource_prefixes,
            offered: asked.of(there),
            registered: &ours,
            scope_of: &|spec| scope_of(&handlers, spec),
        });
        sessions.send_if_modified(|specs| {
            let desired = (now.accepted.iter())
                .map(|(key, a)| (key.clone(), a.session.clone()))
                .collect();
            let is_changed = *specs != desired;
            *specs = desired;
            is_changed
        });
        node.judged.send_if_modified(|judged| {
            let is_changed = **judged != now;
            *judged = Arc::new(now);
            is_changed
        });
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            changed = configurations.changed() => changed?,
            changed = kubelet.changed() => changed?,
            // Another plugin may have ended ours.
            () = lost(&mut registered, ours, &wanted) => {}
            // The other plugin may have stopped.
            () = sleep(backoff.next_wait()), if is_unsettled => continue,
        }
        backoff.reset();
    }
}

/// Waits until the kubelet has let go of a resource with one of these names, since it had `ours`.
async fn lost(
    registered: &mut watch::Receiver<BTreeSet<String>>,
    mut ours: BTreeSet<String>,
    names: &BTreeSet<String>,
) {
    let is_lost = |now: &BTreeSet<String>| {
        let is_lost = ours.difference(now).any(|name| names.contains(name));
        ours.clone_from(now);
        is_lost
    };
    if registered.wait_for(is_lost).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// What the kubelet has of our prefixes, by whole names, as it said last.
#[derive(Default)]
struct Asked {
    /// Which kubelet said it: what another has is not known by that.
    by: Option<KubeletSocket>,
    said: Ids,
    /// That, and what it said before: a plugin that registers anew has nothing for a moment, and is no less there.
    offered: Ids,
}

impl Asked {
    /// Whether the answer is another than the last. That one is kept where there is none this time.
    async fn ask(&mut self, node: &Node, kubelet: Option<KubeletSocket>) -> bool {
        match pod_resources::healthy(node).await {
            Ok(said) => self.hear(kubelet, said),
            Err(e) => {
                debug!("the kubelet's pod resources cannot be read: {e:#}");
                let since = node.kubelet_folder.borrow().since;
                let is_late = since.is_some_and(|since| since.elapsed() > ANSWERS_WITHIN);
                if self.by == kubelet || !is_late {
                    return false;
                }
                warn!("the kubelet does not say which resources it has, none is taken: {e:#}");
                self.hear(kubelet, Ids::new())
            }
        }
    }

    fn hear(&mut self, kubelet: Option<KubeletSocket>, said: Ids) -> bool {
        let is_new = self.by != kubelet || self.said != said;
        self.offered = said.clone();
        if self.by == kubelet {
            for (resource, ids) in std::mem::take(&mut self.said) {
                self.offered.entry(resource).or_default().extend(ids);
            }
        }
        (self.by, self.said) = (kubelet, said);
        is_new
    }

    fn of(&self, kubelet: Option<KubeletSocket>) -> Option<&Ids> {
        (kubelet.is_some() && self.by == kubelet).then_some(&self.offered)
    }
}

fn scope_of(handlers: &Handlers, spec: &SessionSpec) -> Result<Scope, Problem> {
    match handlers.prepare(spec) {
        Some(Ok(discovery)) => Ok(discovery.scope()),
        Some(Err(e)) => Err(Problem::new("BadDiscoveryDetails", e.to_string())),
        None => {
            let known: Vec<_> = handlers.names().collect();
            let message = format!(
                "discoveryHandler.name: {:?} is not a handler of this agent; those are {}",
                spec.handler,
                known.join(", ")
            );
            Err(Problem::new("UnknownHandler", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_gone_only_when_two_answers_in_a_row_lack_its_devices() {
        let vendors = Ids::from([("pflex.io/block".to_owned(), ["pflex1".to_owned()].into())]);
        let mut asked = Asked::default();
        for (answer, is_new, is_there) in [
            (vendors.clone(), true, true),
            (vendors.clone(), false, true),
            (Ids::new(), true, true),
            (Ids::new(), false, false),
            (vendors, true, true),
        ] {
            assert_eq!(asked.hear(None, answer), is_new);
            assert_eq!(asked.offered.contains_key("pflex.io/block"), is_there);
        }
    }
}
