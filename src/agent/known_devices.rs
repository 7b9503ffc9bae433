//! Passes the ids of all devices that have an Instance to the discovery handlers. A handler that cannot hold all devices
//! prefers these, so that a flood of new ones after a restart does not displace them.
use super::device_state::device_id;
use crate::{discovery::session::Handlers, store::Store};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::time::sleep;

/// The shortest time between two lists, because each is made of all Instances.
const BETWEEN_LISTS: Duration = Duration::from_secs(1);

pub(super) async fn run(
    store: Arc<dyn Store>,
    handlers: Arc<Handlers>,
) -> anyhow::Result<Infallible> {
    let (instances, mut news) = (store.instances(), store.news());
    loop {
        news.mark_unchanged();
        let known = instances.borrow().clone();
        let ids = known.values().filter_map(|instance| device_id(instance));
        handlers.prefer(&ids.collect());
        // The first Instances are not late: a flood may come with them.
        let pause = if known.is_empty() {
            Duration::ZERO
        } else {
            BETWEEN_LISTS
        };
        sleep(pause).await;
        news.changed().await?;
    }
}
