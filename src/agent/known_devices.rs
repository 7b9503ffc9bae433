//! Passes the ids of all devices that have an Instance to the discovery handlers. A handler that cannot hold all devices
//! prefers these, so that a flood of new ones after a restart does not displace them.
use super::device_state::device_id;
use crate::{discovery::session::Handlers, store::Instances};
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(super) async fn run(
    mut instances: watch::Receiver<Arc<Instances>>,
    handlers: Arc<Handlers>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    loop {
        let known = instances.borrow_and_update().clone();
        let ids = known.values().filter_map(|instance| device_id(instance));
        handlers.prefer(&ids.collect());
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            changed = instances.changed() => changed?,
        }
    }
}
