//! Decides what the controller does next: which part of the cluster has its turn, and which requests it sends. It sends
//! nothing itself and has no clock, so that tests run it as the loop does (`run.rs`).
//!
//! A turn has six stages: devices, brokers, services, lists, status, evictions. Each is planned with what the stages before it have
//! written, once all their answers are there. A part whose requests are not answered is not planned, and holds up no other
//! part. Only a leader has turns.
use super::{
    brokers::Brokers,
    evictions::Evictions,
    index::part_of,
    lists::Lists,
    nodes::{Devices, absent_node::Now, lost::NodeMemory, plan::Action as DeviceAction},
    open_turns::OpenTurns,
    outcome::{Note, Problems},
    parts::{Cluster, NODES, News, Touched},
    queue::{Queue, Waits},
    reported::Reported,
    services::Services,
    status::Statuses,
    throttle::Throttle,
    turn::{Answer, Request, Stage, Turn, requests},
    world::World,
};
use crate::{
    api::configuration::Configuration,
    cluster::watch::Objects,
    model::{
        networks::DeviceNetworks, resource_name::ResourcePrefix, typed_names::ConfigurationName,
    },
};
use std::{
    collections::{BTreeSet, VecDeque},
    iter,
    time::Duration,
};
use tokio::time::Instant;

/// The most turns that begin in one step. Between two steps what has changed is taken in.
const TURNS_IN_STEP: usize = 16;
/// The time after which each part is planned again though nothing has changed. It bounds how long an error in what
/// counts as touched can last, and a kubelet reports on an unchanged Node as often, so it adds no load of another order.
const ALL_AGAIN: Duration = Duration::from_mins(5);

/// Everything that the controller knows and remembers.
pub(crate) struct Turns {
    pub(super) cluster: Cluster,
    queue: Queue,
    throttle: Throttle,
    open: OpenTurns,
    /// The parts whose brokers or Services found no place.
    crowded_out: VecDeque<String>,
    /// The time at which all parts are planned again; `None` if this replica does not lead.
    all_again_at: Option<Instant>,
    pub(super) devices: Devices,
    pub(super) brokers: Brokers,
    pub(super) services: Services,
    pub(super) lists: Lists,
    statuses: Statuses,
    pub(super) evictions: Evictions,
    not_offered: Problems,
    /// Events that are to be written.
    pub(super) notes: Vec<Note>,
}

impl Turns {
    pub(crate) fn new(resource_prefix: ResourcePrefix, now: Now) -> Self {
        Self {
            cluster: Cluster::default(),
            queue: Queue::default(),
            throttle: Throttle::new(),
            open: OpenTurns::default(),
            crowded_out: VecDeque::new(),
            all_again_at: None,
            devices: Devices::default(),
            brokers: Brokers::new(resource_prefix.clone()),
            services: Services::default(),
            lists: Lists::new(now.instant),
            statuses: Statuses::default(),
            evictions: Evictions::new(resource_prefix),
            not_offered: Problems::new(),
            notes: vec![],
        }
    }

    /// Lets devices in these networks have names in the cluster.
    #[must_use]
    pub(crate) fn allowing(mut self, networks: DeviceNetworks) -> Self {
        self.services = Services::new(networks);
        self
    }

    /// Lets all Instances have so many bytes in memory.
    #[must_use]
    pub(crate) fn with_room(mut self, bytes: usize) -> Self {
        self.cluster = Cluster::with_room(bytes);
        self
    }

    /// Returns the whole cluster as it is known.
    pub(crate) fn world(&self) -> &World {
        self.cluster.whole()
    }

    /// Returns the cluster with the Configurations of this name and what belongs to them.
    pub(crate) fn part(&self, configuration: &str) -> World {
        self.cluster.part(&part_of(configuration))
    }

    /// Returns the Events that are to be written.
    pub(crate) fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// Takes in what a watch shows.
    pub(crate) fn see(&mut self, news: News) {
        let touched = self.cluster.see(news);
        self.touch(touched);
    }

    /// Takes in all Configurations, once they are listed.
    pub(crate) fn see_configurations(
        &mut self,
        listed: Option<&Objects<Configuration, ConfigurationName>>,
    ) {
        if let Some(listed) = listed {
            let touched = self.cluster.list_configurations(listed);
            self.touch(touched);
        }
    }

    /// Takes in the problems with what the scheduler is offered.
    pub(crate) fn see_not_offered(&mut self, problems: Problems) {
        let before = std::mem::replace(&mut self.not_offered, problems);
        let now = &self.not_offered;
        let keys = before.keys().chain(now.keys());
        let other = keys.filter(|key| before.get(key) != now.get(key));
        let parts = other.map(|key| part_of(&key.name).into_owned()).collect();
        let is_all = false;
        self.touch(Touched { is_all, parts });
    }

    /// Returns whether the objects of all kinds are known.
    pub(crate) fn is_listed(&self) -> bool {
        self.cluster.is_listed()
    }

    pub(super) fn touch(&mut self, touched: Touched) {
        // One that does not lead takes no turns, and all are touched once it does.
        if self.all_again_at.is_some() {
            for part in &touched.parts {
                self.queue.touch(part);
            }
            let all = touched.is_all.then(|| self.cluster.names());
            for part in all.iter().flatten() {
                self.queue.touch_later(part);
            }
        }
        for (part, turn) in &mut self.open.turns {
            turn.is_touched |= touched.is_all || touched.parts.contains(part);
        }
    }

    pub(super) fn touch_all(&mut self) {
        self.touch(Touched {
            is_all: true,
            parts: BTreeSet::new(),
        });
    }

    /// Begins or ends to lead. Requests that were sent are answered in any case; others are forgotten.
    pub(crate) fn lead(&mut self, leads: bool, now: Now) {
        if leads == self.all_again_at.is_some() {
            return;
        }
        self.queue = Queue::default();
        self.crowded_out.clear();
        self.open.lose();
        if leads {
            // What has happened to nodes and devices since it led is not known.
            self.devices.memory = NodeMemory::default();
            self.brokers.memory.forget_specs();
            self.services.forget();
            self.lists = Lists::new(now.instant);
            self.statuses.lead(now.clock);
        }
        self.all_again_at = leads.then_some(now.instant);
    }

    /// Returns the requests that are to be sent now, each with its part. Each must be answered.
    pub(crate) fn step(&mut self, now: Now) -> Vec<(String, Request)> {
        let touched = self.cluster.expire(now.instant);
        self.touch(touched);
        self.throttle.forget(now.instant);
        let Some(again_at) = self.all_again_at else {
            return vec![];
        };
        if again_at <= now.instant {
            self.all_again_at = Some(now.instant + ALL_AGAIN);
            // What is remembered of objects that are gone is forgotten.
            let whole = Reported::new(self.cluster.whole());
            self.devices.memory.notice(&whole, now);
            let memory = &mut self.brokers.memory;
            memory.forget_gone(self.cluster.whole());
            self.touch_all();
        }
        for _ in 0..self.open.places_for_admitted() {
            let part = self.crowded_out.pop_front();
            part.into_iter().for_each(|part| self.queue.touch(&part));
        }
        for _ in 0..TURNS_IN_STEP {
            if !self.open.has_room() {
                break;
            }
            let is_free = |part: &str| !self.open.turns.contains_key(part);
            let Some(part) = self.queue.take(now.instant, is_free) else {
                break;
            };
            self.begin(part, now);
        }
        self.send(now)
    }

    /// Returns when there is something to do though nothing happens.
    pub(crate) fn wakes_at(&self, now: Instant) -> Option<Instant> {
        let again_at = self.all_again_at?;
        let is_free = |part: &str| !self.open.turns.contains_key(part);
        let next = self.queue.next(now, is_free);
        let next = next.filter(|_| self.open.has_room());
        let times = [Some(again_at), next, self.cluster.expires_at()];
        times.into_iter().flatten().min()
    }

    fn begin(&mut self, part: String, now: Now) {
        self.go_on(part, Turn::new(), Some(Stage::Devices), now);
    }

    /// Plans this stage of a turn and the next ones until one has requests, or ends the turn. All these stages look at the same
    /// reports and the same world: nothing arrives between them.
    fn go_on(&mut self, part: String, mut turn: Turn, from: Option<Stage>, now: Now) {
        let Some(first) = from else {
            return self.end(&part, &turn);
        };
        let world = self.cluster.part(&part);
        let reported = Reported::new(&world);
        for stage in iter::successors(Some(first), |stage| stage.next()) {
            turn.stage = stage;
            self.plan(&part, &reported, &mut turn, now);
            if !turn.queue.is_empty() {
                self.open.turns.insert(part, turn);
                return;
            }
        }
        self.end(&part, &turn);
    }

    fn end(&mut self, part: &str, turn: &Turn) {
        if turn.has_sent {
            self.queue.touch(part);
        }
        if let Some(at) = turn.wait {
            self.queue.wake(part, at);
        }
    }

    fn plan(&mut self, part: &str, reported: &Reported<'_>, turn: &mut Turn, now: Now) {
        let world = reported.world;
        let (mut requests, mut waits) = match turn.stage {
            Stage::Devices => self.plan_devices(part, reported, now),
            Stage::Brokers => {
                let notes = &mut self.notes;
                let (actions, waits) = self.brokers.plan(reported, now, notes);
                (requests(actions, Request::Broker), waits)
            }
            Stage::Services => {
                let (actions, waits) = self.services.plan(part, world, now.instant);
                (requests(actions, Request::Service), waits)
            }
            Stage::Lists => {
                let (actions, waits) = self.lists.plan(world, now.instant);
                (requests(actions, Request::List), waits)
            }
            Stage::Status => self.plan_status(part, world, now),
            Stage::Evictions => {
                turn.is_touched = false; // what has changed before is planned with
                let (actions, waits) = self.evictions.plan(reported, now.instant);
                (requests(actions, Request::Eviction), waits)
            }
        };
        waits.extend(self.throttle.hold(&mut requests, now.instant));
        // What else is planned does not wait for a place.
        if turn.stage.is_admitted() && !requests.is_empty() && self.open.places_for_admitted() == 0
        {
            requests.clear();
            if !self.crowded_out.iter().any(|known| known == part) {
                self.crowded_out.push_back(part.to_owned());
            }
        }
        turn.queue = requests.into();
        turn.sent = 0;
        let at = waits.first().and_then(|wait| now.instant.checked_add(wait));
        turn.wait = turn.wait.into_iter().chain(at).min();
    }

    fn plan_devices(
        &mut self,
        part: &str,
        reported: &Reported<'_>,
        now: Now,
    ) -> (Vec<Request>, Waits) {
        self.devices.memory.notice(reported, now);
        let looks = self.devices.memory.looks(now.instant);
        if part == NODES && !looks.is_empty() {
            return (requests(looks, Request::Look), Waits::default());
        }
        if !looks.is_empty() {
            self.queue.touch(NODES);
        }
        let (mut actions, mut waits) = self.devices.plan(reported, now, &mut self.notes);
        if part == NODES {
            let look = self.devices.memory.look_in(now.instant).into_iter();
            look.for_each(|wait| waits.add(wait));
        }
        // Every part shows all nodes. An Instance may be of no Configuration, so that it is in the part of the nodes.
        let of_nodes =
            |action: &DeviceAction| matches!(action, DeviceAction::DeleteNodeDevices { .. });
        actions.retain(|action| part == NODES || !of_nodes(action));
        (requests(actions, Request::Device), waits)
    }

    fn plan_status(&mut self, part: &str, world: &World, now: Now) -> (Vec<Request>, Waits) {
        // Of several problems of a Configuration the last one is shown.
        let mut problems = self.lists.problems(world);
        problems.extend(self.devices.problems(world));
        problems.extend(self.services.problems(part, world));
        problems.extend(self.not_offered.clone());
        self.statuses.report_unreadable(world, &mut self.notes);
        let brokers = &self.brokers.reports;
        let (actions, waits) = self.statuses.plan(world, brokers, &problems, now.clock);
        (requests(actions, Request::Status), waits)
    }

    /// Returns the requests that are sent now.
    fn send(&mut self, now: Now) -> Vec<(String, Request)> {
        self.open.drop_outdated_evictions();
        let sent: Vec<_> = iter::from_fn(|| self.open.send_next()).collect();
        for (_, request) in &sent {
            self.throttle.sent(request, now.instant);
        }
        sent
    }

    /// Takes in the answer to a request.
    pub(crate) fn answered(&mut self, part: String, request: &Request, answer: Answer, now: Now) {
        let is_failed = self.settle(&part, request, answer, now);
        self.throttle.answered(request, is_failed, now.instant);
        let Some(mut turn) = self.open.turns.remove(&part) else {
            return;
        };
        turn.open -= 1;
        if turn.is_outdated(is_failed) {
            turn.queue.clear();
            self.queue.touch(&part);
        }
        if turn.open > 0 || !turn.queue.is_empty() {
            self.open.turns.insert(part, turn);
        } else if turn.is_valid {
            let next = turn.stage.next();
            self.go_on(part, turn, next, now);
        } else {
            self.queue.touch(&part);
        }
    }
}

#[cfg(test)]
mod tests;
