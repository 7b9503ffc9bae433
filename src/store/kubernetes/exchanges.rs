//! Changes the owners of slots: one patch for each Instance, and without the server if no other node can take the
//! slots.
use super::{Inner, plan};
use crate::{
    api::{instance::Instance, reason::Reason},
    cluster::SIDE_BY_SIDE,
    model::instance_name::InstanceKey,
    store::{
        About, Exchange, StoreError,
        plan::{exchanged, forced},
    },
};
use futures::{StreamExt as _, stream};
use std::time::Duration;
use tokio::time::timeout;
use tracing::{debug, info, warn};

/// The time after which an exchange is done without the server, if that is safe, because a container waits for it.
const LOCAL_WRITE_TIMEOUT: Duration = Duration::from_secs(1);

impl Inner {
    /// Exchanges slots of one Instance, all or none.
    pub(super) async fn exchange(
        &self,
        key: &InstanceKey,
        exchanges: Vec<&Exchange>,
    ) -> Result<(), StoreError> {
        let instance = self.stored(key)?;
        let nodes = &instance.spec.nodes;
        if instance.spec.shared || *nodes != [self.settings.node_name.as_str()] {
            return self.exchange_stored(key, &exchanges, &[]).await;
        }
        // No other node can take a slot of a device that only this node sees.
        let pending = self.change(|known| known.pending_of(key));
        let write = self.exchange_stored(key, &exchanges, &pending);
        match timeout(LOCAL_WRITE_TIMEOUT, write).await {
            Ok(Ok(())) => {
                self.change(|known| known.flushed(key, &pending));
                Ok(())
            }
            Ok(Err(StoreError::Unavailable(reason))) => self.postpone(key, &exchanges, &reason),
            // The earlier exchanges may be the reason for the refusal, and must not prevent this one.
            Ok(Err(StoreError::Refused(reason))) if !pending.is_empty() => {
                self.give_up(key, &pending, &reason);
                self.exchange_stored(key, &exchanges, &[]).await
            }
            Ok(Err(error)) => Err(error),
            Err(_) => self.postpone(key, &exchanges, "it does not answer"),
        }
    }

    fn postpone(
        &self,
        key: &InstanceKey,
        exchanges: &[&Exchange],
        reason: &str,
    ) -> Result<(), StoreError> {
        let pending = self.change(|known| known.pending_of(key));
        exchanged(&forced(&*self.stored(key)?, &pending), exchanges)?;
        warn!(instance = %key, "slots are exchanged without the API server and written when it is back: {reason}");
        self.change(|known| known.postpone(key, exchanges));
        self.postponed.send_replace(());
        Ok(())
    }

    /// Writes `exchanges` together with earlier ones that could not be written.
    async fn exchange_stored(
        &self,
        key: &InstanceKey,
        exchanges: &[&Exchange],
        pending: &[Exchange],
    ) -> Result<(), StoreError> {
        let is_superseded =
            |old: &&Exchange| (exchanges.iter()).any(|new| new.change.slot == old.change.slot);
        let all: Vec<&Exchange> = (pending.iter().filter(|old| !is_superseded(old)))
            .chain(exchanges.iter().copied())
            .collect();
        let patch = |instance: &Instance| {
            exchanged(&forced(instance, pending), exchanges)?;
            Ok(plan::exchange(instance, &all))
        };
        self.patch(key, patch).await.map(drop)
    }

    /// Writes the exchanges that were done without the server. Devices that only this node sees have newer owners here
    /// than on the server. Each Instance is written separately. Returns whether nothing remains to be written.
    pub(super) async fn flush_pending(&self) -> bool {
        let pending = self.change(|known| known.pending());
        if pending.is_empty() {
            return true;
        }
        let writes = pending
            .into_iter()
            .map(|(key, exchanges)| async move { self.flush_one(&key, &exchanges).await });
        let written: Vec<bool> = stream::iter(writes)
            .buffer_unordered(SIDE_BY_SIDE)
            .collect()
            .await;
        self.publish();
        written.into_iter().all(|is_done| is_done)
    }

    async fn flush_one(&self, key: &InstanceKey, exchanges: &[Exchange]) -> bool {
        let all: Vec<&Exchange> = exchanges.iter().collect();
        let patch = |instance: &Instance| Ok(plan::exchange(instance, &all));
        match self.patch(key, patch).await {
            Ok(_) => {
                info!(instance = %key, "slots that were exchanged without the API server are written");
                self.change(|known| known.flushed(key, exchanges));
            }
            Err(StoreError::Gone(_)) => self.change(|known| known.deleted(key)),
            Err(StoreError::Refused(reason)) => self.give_up(key, exchanges, &reason),
            Err(e) => {
                debug!(instance = %key, "slots are not written yet: {e}");
                return false;
            }
        }
        true
    }

    /// Drops exchanges that the server rejects. A container that has such a slot keeps it, and the next look at the pod
    /// resources API claims it again.
    fn give_up(&self, key: &InstanceKey, exchanges: &[Exchange], reason: &str) {
        let slots: Vec<String> = (exchanges.iter())
            .map(|exchange| exchange.change.slot.to_string())
            .collect();
        let note = format!(
            "node {}: slots {} were exchanged while the API server was unreachable, and cannot be written: {reason}",
            self.settings.node_name,
            slots.join(", ")
        );
        warn!(instance = %key, "{}: {note}", Reason::SlotsNotWritten);
        if let Some(object) = self.reference(&About::Instance(key.clone())) {
            self.events
                .warning(object, Reason::SlotsNotWritten.as_str(), note);
        }
        self.change(|known| known.flushed(key, exchanges));
    }
}

#[cfg(test)]
#[path = "exchanges_tests.rs"]
mod tests;
