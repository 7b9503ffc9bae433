//! Which Configurations this node works with: every change is judged, and discovery is told.
mod others;
mod plan;
mod resource;
mod rights;
mod spec;

pub(crate) use plan::{Accepted, AcceptedConfiguration, Selection};

use super::Node;
use crate::{
    api::configuration::Problem,
    cluster::{
        node::OwnNode,
        watch::{Set, named},
    },
    discovery::{plan::SessionSpec, session::Handlers},
    model::{device::Scope, names::ObjectKey, resource_names::ResourceNames},
};
use others::Others;
use plan::Labels;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What is known of the Configurations after judging them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Judged {
    pub(crate) accepted: Accepted,
    /// What is wrong with each that is not accepted as it stands.
    pub(crate) problems: BTreeMap<ObjectKey, Problem>,
    /// What the resources are called.
    pub(crate) names: ResourceNames,
}

/// Judges the Configurations at each change of them. `own` is the Node of this node, where there is a cluster.
pub(super) async fn run(
    node: Arc<Node>,
    handlers: Arc<Handlers>,
    sessions: watch::Sender<BTreeMap<ObjectKey, SessionSpec>>,
    own: Option<watch::Receiver<Set<OwnNode>>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut configurations = node.store.configurations();
    let (mut kubelet, mut registered) = (node.kubelet.subscribe(), node.registered.subscribe());
    let mut others = Others::new(node.names_are_kept);
    let has_node = own.is_some();
    let mut own = own.unwrap_or_else(|| watch::channel(None).1);
    loop {
        let this = named(&own.borrow_and_update(), &node.name);
        let current = configurations.borrow_and_update().clone();
        let before = node.judged.borrow().clone();
        let there = *kubelet.borrow_and_update();
        let ours = registered.borrow_and_update().clone();
        let wanted = resource::wanted(&current, &before.accepted);
        others.ours(current.objects.keys());
        let now = plan::judge(&plan::World {
            configurations: &current,
            before: &before.accepted,
            labels: match &this {
                _ if !has_node => Labels::NoNode,
                None => Labels::Unknown,
                Some(this) => Labels::Known(&this.labels),
            },
            prefix: &node.resource_prefix,
            prefixes: &node.resource_prefixes,
            others: others.of(there),
            registered: &ours,
            max_configurations: node.max_configurations,
            scope_of: &|spec| scope_of(&handlers, spec),
            properties_of: &|handler| handlers.properties(handler),
            variables: handlers.variables(),
        });
        sessions.send_if_modified(|specs| {
            let desired = (now.accepted.iter())
                .filter(|(_, a)| a.selection == Selection::Selected)
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
            () = relabelled(&mut own, &node.name, this.as_deref()) => {}
            // Another plugin may have ended ours.
            () = lost(&mut registered, ours, &wanted) => {}
            () = others.changed(&node, there), if there.is_some() && !wanted.is_empty() => continue,
        }
        others.ask_soon();
    }
}

/// Waits until the Node has other labels than `before`: its status changes all the time.
async fn relabelled(own: &mut watch::Receiver<Set<OwnNode>>, name: &str, before: Option<&OwnNode>) {
    let is_changed = |set: &Set<OwnNode>| {
        let now = named(set, name);
        now.as_ref().map(|node| &node.labels) != before.map(|node| &node.labels)
    };
    if own.wait_for(is_changed).await.is_err() {
        std::future::pending::<()>().await;
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
