//! Decides when a request may be sent again. The cluster changes all the time, and each change leads to a new plan: what has
//! failed, or what somebody else undoes, must not be repeated for each of them. Pure.
use super::{
    brokers::plan::Action as BrokerAction, lists, nodes, queue::Waits, services,
    status::plan::Object, turn::Request,
};
use crate::{model::names::ObjectKey, pace::Pace};
use std::{borrow::Cow, collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// The waits after a failure: the first one, and the longest one to which they double.
const FAILED: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];

/// The requests that have the same pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Look,
    /// Instances follow their nodes at once, then in batches.
    Batch,
    Device,
    Broker,
    Service,
    EndpointSlice,
    List,
    Status,
    Eviction,
}

/// What a request does, and to which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    kind: Kind,
    what: Cow<'static, str>,
    object: ObjectKey,
}

impl Kind {
    /// Returns the first and the longest wait between two requests that do the same, also if both are carried out. `None`
    /// where the plan itself knows when to do it again.
    fn waits(self) -> Option<[Duration; 2]> {
        let (first, longest) = match self {
            Self::Look | Self::Broker | Self::List => return None,
            Self::Batch => (100, 2_000),
            Self::Device => (500, 30_000),
            Self::Service => (500, 60_000),
            // A status is behind by this at most, and so are endpoints, however fast things change.
            Self::Status | Self::EndpointSlice => (200, 5_000),
            // A slot is held for seconds after its Pod was evicted, and each look lists the Pods of the node.
            Self::Eviction => (1_000, 30_000),
        };
        Some([first, longest].map(Duration::from_millis))
    }
}

/// The requests that were sent recently.
#[derive(Clone)]
pub(crate) struct Throttle {
    sent: BTreeMap<Kind, Pace<Step>>,
    /// The requests that the API server did not carry out.
    failed: Pace<Step>,
}

impl Throttle {
    pub(crate) fn new() -> Self {
        let [first, longest] = FAILED;
        Self {
            sent: BTreeMap::new(),
            failed: Pace::new(first, longest),
        }
    }

    /// Takes out the requests that may not be sent yet. Returns their waits.
    pub(crate) fn hold(&mut self, requests: &mut Vec<Request>, now: Instant) -> Waits {
        let mut waits = Waits::default();
        requests.retain(|request| {
            let wait = self.wait(&step(request), now);
            wait.into_iter().for_each(|wait| waits.add(wait));
            wait.is_none()
        });
        waits
    }

    fn wait(&self, step: &Step, now: Instant) -> Option<Duration> {
        let sent = self.sent.get(&step.kind);
        let again = sent.and_then(|sent| sent.wait(step, now));
        again.max(self.failed.wait(step, now))
    }

    /// Records that a request is sent now.
    pub(crate) fn sent(&mut self, request: &Request, now: Instant) {
        let step = step(request);
        let Some([first, longest]) = step.kind.waits() else {
            return;
        };
        let sent = self.sent.entry(step.kind);
        let sent = sent.or_insert_with(|| Pace::new(first, longest));
        sent.done(step, now);
    }

    /// Records whether a request has failed.
    pub(crate) fn answered(&mut self, request: &Request, is_failed: bool, now: Instant) {
        let step = step(request);
        if is_failed {
            self.failed.done(step, now);
        } else {
            self.failed.reset(&step);
        }
    }

    /// Forgets the requests that were sent long ago.
    pub(crate) fn forget(&mut self, now: Instant) {
        self.failed.forget(now);
        self.sent.values_mut().for_each(|sent| sent.forget(now));
    }
}

fn step(request: &Request) -> Step {
    let (kind, what, object) = match request {
        Request::Look(node) => (Kind::Look, "look".into(), ObjectKey::new("", node.as_str())),
        Request::Device(action) => {
            let (what, object) = nodes::step(action);
            let kind = if action.is_batched() {
                Kind::Batch
            } else {
                Kind::Device
            };
            (kind, what.into(), object)
        }
        Request::Broker(action) => {
            let (what, object) = broker(action);
            (Kind::Broker, what, object)
        }
        Request::Service(action) => {
            let (object, what) = services::step(action);
            let kind = match action.kind() {
                services::action::Kind::EndpointSlice => Kind::EndpointSlice,
                services::action::Kind::Service | services::action::Kind::DeviceService => {
                    Kind::Service
                }
            };
            (kind, what.into(), object)
        }
        Request::List(action) => {
            let (object, what) = lists::step(action);
            (Kind::List, what.into(), object)
        }
        Request::Status(action) => match &action.object {
            Object::Configuration(key) => (Kind::Status, "Configuration".into(), key.untyped()),
            Object::Instance(key) => (Kind::Status, "Instance".into(), key.untyped()),
        },
        Request::Eviction(action) => {
            let what = format!("evict on {}", action.node);
            (Kind::Eviction, what.into(), action.configuration.untyped())
        }
    };
    Step { kind, what, object }
}

/// A broker of another spec is tried at once.
fn broker(action: &BrokerAction) -> (Cow<'static, str>, ObjectKey) {
    match action {
        BrokerAction::CreatePod { broker, .. } | BrokerAction::CreateJob { broker, .. } => (
            format!("create {}", broker.digest).into(),
            broker.key.clone(),
        ),
        BrokerAction::TryPod { broker, .. } => {
            (format!("try {}", broker.digest).into(), broker.key.clone())
        }
        BrokerAction::DeletePod { key, .. } | BrokerAction::ReplacePod { key, .. } => {
            ("delete the Pod".into(), key.clone())
        }
        BrokerAction::DeleteJob { key, .. } => ("delete the Job".into(), key.clone()),
        BrokerAction::Remember { instance, .. } => ("remember".into(), instance.untyped()),
    }
}
