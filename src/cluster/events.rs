//! Events on objects: what `kubectl describe` shows of what happened. Written one after another, beside the work.
//!
//! Their number is bounded: devices that come and go by the thousand must not fill the cluster with Events, nor this
//! process, which remembers each for six minutes so that its repetition is counted and not written again.
use crate::{
    model::token_bucket::TokenBucket,
    telemetry::metrics::{EventOutcome, metrics},
};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// Beyond so many that wait to be written, Events are left out: the log has them all.
const WAITING_MAX: usize = 1024;
/// The Events that may be handed in at once; then one a second. What is more is left out: the log has it.
const AT_ONCE: usize = 300;
const PER_SECOND: u32 = 1;
/// So many of them are for warnings alone.
const FOR_WARNINGS: usize = 100;
/// A note may have 1 kB.
const NOTE_LIMIT: usize = 1000;

/// Where Events are handed in. Never waits.
#[derive(Clone)]
pub struct Events {
    queue: mpsc::Sender<(Event, ObjectReference)>,
    quota: Arc<Quota>,
}

/// How many Events may be handed in.
struct Quota {
    began: Instant,
    /// Never held over an await.
    bucket: Mutex<TokenBucket>,
}

impl Quota {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            bucket: Mutex::new(TokenBucket::new(AT_ONCE, PER_SECOND, Duration::ZERO)),
        }
    }

    /// Whether there is one more, beside `reserved` ones.
    fn take(&self, reserved: usize) -> bool {
        let now = self.began.elapsed();
        // A panic while it was held leaves a number that is as good as another.
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let has_one = bucket.available(now) > reserved;
        if has_one {
            bucket.take(1, now);
        }
        has_one
    }
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
    let events = Events {
        queue: sender,
        quota: Arc::new(Quota::new()),
    };
    (events, writer)
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
        let reserved = match type_ {
            EventType::Normal => FOR_WARNINGS,
            EventType::Warning => 0,
        };
        note.truncate(note.floor_char_boundary(NOTE_LIMIT));
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: reason.to_owned(),
            secondary: None,
        };
        if !self.quota.take(reserved) || self.queue.try_send((event, object)).is_err() {
            metrics().count_event(EventOutcome::Dropped);
            debug!(reason, "an Event is left out: there are too many");
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn a_storm_of_events_is_cut_off_and_warnings_have_room_beside_it() {
        let (sender, mut written) = mpsc::channel(WAITING_MAX);
        let events = Events {
            queue: sender,
            quota: Arc::new(Quota::new()),
        };
        let about = ObjectReference::default;
        let mut storm = |tell: &dyn Fn(String)| {
            (0..1000).for_each(|n| tell(n.to_string()));
            std::iter::from_fn(|| written.try_recv().ok()).count()
        };
        let normal = |note| events.normal(about(), "DeviceFound", note);
        let warning = |note| events.warning(about(), "DeviceGone", note);
        assert_eq!(storm(&normal), 200);
        assert_eq!(storm(&warning), 100);
        advance(Duration::from_secs(60)).await;
        assert_eq!(storm(&normal), 0);
        assert_eq!(storm(&warning), 60);
    }
}
