//! Holds the state of one interface: browses, services, hosts and questions. Pure.
pub(crate) use super::family::{Families, Family};

use super::{
    name::Name,
    pace::{Pace, Purse},
    record::Kind,
    schedule::{Confirm, MISSING_MAX, Search, Series},
};
use ipnet::IpNet;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

/// The wait before a service is resolved, because its other records may be in the packet after its pointer.
pub(super) const RESOLVE_DELAY: Duration = Duration::from_millis(20);
/// The number of questions for the second address family of a host.
const OTHER_FAMILY_ASKED: u32 = 3;
/// The number of questions after which a service is used without a TXT record. RFC 6763 6.1 requires one.
pub(super) const TXT_ASKED: u32 = 2;
/// The number of questions for the addresses of a service's new host after which the service counts as gone.
pub(super) const MOVED_ASKED: u32 = 3;
/// The part of its interval after which a service joins a round of confirmations.
const CONFIRMED_ALONG: f64 = 0.7;
/// The most machines that are remembered for a name. Beyond it: further ones are not remembered.
const SENDERS_MAX: usize = 4;
/// The time for which a machine is remembered after its last record.
const SENDER_FOR: Duration = Duration::from_secs(600);
/// The time for which both services must have been known before their machines are compared. By then each machine has
/// answered several times by each of its interfaces.
const COMPARED_AFTER: Duration = Duration::from_secs(60);
/// The most other services of its host with which a service is compared. Beyond it: the others are not compared.
const COMPARED_MAX: usize = 32;

/// The most hosts of preferred services that are remembered on an interface. Beyond it: further ones are heard as
/// those of other services are.
const HOSTS_MAX: usize = 8192;

/// A network interface in its present state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The index by which the system knows it.
    pub index: u32,
    /// The name, such as `eth0`.
    pub name: String,
    /// The addresses of this machine on the interface, each with the length of its network's prefix.
    pub addresses: Vec<IpNet>,
    /// Packets on it come from this machine.
    pub is_loopback: bool,
}

impl Link {
    /// Returns whether it has an address of a family.
    pub fn has(&self, family: Family) -> bool {
        self.addresses
            .iter()
            .any(|net| Family::of(net.addr()) == family)
    }

    /// Returns whether an address is in a network of the interface (RFC 6762 11). A link-local IPv4 address is one only if the
    /// interface has such an address, too: elsewhere 169.254.0.0/16 belongs to services of the machine and of its cloud.
    pub fn reaches(&self, ip: IpAddr) -> bool {
        is_link_local_v6(ip) || self.network_of(ip).is_some()
    }

    /// Returns the network of the interface which contains an address.
    pub fn network_of(&self, ip: IpAddr) -> Option<IpNet> {
        let net = self.addresses.iter().find(|net| net.contains(&ip))?;
        Some(net.trunc())
    }
}

fn is_link_local_v6(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// The source addresses of a record, each with the time of its last packet.
#[derive(Debug, Clone, Default)]
pub(super) struct Senders(BTreeMap<IpAddr, Duration>);

impl Senders {
    pub(super) fn add(&mut self, source: IpAddr, now: Duration) {
        self.0.retain(|_, at| *at + SENDER_FOR > now);
        if self.0.len() < SENDERS_MAX || self.0.contains_key(&source) {
            self.0.insert(source, now);
        }
    }

    pub(super) fn has(&self, source: IpAddr) -> bool {
        self.0.contains_key(&source)
    }

    /// Returns the addresses of one family that are also in `others`.
    fn common(&self, others: &Self, family: Family) -> BTreeSet<IpAddr> {
        let common = self.0.keys().filter(|ip| others.0.contains_key(ip));
        common
            .copied()
            .filter(|ip| Family::of(*ip) == family)
            .collect()
    }
}

/// A service on one link: its senders, and the state of the questions about it.
#[derive(Debug, Clone)]
pub(super) struct LinkService {
    /// The time at which its pointer was first received, and the source of that pointer.
    since: Duration,
    pub(super) announced_by: IpAddr,
    /// It is admitted and asked for before others.
    pub(super) is_preferred: bool,
    /// The machines that sent its SRV record, or its pointer where that came after the record.
    senders: Senders,
    /// The interval of its confirmations.
    pub(super) interval: Option<Duration>,
    /// The time by which its confirmation is put off, so that hosts do not ask at the same time.
    pub(super) jitter: Duration,
    /// The time, the families and the source of its last SRV record, or of its pointer where that came after the record.
    pub(super) received_at: Duration,
    pub(super) families: Families,
    pub(super) source: Option<IpAddr>,
    /// The questions for a missing SRV or TXT record.
    pub(super) resolve: Option<Series>,
    pub(super) confirm: Option<Confirm>,
    /// The service did not answer, and is searched for.
    pub(super) is_lost: bool,
    /// The number of questions of other hosts that had no answer, and the time of the first (RFC 6762 10.5).
    pub(super) unanswered: Option<(Duration, u32)>,
    /// The host to which it was resolved last.
    pub(super) host: Option<Name>,
}

impl LinkService {
    pub(super) fn new(announced_by: IpAddr, interval: Option<Duration>, now: Duration) -> Self {
        Self {
            since: now,
            announced_by,
            is_preferred: false,
            senders: Senders::default(),
            interval,
            jitter: Duration::ZERO,
            received_at: now,
            families: Families::default(),
            source: None,
            resolve: Some(Series::new(now + RESOLVE_DELAY, MISSING_MAX)),
            confirm: None,
            is_lost: false,
            unanswered: None,
            host: None,
        }
    }

    /// Records that its SRV record was received.
    pub(super) fn note_answer(&mut self, source: IpAddr, family: Family, now: Duration) {
        self.received_at = now;
        self.families.add(family);
        self.source = Some(source);
        self.senders.add(source, now);
        self.confirm = None;
        self.unanswered = None;
        self.is_lost = false;
    }

    /// Returns whether a machine is one of the few that are known to answer for the service. Others may have taken its
    /// name.
    pub(super) fn is_of(&self, source: IpAddr) -> bool {
        self.senders.has(source)
    }

    /// Returns the part of the pace that its questions use.
    pub(super) fn purse(&self) -> Purse {
        if self.is_preferred {
            Purse::Whole
        } else {
            Purse::Of(self.announced_by)
        }
    }

    fn confirm_at(&self, stretch: f64, part: f64) -> Option<Duration> {
        let is_there = !self.is_lost && self.resolve.as_ref().is_none_or(|r| r.sent >= TXT_ASKED);
        let interval = self
            .interval
            .filter(|_| is_there && self.source.is_some())?;
        Some(self.received_at + interval.mul_f64(stretch * part) + self.jitter)
    }

    pub(super) fn due(&self, stretch: f64) -> Option<Duration> {
        let confirm = match &self.confirm {
            Some(confirm) => Some(confirm.next()),
            None => self.confirm_at(stretch, 1.0),
        };
        let resolve = self.resolve.as_ref().map(|r| r.next);
        [confirm, resolve].into_iter().flatten().min()
    }

    pub(super) fn is_to_confirm(&self, stretch: f64, now: Duration) -> bool {
        self.confirm.is_none() && self.confirm_at(stretch, 1.0).is_some_and(|at| at <= now)
    }

    pub(super) fn may_confirm(&self, stretch: f64, now: Duration) -> bool {
        let at = self.confirm_at(stretch, CONFIRMED_ALONG);
        self.confirm.is_none() && at.is_some_and(|at| at <= now)
    }
}

/// A host and its services.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub(super) services: BTreeSet<Name>,
    /// The machines that sent an address record of this name with their own address.
    pub(super) claims: Senders,
    pub(super) ask: Option<Series>,
    /// No address of it was ever known.
    pub(super) is_new: bool,
    /// The times until which an NSEC record denies addresses of each family.
    pub(super) has_no: BTreeMap<Family, Duration>,
}

impl Host {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            services: BTreeSet::new(),
            claims: Senders::default(),
            ask: Some(Series::new(now + RESOLVE_DELAY, MISSING_MAX)),
            is_new: true,
            has_no: BTreeMap::new(),
        }
    }

    /// Returns the families of addresses to ask for; `known` are the families that need no question. A host without any
    /// known address is asked for both, whatever was denied.
    pub(super) fn missing(&self, known: Families, now: Duration) -> Families {
        let is_reached = known.v4 || known.v6;
        let sent = self.ask.as_ref().map_or(0, |ask| ask.sent);
        let is_missing = |family| {
            let is_denied = self.has_no.get(&family).is_some_and(|until| *until > now);
            let is_over = is_denied || sent >= OTHER_FAMILY_ASKED;
            !(known.has(family) || is_reached && is_over)
        };
        Families {
            v4: is_missing(Family::V4),
            v6: is_missing(Family::V6),
        }
    }
}

/// A name that is browsed for.
#[derive(Debug, Clone)]
pub(super) struct Browse {
    pub(super) series: Series,
    /// The type of the services. It differs from the browsed name if that is a subtype.
    pub(super) base: Name,
}

#[derive(Debug)]
pub(super) struct LinkState {
    pub(super) link: Link,
    pub(super) browses: BTreeMap<Name, Browse>,
    pub(super) services: BTreeMap<Name, LinkService>,
    pub(super) hosts: BTreeMap<Name, Host>,
    pub(super) search: Option<Search>,
    /// The questions for records that are about to expire, or were withdrawn.
    pub(super) refresh: BTreeMap<(Name, Kind), Purse>,
    /// The factor by which the interval of confirmations is stretched, so that many services do not fill the LAN with
    /// questions.
    pub(super) stretch: f64,
    pub(super) pace: Pace,
    /// The time of the last question.
    pub(super) asked_at: Option<Duration>,
    /// The hosts that answer for preferred services, each with the time of its last answer.
    pub(super) hosts_of_preferred: BTreeMap<IpAddr, Duration>,
    /// The hosts of lost services, until the next turn.
    pub(super) hosts_of_lost: Option<BTreeSet<IpAddr>>,
    /// The time before which no question is due.
    pub(super) due: Option<Duration>,
    /// The time until which nothing is asked, because the pace has held back questions.
    pub(super) held_until: Duration,
}

impl LinkState {
    pub(super) fn new(link: Link, now: Duration) -> Self {
        Self {
            link,
            browses: BTreeMap::new(),
            services: BTreeMap::new(),
            hosts: BTreeMap::new(),
            search: None,
            refresh: BTreeMap::new(),
            stretch: 1.0,
            pace: Pace::new(now),
            asked_at: None,
            hosts_of_preferred: BTreeMap::new(),
            hosts_of_lost: None,
            due: None,
            held_until: now,
        }
    }

    /// Remembers a host that has answered for a preferred service.
    pub(super) fn remember_host(&mut self, source: IpAddr, now: Duration) {
        let hosts = &mut self.hosts_of_preferred;
        if hosts.len() >= HOSTS_MAX && !hosts.contains_key(&source) {
            hosts.retain(|_, at| *at + SENDER_FOR > now);
        }
        if hosts.len() < HOSTS_MAX || hosts.contains_key(&source) {
            hosts.insert(source, now);
        }
    }

    pub(super) fn look_at(&mut self, at: Duration) {
        let at = at.max(self.held_until);
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    pub(super) fn families(&self) -> Families {
        Families {
            v4: self.link.has(Family::V4),
            v6: self.link.has(Family::V6),
        }
    }

    /// Adds a question that is sent as soon as the pace lets it out.
    pub(super) fn ask_again(&mut self, name: &Name, kind: Kind, purse: Purse) {
        let waiting = self.refresh.entry((name.clone(), kind)).or_insert(purse);
        *waiting = purse.min(*waiting);
    }

    /// Returns the part of the pace that questions for a service use.
    pub(super) fn purse_of(&self, service: &Name, source: IpAddr) -> Purse {
        match self.services.get(service) {
            Some(service) => service.purse(),
            None => Purse::Of(source),
        }
    }

    /// Returns the part of the pace that questions for the addresses of a host use.
    pub(super) fn purse_of_host(&self, host: &Name) -> Option<Purse> {
        let services = self.hosts.get(host)?.services.iter();
        let known = services.filter_map(|name| self.services.get(name));
        known.map(LinkService::purse).min()
    }

    /// Restarts the questions for the records of a service that is back, and for the addresses of its host: they may
    /// have expired, and the intervals of their questions may have grown.
    pub(super) fn resolve_anew(&mut self, name: &Name, now: Duration) {
        let at = now + RESOLVE_DELAY;
        let Some(service) = self.services.get_mut(name) else {
            return;
        };
        service.resolve = Some(Series::new(at, MISSING_MAX));
        let host = service.host.as_ref().and_then(|h| self.hosts.get_mut(h));
        if let Some(host) = host {
            host.ask = Some(Series::new(at, MISSING_MAX));
        }
        self.look_at(at);
    }

    /// Returns another service of the same host name that a different machine announces: each machine sends its own
    /// address for the name, and neither answers for the service of the other.
    pub(super) fn twin_of(&self, name: &Name, now: Duration) -> Option<&Name> {
        let is_old = |i: &LinkService| i.since + COMPARED_AFTER <= now;
        let service = self.services.get(name).filter(|i| is_old(i))?;
        let host = self.hosts.get(service.host.as_ref()?)?;
        let are_apart = |other: &LinkService| {
            [Family::V4, Family::V6].into_iter().any(|family| {
                let one = service.senders.common(&host.claims, family);
                let two = other.senders.common(&host.claims, family);
                !one.is_empty() && !two.is_empty() && one.is_disjoint(&two)
            })
        };
        let mut others = host.services.iter().filter(|other| *other != name);
        others.by_ref().take(COMPARED_MAX).find(|other| {
            let other = self.services.get(other);
            other.is_some_and(|other| is_old(other) && are_apart(other))
        })
    }

    /// Returns the browses that find services of a type.
    pub(super) fn browses_of<'a>(
        &'a self,
        service: &'a Name,
    ) -> impl Iterator<Item = (&'a Name, &'a Browse)> {
        self.browses
            .iter()
            .filter(|(_, browse)| service.is_below(&browse.base))
    }
}
