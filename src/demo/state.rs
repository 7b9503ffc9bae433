//! Holds the state that the views of the demo share: the services, the last snapshot, and the events.
use super::{
    observe::Observer,
    plan::{self, Event},
    publisher::Publisher,
    snapshot::Snapshot,
};
use std::time::Duration;
use tokio::{sync::watch, time::Instant};

/// The number of events that are kept for the view.
const EVENTS_MAX: usize = 500;

/// An event, with the time since the start of the demo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TimedEvent {
    pub(super) at: Duration,
    pub(super) text: String,
}

/// The state that the views share.
pub(super) struct Demo {
    pub(super) publisher: Publisher,
    observer: Observer,
    /// Each change restarts the kubelet.
    restarts: watch::Sender<u64>,
    pub(super) started: Instant,
    /// The time of the last look since then.
    looked: Duration,
    pub(super) snapshot: Snapshot,
    pub(super) events: Vec<TimedEvent>,
}

impl Demo {
    pub(super) fn new(
        publisher: Publisher,
        observer: Observer,
        restarts: watch::Sender<u64>,
    ) -> Self {
        Self {
            publisher,
            observer,
            restarts,
            started: Instant::now(),
            looked: Duration::ZERO,
            snapshot: Snapshot::default(),
            events: vec![],
        }
    }

    /// Takes a snapshot, and records the changes since the last one.
    pub(super) async fn observe(&mut self) {
        let snapshot = self.observer.snapshot().await;
        let now = self.started.elapsed();
        let mut events: Vec<TimedEvent> = plan::events(&self.snapshot, &snapshot)
            .into_iter()
            .map(|Event { text, happened }| {
                let ago = happened
                    .and_then(|at| at.elapsed().ok())
                    .unwrap_or_default();
                // Not before the last look, in which it was not seen.
                let at = now.saturating_sub(ago).max(self.looked);
                TimedEvent { at, text }
            })
            .collect();
        events.sort_by_key(|event| event.at);
        self.events.extend(events);
        self.looked = now;
        self.snapshot = snapshot;
        let surplus = self.events.len().saturating_sub(EVENTS_MAX);
        self.events.drain(..surplus);
    }

    pub(super) fn restart_kubelet(&mut self) {
        self.record("you restarted the kubelet".to_owned());
        self.restarts.send_modify(|restarts| *restarts += 1);
    }

    /// Withdraws service `n`, or announces it again.
    pub(super) fn toggle(&mut self, n: usize) -> anyhow::Result<()> {
        self.publisher.toggle(n)?;
        if let Some(service) = self.publisher.services().get(n) {
            let what = if service.is_announced {
                "announced"
            } else {
                "withdrew"
            };
            let text = format!("you {what} {}", service.sample.name);
            self.record(text);
        }
        Ok(())
    }

    fn record(&mut self, text: String) {
        let at = self.started.elapsed();
        self.events.push(TimedEvent { at, text });
    }
}
