//! Decides which devices a running zeroconf discovery publishes, and when.
//!
//! Pure: events and the time since the start go in, a [`Turn`] comes out. One service causes several events before it
//! is complete, and some services change without end. The published set changes rarely, and is correct nevertheless.
//! The querier decides whether a service is still present.
use super::{
    address::Reach,
    budget::{EarlierStates, SERVICES_MAX, ServiceBudget},
    details::{Addresses, Details},
    notices::Notices,
    service::{Service, device_from_service},
    tracked::Tracked,
};
use crate::model::device::{DeviceId, DeviceSet};
use petiole_mdns::LeftOut;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The time within which the address families and TXT records of one service arrive.
pub(super) const SETTLE: Duration = Duration::from_millis(250);
/// The settle time of a service whose only addresses so far are loopback ones. It is likely to announce others the
/// second time it announces itself (RFC 6762 8.3: 1 s after the first).
const LOOPBACK_SETTLE: Duration = Duration::from_millis(1500);
/// The settle time of a service whose only addresses so far are link-local. It is likely to have others: a responder
/// that has just sent an address leaves it out of its next answers (RFC 6762 6: for 1 s), until the answer to the third
/// query (after 3 s). If the first address were published, the brokers would be replaced for the second one at each
/// start of an agent.
const LINK_LOCAL_SETTLE: Duration = Duration::from_millis(3500);
/// The time for which a device that is gone need not settle again.
const SETTLED_FOR: Duration = Duration::from_secs(900);
/// The time that a settled device waits for others that still settle, so that devices that appear together are
/// published in one set.
const GATHER: Duration = Duration::from_millis(150);
/// The time after which the first look is complete. A service on the LAN answers the first three queries (after 0, 1
/// and 3 s) by then, or is absent.
pub(super) const COMPLETE_AFTER: Duration = Duration::from_secs(5);
/// The time between a change of the left-out services and its publication. Changes within it are published together.
const REPORT_SETTLE: Duration = Duration::from_secs(1);

/// A report of the querier.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// The current data of a service. The event is repeated whenever they change.
    Resolved(Box<Service>),
    /// The service of this full name said goodbye, or did not answer.
    Removed(String),
    /// The reason that the querier leaves out services, if it does.
    LeavesOut(Option<LeftOut>),
}

/// The result of a turn.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) publish: Option<DeviceSet>,
    /// The time of the next turn, if nothing happens before.
    pub(super) wake: Option<Duration>,
}

/// The state of one discovery.
pub(super) struct Tracker {
    details: Details,
    /// The services by full name, which is the device id.
    services: BTreeMap<String, Tracked>,
    published: DeviceSet,
    /// The services that were published and are gone, with the times until which they need not settle again.
    settled: BTreeMap<String, Duration>,
    budget: ServiceBudget,
    notices: Notices,
    /// The time at which the problems are published, if they have changed.
    report_at: Option<Duration>,
    /// True if the querier knows services of which there was no event yet. Until then the first look is not complete.
    pub(super) is_behind: bool,
}

impl Tracker {
    pub(super) fn new(details: Details, budget: ServiceBudget) -> Self {
        Self {
            details,
            services: BTreeMap::new(),
            published: DeviceSet::default(),
            settled: BTreeMap::new(),
            budget,
            notices: Notices::default(),
            report_at: None,
            is_behind: false,
        }
    }

    pub(super) fn apply(&mut self, event: Event, now: Duration) {
        match event {
            Event::Resolved(service) => self.resolved(&service, now),
            Event::Removed(fullname) => self.removed(&fullname, now),
            Event::LeavesOut(leaves_out) => self.budget.others_are_left_out(leaves_out),
        }
    }

    /// Begins to look again at the services for which there was no room. Returns whether a service is one of them, by its full name.
    pub(super) fn look_again(&mut self) -> impl Fn(&str) -> bool {
        let (tracked, is_left_out) = (&self.services, self.budget.look_again());
        move |fullname: &str| is_left_out(fullname) && !tracked.contains_key(fullname)
    }

    /// Returns what was published last.
    pub(super) fn published(&self) -> DeviceSet {
        self.published.clone()
    }

    fn resolved(&mut self, service: &Service, now: Duration) {
        let id = DeviceId::new(service.fullname.as_str());
        // The filters are applied once: here, or where the device is made.
        let is_off_link = self.is_off_link(service);
        let is_elsewhere = is_off_link && self.is_selected_anywhere(service);
        let published = self.published.devices.get(&id);
        let count = self.services.len();
        let tracked = self.services.get_mut(&service.fullname);
        let home = tracked.as_ref().and_then(|t| t.home(now));
        let before = tracked.as_ref().and_then(|t| t.device.clone());
        let known = EarlierStates {
            source: tracked.as_ref().map_or(service.source, |t| t.source),
            device: before.as_deref(),
            published: published.map(Arc::as_ref),
        };
        let earlier = home.or(known.published).or(known.device);
        let device = if is_off_link {
            None
        } else {
            device_from_service(&self.details, service, earlier)
        };
        self.notices.forget(&service.fullname);
        if is_elsewhere {
            self.notices.note_elsewhere(service);
        }
        if device.is_some() {
            self.notices.note_twin(service);
        }
        match tracked {
            Some(tracked) => {
                let device = self.budget.replace(&known, device);
                tracked.becomes(device, published, now + SETTLE);
            }
            None => {
                self.budget.forget(&service.fullname);
                let admit = |device| self.budget.admit(count, service.source, device);
                let Some(device) = device.and_then(admit) else {
                    return;
                };
                let is_back = self.settled.remove(&service.fullname).is_some();
                let settle = match service.reach() {
                    _ if is_back => SETTLE,
                    Some(Reach::LinkLocal) => LINK_LOCAL_SETTLE,
                    Some(Reach::Loopback) if self.details.interfaces.are_all() => LOOPBACK_SETTLE,
                    _ => SETTLE,
                };
                let tracked = Tracked::new(service.source, device, now + settle);
                self.services.insert(service.fullname.clone(), tracked);
            }
        }
    }

    /// Removes a service at once, because a broker may be using it. No device changes twice within its settle time.
    fn removed(&mut self, fullname: &str, now: Duration) {
        self.budget.forget(fullname);
        self.notices.forget(fullname);
        let published = self.published.devices.get(&DeviceId::new(fullname));
        let Some(tracked) = self.services.get_mut(fullname) else {
            return;
        };
        (self.budget).release(tracked.source, tracked.device.as_deref());
        let calm_at = tracked.changed.map_or(now, |changed| changed + SETTLE);
        tracked.becomes(None, published, now.max(calm_at));
        if tracked.due.is_none() {
            self.services.remove(fullname);
        }
    }

    /// Returns whether none of the service's addresses may be used because they are not of the link.
    fn is_off_link(&self, service: &Service) -> bool {
        self.details.addresses == Addresses::OnLink
            && !service.addresses.iter().any(|address| address.is_on_link)
    }

    /// Returns whether the service would be a device if all addresses counted.
    fn is_selected_anywhere(&self, service: &Service) -> bool {
        let anywhere = Details {
            addresses: Addresses::Any,
            ..self.details.clone()
        };
        device_from_service(&anywhere, service, None).is_some()
    }

    /// Takes the turn that is due at `now`.
    pub(super) fn turn(&mut self, now: Duration) -> Turn {
        Turn {
            publish: self.publish(now),
            wake: self.wake(),
        }
    }

    fn publish(&mut self, now: Duration) -> Option<DeviceSet> {
        let completes = self.complete_at().is_some_and(|at| at <= now);
        let flushes = self.flush_at().is_some_and(|at| at <= now);
        let problems = self.problems();
        let is_news = problems != self.published.problems;
        self.report_at = is_news.then(|| self.report_at.unwrap_or(now + REPORT_SETTLE));
        let reports = self.report_at.is_some_and(|at| at <= now);
        if !completes && !flushes && !reports {
            return None;
        }
        self.published.complete |= completes;
        self.published.left_out = self.budget.leaves_out();
        (self.published.problems, self.report_at) = (problems, None);
        let Self {
            services,
            published,
            settled,
            ..
        } = self;
        settled.retain(|_, until| *until > now);
        services.retain(|fullname, tracked| {
            if tracked.due.is_some_and(|due| due <= now) {
                tracked.due = None;
                tracked.changed = Some(now);
                let id = DeviceId::new(fullname.as_str());
                let before = match &tracked.device {
                    Some(device) => published.devices.insert(id, device.clone()),
                    None => published.devices.remove(&id),
                };
                if tracked.device.is_none() && settled.len() < SERVICES_MAX {
                    settled.insert(fullname.clone(), now + SETTLED_FOR);
                }
                tracked.leaves(before, now);
            }
            tracked.device.is_some() || tracked.due.is_some()
        });
        Some(self.published.clone())
    }

    fn problems(&self) -> Vec<String> {
        let left_out = self.budget.problem().into_iter();
        left_out.chain(self.notices.problems()).collect()
    }

    /// Returns the time of the next publication: at once if a device is gone, otherwise when the last of the devices
    /// that appeared together has settled.
    fn flush_at(&self) -> Option<Duration> {
        let due = |t: &Tracked| t.due.map(|due| (due, t.device.is_none()));
        let first = self.services.values().filter_map(due).min()?.0;
        let gathered = self.services.values().filter_map(due);
        let last_together = gathered.filter(|(due, _)| *due <= first + GATHER).max()?.0;
        let goes = self.services.values().filter_map(due).filter(|(_, g)| *g);
        let first_to_go = goes.map(|(due, _)| due).min();
        Some(first_to_go.map_or(last_together, |at| at.min(last_together)))
    }

    fn wake(&self) -> Option<Duration> {
        let times = [self.complete_at(), self.flush_at(), self.report_at];
        times.into_iter().flatten().min()
    }

    fn complete_at(&self) -> Option<Duration> {
        let is_due = !self.published.complete && !self.is_behind;
        is_due.then_some(COMPLETE_AFTER)
    }
}

#[cfg(test)]
mod tests;
