//! Writes Kubernetes Events, which `kubectl describe` shows. They are written one after the other, and callers do not
//! wait.
//!
//! Their number is bounded. Thousands of devices that come and go must not fill the cluster with Events. They must not
//! fill this process either, which remembers each Event for six minutes in order to count a repetition instead of
//! writing it.
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use petiole_base::token_bucket::TokenBucket;
use petiole_telemetry::metrics::{EventOutcome, metrics};
use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// The number of Events that can wait to be written. Beyond it: further Events are dropped; the log contains them
/// all.
const QUEUE_LENGTH: usize = 1024;
/// The number of Events that may be submitted at once; after that one per second is accepted. Beyond it: further
/// Events are dropped; the log contains them all.
const BURST: usize = 300;
const PER_SECOND: u32 = 1;
/// The part of that number that is reserved for warnings. Beyond it: Events that are no warnings are dropped.
const RESERVED_FOR_WARNINGS: usize = 100;
/// The longest note in bytes. The API accepts 1 kB. Beyond it: the end is cut off.
const NOTE_LIMIT: usize = 1000;

/// Submits Events without waiting.
#[derive(Clone)]
pub struct Events {
    queue: mpsc::Sender<(Event, ObjectReference)>,
    quota: Arc<Quota>,
}

/// The number of Events that may be submitted.
struct Quota {
    began: Instant,
    /// The lock is never held over an await.
    bucket: Mutex<TokenBucket>,
}

impl Quota {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            bucket: Mutex::new(TokenBucket::new(BURST, PER_SECOND, Duration::ZERO)),
        }
    }

    /// Takes one Event from the quota, unless only `reserved` ones are left. Returns whether it was taken.
    fn take(&self, reserved: usize) -> bool {
        let now = self.began.elapsed();
        // A panic of another holder leaves a valid number.
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let has_one = bucket.available(now) > reserved;
        if has_one {
            bucket.take(1, now);
        }
        has_one
    }
}

/// Writes the submitted Events.
pub struct Writer {
    recorder: Recorder,
    queue: mpsc::Receiver<(Event, ObjectReference)>,
}

/// Returns the two ends of a queue of Events. `controller` is the reporter's name, such as `petiole-agent`; `instance`
/// is its node or Pod.
pub fn events(client: Client, controller: &str, instance: &str) -> (Events, Writer) {
    let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
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
    /// Submits an Event of type Normal.
    pub fn normal(&self, object: ObjectReference, reason: &str, note: impl Into<String>) {
        self.hand_in(EventType::Normal, object, reason, note.into());
    }

    /// Submits an Event of type Warning, for a problem that someone should look at.
    pub fn warning(&self, object: ObjectReference, reason: &str, note: impl Into<String>) {
        self.hand_in(EventType::Warning, object, reason, note.into());
    }

    fn hand_in(&self, type_: EventType, object: ObjectReference, reason: &str, mut note: String) {
        let reserved = match type_ {
            EventType::Normal => RESERVED_FOR_WARNINGS,
            EventType::Warning => 0,
        };
        note.truncate(note.floor_char_boundary(NOTE_LIMIT));
        let event = Event {
            type_,
            reason: reason.to_owned(),
            action: action(reason, &note),
            note: Some(note),
            secondary: None,
        };
        if !self.quota.take(reserved) || self.queue.try_send((event, object)).is_err() {
            metrics().events(EventOutcome::Dropped).inc();
            debug!(reason, "an Event is dropped: there are too many");
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
                Ok(()) => {
                    metrics().events(EventOutcome::Written).inc();
                }
                Err(e) => {
                    metrics().events(EventOutcome::Failed).inc();
                    warn!(reason = event.reason, "cannot write an Event: {e}");
                }
            }
        }
        Ok(())
    }
}

/// Returns the action of an Event, which differs where the note does: a repetition has the note of the first Event of its type, object,
/// reason and action (kube's `Recorder`, as client-go), and would say what another node or Pod did.
fn action(reason: &str, note: &str) -> String {
    let mut hasher = DefaultHasher::new();
    note.hash(&mut hasher);
    format!("{reason}-{:016x}", hasher.finish())
}

/// Returns the reference to the object that an Event is about.
pub fn about<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    object.object_ref(&())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[test]
    fn a_repetition_has_the_same_note() {
        let gone = |node: &str| {
            action(
                "DeviceGone",
                &format!("node {node} does not see the device"),
            )
        };
        assert_eq!(gone("a"), gone("a"));
        assert_ne!(gone("a"), gone("b"));
        assert_ne!(
            gone("a"),
            action("DeviceFound", "node a does not see the device")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_of_events_is_cut_off_and_warnings_have_room_beside_it() {
        let (sender, mut written) = mpsc::channel(QUEUE_LENGTH);
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
