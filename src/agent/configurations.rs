//! Which Configurations this node works with: every change is judged, and discovery is told.
mod plan;
mod resource;

pub(super) use plan::{Accepted, AcceptedConfiguration};

use super::{
    Node,
    pod_resources::{self, Ids},
};
use crate::{
    api::configuration::Problem,
    discovery::{plan::SessionSpec, session::Handlers},
    model::{device::Scope, names::ObjectKey, resource_names::ResourceNames},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// How long until a resource name that another plugin has is asked for again.
const ASKED_AGAIN: Duration = Duration::from_secs(5);

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
    loop {
        let current = configurations.borrow_and_update().clone();
        let before = node.judged.borrow().clone();
        let offered = match resource::are_new(&current, &before.accepted) {
            true => offered(&node).await,
            false => Ids::new(),
        };
        let now = plan::judge(&plan::World {
            configurations: &current,
            before: &before.accepted,
            prefix: &node.resource_prefix,
            prefixes: &node.resource_prefixes,
            offered: &offered,
            scope_of: &|spec| scope_of(&handlers, spec),
        });
        let is_due = (now.problems.values()).any(|problem| problem.reason == resource::TAKEN);
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
            // The other plugin may have stopped.
            () = sleep(ASKED_AGAIN), if is_due => {}
        }
    }
}

/// What the kubelet has of our prefixes, by whole names. Without a kubelet nobody has a name.
async fn offered(node: &Node) -> Ids {
    let offered = pod_resources::healthy(node).await;
    offered.unwrap_or_else(|e| {
        debug!(
            "the kubelet's pod resources cannot be read, no resource name counts as taken: {e:#}"
        );
        Ids::new()
    })
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
