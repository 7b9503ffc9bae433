//! Events on objects: what `kubectl describe` shows of what happened. Written one after another, beside the work.
use crate::telemetry::metrics::{EventOutcome, metrics};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// Beyond so many that wait to be written, Events are left out: the log has them all.
const WAITING_MAX: usize = 1024;
/// A note may have 1 kB.
const NOTE_LIMIT: usize = 1000;

/// Where Events are handed in. Never waits.
#[derive(Clone)]
pub struct Events {
    queue: mpsc::Sender<(Event, ObjectReference)>,
}

/// Writes the Events that were handed in.
pub struct Writer {
    recorder: Recorder,
    queue: mpsc::Receiver<(Event, ObjectReference)>,
}

/// Events by `controller`, such as `petiole-agent`; `instance` is the node or the Pod it runs on.
pub fn events(client: Client, controller: &str, instance: &str) -> (Events, Writer) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let reporter = Reporter {
        controller: controller.to_owned(),
        instance: Some(instance.to_owned()),
    };
    let writer = Writer {
        recorder: Recorder::new(client, reporter),
        queue: receiver,
    };
    (Events { queue: sender }, writer)
}

impl Events {
    /// Something happened as it should.
    pub fn normal(&self, object: ObjectReference, reason: &str, note: impl Into<String>) {
        self.hand_in(EventType::Normal, object, reason, note.into());
    }

    /// Somebody should look at it.
    pub fn warning(&self, object: ObjectReference, reason: &str, note: impl Into<String>) {
        self.hand_in(EventType::Warning, object, reason, note.into());
    }

    fn hand_in(&self, type_: EventType, object: ObjectReference, reason: &str, mut note: String) {
        note.truncate(note.floor_char_boundary(NOTE_LIMIT));
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: reason.to_owned(),
            secondary: None,
        };
        if self.queue.try_send((event, object)).is_err() {
            metrics().count_event(EventOutcome::Dropped);
            debug!(reason, "an Event is left out: too many wait to be written");
        }
    }
}

impl Writer {
    pub async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        while let Some((event, object)) = shutdown
            .run_until_cancelled(self.queue.recv())
            .await
            .flatten()
        {
            match self.recorder.publish(&event, &object).await {
                Ok(()) => metrics().count_event(EventOutcome::Written),
                Err(e) => {
                    metrics().count_event(EventOutcome::Failed);
                    warn!(reason = event.reason, "the Event is not written: {e}");
                }
            }
        }
        Ok(())
    }
}

/// The object that an Event is about.
pub fn about<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    object.object_ref(&())
}
