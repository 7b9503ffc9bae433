//! Updates the interfaces and the subscriptions. Pure.
use super::{
    super::{
        link::{Browse, Link, LinkState},
        name::Name,
        record::Kind,
        schedule::{CONTINUOUS_MAX, Series},
    },
    state::{Querier, Wanted},
};
use ipnet::IpNet;
use std::{collections::BTreeMap, net::IpAddr, time::Duration};

/// The range of the wait before the first question, in milliseconds, so that hosts that start together do not ask
/// together (RFC 6762 5.2).
const FIRST_QUESTION: [u64; 2] = [20, 120];
/// The time within which a question is about to be sent.
const ABOUT_TO_ASK: Duration = Duration::from_secs(1);
/// The time after which a burst of answers, for which packets were dropped, is over.
const LOST_PAUSE: Duration = Duration::from_millis(1500);

impl Querier {
    /// Sets the interfaces to browse on. The records of a removed interface are dropped (RFC 6762 10.3). On an interface that is
    /// new or has other addresses, the questions restart. The addresses of the `others` are this machine's, too.
    pub fn set_links(&mut self, links: Vec<Link>, others: &[Link], now: Duration) {
        let addresses = |links: &[Link]| -> Vec<IpAddr> {
            let nets = links.iter().flat_map(|link| &link.addresses);
            nets.map(IpNet::addr).collect()
        };
        self.own = addresses(&links).into_iter().collect();
        // A link-local address is that of another host on another link.
        let others = addresses(others).into_iter();
        self.own.extend(others.filter(|ip| !is_link_local(*ip)));
        let new: BTreeMap<u32, Link> = links.into_iter().map(|l| (l.index, l)).collect();
        let gone: Vec<u32> = (self.links.iter())
            .filter(|(index, state)| new.get(index).is_none_or(|l| l.name != state.link.name))
            .map(|(index, _)| *index)
            .collect();
        for index in &gone {
            if let Some(state) = self.links.remove(index) {
                self.dirty.extend(state.services.into_keys());
            }
        }
        self.cache.retain(|key| !gone.contains(&key.link));
        for (index, link) in new {
            let first = now + self.between(FIRST_QUESTION);
            let state = self.links.entry(index);
            let state = state.or_insert_with(|| LinkState::new(link.clone(), now));
            if state.link != link {
                // The interface may lead to another network now (RFC 6762 13).
                state.link = link;
                for browse in state.browses.values_mut() {
                    browse.series = Series::new(first, CONTINUOUS_MAX);
                }
                state.look_at(first);
                let known: Vec<Name> = state.services.keys().cloned().collect();
                self.dirty.extend(known);
            }
        }
        self.reconcile(now);
    }

    /// Asks again soon, because packets of an interface were dropped on this machine.
    pub fn packets_lost(&mut self, link: u32, now: Duration) {
        let at = now + LOST_PAUSE;
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        for browse in state.browses.values_mut() {
            if browse.series.next > at {
                browse.series.next = at;
            }
        }
        state.look_at(at);
    }

    /// Begins the questions for a type anew, unless one is about to be sent: a service that nobody has heard of is found as soon
    /// as by the first subscription.
    pub(super) fn browse_anew(&mut self, wanted: &Wanted, now: Duration) {
        let first = now + self.between(FIRST_QUESTION);
        let links = self.links.values_mut();
        for state in links.filter(|state| wanted.interfaces.uses(&state.link.name)) {
            let browse = state.browses.get_mut(&wanted.browsed);
            if let Some(browse) = browse.filter(|b| b.series.next > now + ABOUT_TO_ASK) {
                browse.series = Series::new(first, CONTINUOUS_MAX);
                state.look_at(first);
            }
        }
    }

    /// Makes each interface browse for the types that its subscriptions want, and drops the records that none of them
    /// can use.
    pub(super) fn reconcile(&mut self, now: Duration) {
        for index in self.links.keys().copied().collect::<Vec<_>>() {
            let first = now + self.between(FIRST_QUESTION);
            let Some(state) = self.links.get_mut(&index) else {
                continue;
            };
            let wanted = (self.subscriptions.values())
                .map(|s| &s.wanted)
                .filter(|w| w.interfaces.uses(&state.link.name));
            let wanted: Vec<&Wanted> = wanted.collect();
            state
                .browses
                .retain(|name, _| wanted.iter().any(|w| w.browsed == *name));
            for w in &wanted {
                state
                    .browses
                    .entry(w.browsed.clone())
                    .or_insert_with(|| Browse {
                        series: Series::new(first, CONTINUOUS_MAX),
                        base: w.base.clone(),
                    });
            }
            let bases: BTreeMap<&Name, Option<Duration>> = intervals(&wanted);
            let browses = &state.browses;
            let cache = &self.cache;
            state.services.retain(|name, service| {
                let base = bases.iter().find(|(base, _)| name.is_below(base));
                service.interval = base.and_then(|(_, interval)| *interval);
                (browses.keys()).any(|b| cache.pointer(index, b, name).is_some())
            });
            let services = &state.services;
            state.hosts.retain(|_, host| {
                host.services.retain(|name| services.contains_key(name));
                !host.services.is_empty()
            });
            state.look_at(now);
        }
        self.forget_unused();
    }

    fn forget_unused(&mut self) {
        let links = &self.links;
        self.cache.retain(|key| {
            links.get(&key.link).is_some_and(|state| match key.kind {
                Kind::Ptr => state.browses.contains_key(&key.name),
                Kind::Srv | Kind::Txt => state.browses_of(&key.name).next().is_some(),
                Kind::A | Kind::Aaaa => state.hosts.contains_key(&key.name),
                Kind::Nsec => false,
            })
        });
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Returns the shortest interval of confirmations that a subscription requests, for each type.
fn intervals<'a>(wanted: &[&'a Wanted]) -> BTreeMap<&'a Name, Option<Duration>> {
    let mut intervals: BTreeMap<&Name, Option<Duration>> = BTreeMap::new();
    for w in wanted {
        let interval = intervals.entry(&w.base).or_default();
        *interval = [*interval, w.verify].into_iter().flatten().min();
    }
    intervals
}
