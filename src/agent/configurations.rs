//! Which Configurations this node works with: every change is judged, and discovery is told.
mod plan;

pub(super) use plan::{Accepted, AcceptedConfiguration};

use crate::{
    api::configuration::Problem,
    discovery::{plan::SessionSpec, session::Handlers},
    model::{device::Scope, names::ObjectKey},
    store::Store,
};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What is known of the Configurations after judging them.
#[derive(Debug, Clone, Default)]
pub(super) struct Judged {
    pub(super) accepted: Accepted,
    /// What is wrong with each that is not accepted as it stands.
    pub(super) problems: BTreeMap<ObjectKey, Problem>,
}

/// Judges the Configurations at each change of them.
pub(super) async fn run(
    store: Arc<dyn Store>,
    handlers: Arc<Handlers>,
    judged: watch::Sender<Arc<Judged>>,
    sessions: watch::Sender<BTreeMap<ObjectKey, SessionSpec>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut configurations = store.configurations();
    loop {
        let current = configurations.borrow_and_update().clone();
        let before = judged.borrow().clone();
        let now = plan::judge(&current, &before.accepted, &|spec| {
            scope_of(&handlers, spec)
        });
        sessions.send_if_modified(|specs| {
            let desired = (now.accepted.iter())
                .map(|(key, a)| (key.clone(), a.session.clone()))
                .collect();
            let is_changed = *specs != desired;
            *specs = desired;
            is_changed
        });
        judged.send_replace(Arc::new(now));
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            changed = configurations.changed() => changed?,
        }
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
