//! Passes the ids of all devices that have an Instance to the discovery handlers. A handler that cannot hold all devices
//! prefers these, so that a flood of new ones after a restart does not displace them.
use super::device_state::device_id;
use crate::{discovery::session::Handlers, store::Store};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub(super) async fn run(
    store: Arc<dyn Store>,
    handlers: Arc<Handlers>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (instances, mut news) = (store.instances(), store.news());
    loop {
        news.mark_unchanged();
        let known = instances.borrow().clone();
        let ids = known.values().filter_map(|instance| device_id(instance));
        handlers.prefer(&ids.collect());
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            changed = news.changed() => changed?,
        }
    }
}
