//! What to publish, whom to ask again and when to browse anew: every decision of a running zeroconf discovery.
//!
//! Pure: events and the time since the start go in, a [`Turn`] comes out. One service makes several events before it
//! is whole, some services never come to rest, and a subscription may end unseen; what is published is calm and true
//! all the same.
use super::{
    details::Details,
    room::{Known, Room},
    service::{Reach, Service, device_from_service},
    tracked::Tracked,
};
use crate::model::device::{DeviceId, DeviceSet};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Address families and TXT records of one service arrive apart, within this time.
pub(super) const SETTLE: Duration = Duration::from_millis(250);
/// A service whose only addresses so far mean something on this machine alone is likely to announce others, the second
/// time it announces itself (RFC 6762 8.3: 1 s after the first).
const LOOPBACK_SETTLE: Duration = Duration::from_millis(1500);
/// A service whose only addresses so far are link-local is likely to have others: a responder that has just sent one
/// leaves it out of its next answers (RFC 6762 6: for 1 s), until that to the third query (after 3 s). The first address
/// would have brokers replaced for the second, at each start of an agent.
const LINK_LOCAL_SETTLE: Duration = Duration::from_millis(3500);
/// How long one settled device waits for others that still settle, so that many that come together are one set.
const GATHER: Duration = Duration::from_millis(150);
/// A service on the LAN answers the first three queries (after 0, 1 and 3 s) by then, or it is not there.
pub(super) const COMPLETE_AFTER: Duration = Duration::from_secs(5);
/// After browsing anew, what has not been seen again is gone; many services take longer to answer.
const SWEEP_AFTER: Duration = Duration::from_secs(5);
const SWEEP_PER_SERVICE: Duration = Duration::from_millis(5);
/// The time between two browses, doubled each time one ends soon again.
const BROWSE_PAUSE: Duration = Duration::from_millis(100);
const BROWSE_PAUSE_MAX: Duration = Duration::from_secs(10);
/// A browse that held this long ended for a new reason.
const BROWSE_HELD: Duration = Duration::from_secs(60);
/// A service that slept through its questions is taken for dead, and nobody asks about it again: mdns-sd knows that it
/// exists, so that it need not announce itself anew. So those missing are asked for, less and less often.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(2);
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(60);
/// With the pauses above, for about six minutes after the last that went.
const LOOKS_AGAIN: u32 = 10;
/// Up to this many services are each asked once in the interval; more share that traffic.
const VERIFIED_AT_FULL_RATE: u32 = 50;
/// Each question is two multicast packets and their answers; a hundred at once would be a burst.
const VERIFIED_AT_ONCE: usize = 10;
const VERIFY_PAUSE: Duration = Duration::from_millis(100);

/// What a browse says.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// All that is known of a service by now. Several times for each.
    Resolved(Box<Service>),
    /// The service of this full name said goodbye, or did not answer.
    Removed(String),
    /// The browse ended by itself: events were lost, none will follow.
    Lapsed,
}

/// What is to be done now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) publish: Option<DeviceSet>,
    /// Start to browse, with nothing remembered.
    pub(super) browse: bool,
    /// Ask for those that are known by name and do not answer.
    pub(super) look_again: bool,
    /// Full names of services to ask whether they are still there.
    pub(super) verify: Vec<String>,
    /// When to take the next turn, should nothing happen before.
    pub(super) wake: Option<Duration>,
}

/// The state of one discovery.
pub(super) struct Tracker {
    details: Details,
    random: fastrand::Rng,
    /// By full name, which is the device id.
    services: BTreeMap<String, Tracked>,
    published: DeviceSet,
    /// When to browse next; none while a browse runs.
    browse_at: Option<Duration>,
    browsing_since: Duration,
    browse_pause: Duration,
    complete_at: Option<Duration>,
    sweep_at: Option<Duration>,
    verify_not_before: Duration,
    /// The pause before the next look, and how many follow.
    look_pause: Duration,
    looks_left: u32,
    look_at: Option<Duration>,
    room: Room,
}

impl Tracker {
    /// `seed` makes the nodes of a cluster ask at different times.
    pub(super) fn new(details: Details, seed: u64) -> Self {
        Self {
            details,
            random: fastrand::Rng::with_seed(seed),
            services: BTreeMap::new(),
            published: DeviceSet::default(),
            browse_at: Some(Duration::ZERO),
            browsing_since: Duration::ZERO,
            browse_pause: BROWSE_PAUSE,
            complete_at: None,
            sweep_at: None,
            verify_not_before: Duration::ZERO,
            look_pause: LOOK_AGAIN_AFTER,
            looks_left: 0,
            look_at: None,
            room: Room::default(),
        }
    }

    pub(super) fn apply(&mut self, event: Event, now: Duration) {
        match event {
            Event::Resolved(service) => self.resolved(&service, now),
            Event::Removed(fullname) => self.removed(&fullname, now),
            Event::Lapsed => self.lapsed(now),
        }
    }

    fn resolved(&mut self, service: &Service, now: Duration) {
        let id = DeviceId::new(service.fullname.as_str());
        let published = self.published.devices.get(&id);
        let count = self.services.len();
        let tracked = self.services.get_mut(&service.fullname);
        let home = tracked.as_ref().and_then(|t| t.home(now));
        let before = tracked.as_ref().and_then(|t| t.device.clone());
        let known = Known {
            device: before.as_deref(),
            published: published.map(Arc::as_ref),
        };
        let earlier = home.or(known.published).or(known.device);
        let device = device_from_service(&self.details, service, earlier);
        match tracked {
            Some(tracked) => {
                let device = self.room.replace(&known, device);
                tracked.unconfirmed = false;
                tracked.becomes(device, published, now + SETTLE);
            }
            None => {
                self.room.forget(&service.fullname);
                let Some(device) = device.and_then(|device| self.room.admit(count, device)) else {
                    return;
                };
                let settle = match service.reach() {
                    Some(Reach::LinkLocal) => LINK_LOCAL_SETTLE,
                    Some(Reach::Loopback) if self.details.interfaces.are_all() => LOOPBACK_SETTLE,
                    _ => SETTLE,
                };
                let tracked = Tracked::new(device, now + settle);
                self.services.insert(service.fullname.clone(), tracked);
            }
        }
    }

    /// At once, because a broker may be talking to it; but no device changes twice within its settle time.
    fn removed(&mut self, fullname: &str, now: Duration) {
        self.room.forget(fullname);
        let published = self.published.devices.get(&DeviceId::new(fullname));
        let Some(tracked) = self.services.get_mut(fullname) else {
            return;
        };
        self.room.release(tracked.device.as_deref());
        let calm_at = tracked.changed.map_or(now, |changed| changed + SETTLE);
        tracked.becomes(None, published, now.max(calm_at));
        if tracked.due.is_none() {
            self.services.remove(fullname);
        }
        self.looks_left = LOOKS_AGAIN;
        if self.look_at.is_none() {
            self.look_pause = LOOK_AGAIN_AFTER;
            self.look_at = Some(now + self.look_pause);
        }
    }

    fn lapsed(&mut self, now: Duration) {
        if now.saturating_sub(self.browsing_since) > BROWSE_HELD {
            self.browse_pause = BROWSE_PAUSE;
        }
        self.browse_at = Some(now + self.browse_pause);
        self.browse_pause = (self.browse_pause * 2).min(BROWSE_PAUSE_MAX);
        self.sweep_at = None;
        self.room.lapse();
        for tracked in self.services.values_mut() {
            tracked.unconfirmed = true;
        }
    }

    /// Takes the turn that is due at `now`.
    pub(super) fn turn(&mut self, now: Duration) -> Turn {
        let browse = self.browse(now);
        self.sweep(now);
        let publish = self.publish(now);
        let look_again = self.look_again(now);
        let verify = self.verify(now);
        Turn {
            publish,
            browse,
            look_again,
            verify,
            wake: self.wake(),
        }
    }

    fn browse(&mut self, now: Duration) -> bool {
        let due = self.browse_at.is_some_and(|at| at <= now);
        if due {
            self.browse_at = None;
            self.browsing_since = now;
            self.complete_at = self.complete_at.or(Some(now + COMPLETE_AFTER));
            let count = u32::try_from(self.services.len()).unwrap_or(u32::MAX);
            let unconfirmed =
                self.room.leaves_out() || self.services.values().any(|t| t.unconfirmed);
            self.sweep_at = unconfirmed.then(|| now + SWEEP_AFTER + SWEEP_PER_SERVICE * count);
        }
        due
    }

    fn sweep(&mut self, now: Duration) {
        if self.sweep_at.is_none_or(|at| at > now) {
            return;
        }
        self.sweep_at = None;
        self.room.sweep();
        let unconfirmed = self.services.iter().filter(|(_, t)| t.unconfirmed);
        let gone: Vec<String> = unconfirmed.map(|(name, _)| name.clone()).collect();
        for fullname in gone {
            self.removed(&fullname, now);
        }
    }

    fn publish(&mut self, now: Duration) -> Option<DeviceSet> {
        let completes = !self.published.complete && self.complete_at.is_some_and(|at| at <= now);
        let flushes = self.flush_at().is_some_and(|at| at <= now);
        let tells = self.room.is_due(self.published.left_out, now);
        if !completes && !flushes && !tells {
            return None;
        }
        self.published.complete |= completes;
        self.published.left_out = self.room.leaves_out();
        self.published.problems = self.room.problem().into_iter().collect();
        let Self {
            services,
            published,
            ..
        } = self;
        services.retain(|fullname, tracked| {
            if tracked.due.is_some_and(|due| due <= now) {
                tracked.due = None;
                tracked.changed = Some(now);
                let id = DeviceId::new(fullname.as_str());
                let before = match &tracked.device {
                    Some(device) => published.devices.insert(id, device.clone()),
                    None => published.devices.remove(&id),
                };
                tracked.leaves(before, now);
            }
            tracked.device.is_some() || tracked.due.is_some()
        });
        Some(self.published.clone())
    }

    /// When the next set is to be published: at once for a device that goes, else when the last that came together
    /// has settled.
    fn flush_at(&self) -> Option<Duration> {
        let due = |t: &Tracked| t.due.map(|due| (due, t.device.is_none()));
        let first = self.services.values().filter_map(due).min()?.0;
        let gathered = self.services.values().filter_map(due);
        let last_together = gathered.filter(|(due, _)| *due <= first + GATHER).max()?.0;
        let goes = self.services.values().filter_map(due).filter(|(_, g)| *g);
        let first_to_go = goes.map(|(due, _)| due).min();
        Some(first_to_go.map_or(last_together, |at| at.min(last_together)))
    }

    /// A look that falls in a pause between two browses is the next browse.
    fn look_again(&mut self, now: Duration) -> bool {
        if self.look_at.is_none_or(|at| at > now) {
            return false;
        }
        self.looks_left = self.looks_left.saturating_sub(1);
        self.look_pause = (self.look_pause * 2).min(LOOK_AGAIN_MAX);
        self.look_at = (self.looks_left > 0).then(|| now + self.look_pause);
        self.browse_at.is_none()
    }

    fn verify(&mut self, now: Duration) -> Vec<String> {
        let (Some(interval), None) = (self.details.verify, self.browse_at) else {
            return vec![];
        };
        let crowd = u32::try_from(self.services.len()).unwrap_or(u32::MAX);
        let crowd = f64::from(crowd) / f64::from(VERIFIED_AT_FULL_RATE);
        let period = interval.mul_f64(crowd.max(1.0));
        let mut due = vec![];
        let may_ask = now >= self.verify_not_before;
        for (fullname, tracked) in &mut self.services {
            match tracked.verify_at {
                // Spread over the whole period from the start: services come in crowds.
                None => tracked.verify_at = Some(now + period.mul_f64(self.random.f64())),
                Some(at) if at <= now && may_ask && due.len() < VERIFIED_AT_ONCE => {
                    due.push(fullname.clone());
                    let jitter = 0.75 + 0.25 * self.random.f64();
                    tracked.verify_at = Some(now + period.mul_f64(jitter));
                }
                Some(_) => {}
            }
        }
        if !due.is_empty() {
            self.verify_not_before = now + VERIFY_PAUSE;
        }
        due
    }

    fn wake(&self) -> Option<Duration> {
        let complete_at = self.complete_at.filter(|_| !self.published.complete);
        let verify = self.services.values().filter_map(|t| t.verify_at).min();
        let verify = verify
            .filter(|_| self.browse_at.is_none())
            .map(|at| at.max(self.verify_not_before));
        [
            self.browse_at,
            complete_at,
            self.sweep_at,
            self.flush_at(),
            self.look_at,
            self.room.due_at(),
            verify,
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

#[cfg(test)]
mod tests;
