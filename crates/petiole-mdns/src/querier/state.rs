//! Holds the state of the querier, and takes its turns. Pure.
use super::{
    super::{
        cache::Cache,
        interfaces::Interfaces,
        link::{Family, LinkService, LinkState},
        name::Name,
        trace::{Counts, Note},
        traffic::Traffic,
    },
    service::{LeftOut, Service},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

/// The range of the wait before a host with lost services that sends a packet is asked, in milliseconds.
pub(super) const SEARCH_DELAY: [u64; 2] = [20, 120];
/// The time for which a refused record counts: the longest lifetime of a record.
const LEFT_OUT_FOR: Duration = Duration::from_secs(4500);
/// The most notes that are kept until the next turn.
const NOTES_MAX: usize = 1000;

/// The services that a subscriber wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The name to browse for: a service type, or a subtype of one.
    pub browsed: Name,
    /// The type itself, with which the names of its services end.
    pub base: Name,
    /// The interfaces on which services are searched for.
    pub interfaces: Interfaces,
    /// The interval at which each service is confirmed; `None` if only its TTL decides.
    pub verify: Option<Duration>,
}

/// A packet as it was received.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// The index of the interface that received it.
    pub link: u32,
    /// The address family of the socket that received it.
    pub family: Family,
    /// The sender.
    pub source: SocketAddr,
    /// The packet was sent to the multicast group. No router forwards such a packet.
    pub is_multicast: bool,
    /// The hop limit with which the packet arrived.
    pub hop_limit: u8,
    /// The DNS message.
    pub bytes: &'a [u8],
}

/// A packet to be sent to the multicast group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The index of the interface that sends it.
    pub link: u32,
    /// The address family: to 224.0.0.251 or to ff02::fb, from and to port 5353.
    pub family: Family,
    /// The DNS message.
    pub bytes: Vec<u8>,
}

/// A change of a service that a subscription wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The id of the subscription.
    pub subscription: u64,
    /// The name of the service. Names compare without case.
    pub name: Name,
    /// The service as it is now; `None` if it is gone.
    pub service: Option<Arc<Service>>,
}

/// Returns whether a name is among others, which are lower-case text.
pub(super) fn is_among(names: &BTreeSet<String>, name: &Name) -> bool {
    let text = || name.text().map(|text| text.to_ascii_lowercase());
    !names.is_empty() && text().is_some_and(|text| names.contains(&text))
}

/// The effects of one turn.
#[derive(Debug, Default)]
pub struct Turn {
    /// The packets to send now.
    pub send: Vec<Outgoing>,
    /// Some of the changed services. The others follow in the next turn, which is due soon.
    pub changes: Vec<Change>,
    /// The time of the next turn, if nothing happens before.
    pub wake: Option<Duration>,
    /// The traced conversation since the last turn.
    pub notes: Vec<Note>,
}

pub(super) struct Subscription {
    pub(super) wanted: Wanted,
    /// The services that the subscriber knows.
    pub(super) found: BTreeMap<Name, Arc<Service>>,
    /// The time at which a record of its type was refused last, and why.
    pub(super) left_out: Option<(Duration, LeftOut)>,
}

/// Finds services without any I/O. The time is the parameter `now` of its methods, which is the time since any start, and
/// never goes back. After each [`Querier::receive`] and each change of links or subscriptions a [`Querier::turn`] is due.
pub struct Querier {
    pub(super) random: fastrand::Rng,
    pub(super) cache: Cache,
    pub(super) links: BTreeMap<u32, LinkState>,
    pub(super) subscriptions: BTreeMap<u64, Subscription>,
    /// The services that may have changed.
    pub(super) dirty: BTreeSet<Name>,
    /// The last service that was looked at for changes.
    pub(super) looked_at: Option<Name>,
    pub(super) traffic: Traffic,
    /// The work that the present packet has caused so far.
    pub(super) steps: usize,
    /// The services that are admitted to a full cache before others, as lower-case text.
    pub(super) preferred: Arc<BTreeSet<String>>,
    /// The addresses of this machine.
    pub(super) own: BTreeSet<IpAddr>,
    pub(super) asks_for_unicast: bool,
    pub(super) is_traced: bool,
    pub(super) notes: Vec<Note>,
    pub(super) counts: Counts,
}

impl Querier {
    /// Creates a querier. `seed` makes machines that start together ask at different times.
    pub fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            cache: Cache::default(),
            links: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            dirty: BTreeSet::new(),
            looked_at: None,
            traffic: Traffic::new(seed),
            steps: 0,
            preferred: Arc::default(),
            own: BTreeSet::new(),
            asks_for_unicast: false,
            is_traced: false,
            notes: vec![],
            counts: Counts::default(),
        }
    }

    /// Sets whether the first answer may come by unicast, which requires that no other program listens on this port
    /// (RFC 6762 5.4, 15.1).
    pub fn ask_for_unicast(&mut self, may: bool) {
        self.asks_for_unicast = may;
    }

    /// Sets whether turns have notes of the conversation ([`Turn::notes`]).
    pub fn trace(&mut self, is_traced: bool) {
        self.is_traced = is_traced;
    }

    /// Sets the services, by name as lower-case text, that are admitted to a full cache and asked for before others.
    pub fn prefer(&mut self, services: Arc<BTreeSet<String>>) {
        if Arc::ptr_eq(&self.preferred, &services) {
            return;
        }
        self.preferred = services;
        for state in self.links.values_mut() {
            for (name, service) in &mut state.services {
                service.is_preferred = is_among(&self.preferred, name);
            }
        }
    }

    /// Returns what was counted since the start.
    pub fn counts(&self) -> Counts {
        Counts {
            records: self.cache.records(),
            bytes: self.cache.bytes(),
            ..self.counts.clone()
        }
    }

    /// Returns why services of a subscription are left out, if any are.
    pub fn leaves_out(&self, id: u64, now: Duration) -> Option<LeftOut> {
        let (at, why) = self.subscriptions.get(&id)?.left_out?;
        (now.saturating_sub(at) < LEFT_OUT_FOR).then_some(why)
    }

    /// Records that records of a subscription were refused. The first reason stays while it holds.
    pub(super) fn leave_out(&mut self, browsed: &Name, why: LeftOut, now: Duration) {
        let subscriptions = self.subscriptions.values_mut();
        for subscription in subscriptions.filter(|s| s.wanted.browsed == *browsed) {
            match &mut subscription.left_out {
                Some((at, known)) if *known == why => *at = now,
                Some((at, _)) if now.saturating_sub(*at) < LEFT_OUT_FOR => {}
                left_out => *left_out = Some((now, why)),
            }
        }
    }

    /// Returns the number of interfaces that a subscription uses.
    pub fn links_of(&self, id: u64) -> usize {
        let Some(subscription) = self.subscriptions.get(&id) else {
            return 0;
        };
        let used = |state: &&LinkState| subscription.wanted.interfaces.uses(&state.link.name);
        self.links.values().filter(used).count()
    }

    /// Begins to browse. The caller chooses the id; a subscription with the same one is replaced.
    pub fn subscribe(&mut self, id: u64, wanted: Wanted, now: Duration) {
        let new = wanted.clone();
        self.subscriptions.insert(
            id,
            Subscription {
                wanted,
                found: BTreeMap::new(),
                left_out: None,
            },
        );
        self.reconcile(now);
        self.browse_anew(&new, now);
        let known = self.links.values().flat_map(|state| state.services.keys());
        let known = known.filter(|name| name.is_below(&new.base)).cloned();
        self.dirty.extend(known);
    }

    /// Ends a browse, and drops the records that no other one can use.
    pub fn unsubscribe(&mut self, id: u64, now: Duration) {
        self.subscriptions.remove(&id);
        self.reconcile(now);
    }

    /// Takes the turn that is due at `now`.
    pub fn turn(&mut self, now: Duration) -> Turn {
        self.expire(now);
        self.give_up(now);
        let send = self.ask(now);
        for state in self.links.values_mut() {
            state.hosts_of_lost = None;
            if send.iter().any(|packet| packet.link == state.link.index) {
                state.asked_at = Some(now);
            }
        }
        let changes = self.changes(now);
        Turn {
            send,
            changes,
            wake: self.wake(now),
            notes: std::mem::take(&mut self.notes),
        }
    }

    fn wake(&self, now: Duration) -> Option<Duration> {
        let links = self.links.values().filter_map(|state| state.due);
        let more = self.dirty.first().map(|_| now);
        let due = links.chain(self.cache.due()).chain(more).min();
        due.map(|due| due.max(now + Duration::from_millis(1)))
    }

    pub(super) fn between(&mut self, [from, to]: [u64; 2]) -> Duration {
        Duration::from_millis(self.random.u64(from..=to))
    }

    pub(super) fn note(&mut self, note: impl FnOnce() -> Note) {
        if self.is_traced && self.notes.len() < NOTES_MAX {
            self.notes.push(note());
        }
    }

    pub(super) fn link_service(&mut self, link: u32, name: &Name) -> Option<&mut LinkService> {
        self.links.get_mut(&link)?.services.get_mut(name)
    }

    /// Notes that a service may have changed by its records. To a name without a pointer they are nothing, and names cost nothing.
    pub(super) fn details_changed(&mut self, link: u32, name: &Name) {
        if self.link_service(link, name).is_some() {
            self.dirty.insert(name.clone());
        }
    }
}
