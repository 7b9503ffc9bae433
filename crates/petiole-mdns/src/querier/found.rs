//! Builds services from records, and changes for subscribers from services. Pure.
use super::{
    super::{
        link::{LinkState, MOVED_ASKED, TXT_ASKED},
        name::Name,
        record::{Data, Kind},
    },
    service::{Address, Service},
    state::{Change, Querier, Wanted},
};
use std::{net::IpAddr, ops::Bound, sync::Arc, time::Duration};

/// The services that are looked at for changes in one turn, for all subscriptions together. The next turn, a moment later, looks at the
/// others.
const CHANGES_AT_ONCE: usize = 256;
/// The number of services that are looked at for each, however many subscriptions there are.
const CHANGES_AT_LEAST: usize = 16;
/// A turn looks at least at this part of the services that wait, so that they do not pile up, however fast they come.
const BACKLOG_TURNS: usize = 100;

impl Querier {
    /// Returns the changes for each subscriber since the last turn, of some of the services.
    pub(super) fn changes(&mut self, now: Duration) -> Vec<Change> {
        let mut changes = vec![];
        for name in self.next_dirty() {
            let ids: Vec<u64> = self.subscriptions.keys().copied().collect();
            for id in ids {
                let Some(subscription) = self.subscriptions.get(&id) else {
                    continue;
                };
                let service = self.service(&subscription.wanted, &name, now);
                let before = subscription.found.get(&name);
                if before.map(|before| &**before) == service.as_ref() {
                    continue;
                }
                if service.is_none() && before.is_some() && self.is_moving(&name) {
                    continue;
                }
                // Subscriptions share what is the same to them.
                let service = service.map(|service| {
                    let all = self.subscriptions.values();
                    let mut known = all.filter_map(|other| other.found.get(&name));
                    let same = known.find(|known| ***known == service).cloned();
                    same.unwrap_or_else(|| Arc::new(service))
                });
                if let Some(subscription) = self.subscriptions.get_mut(&id) {
                    match &service {
                        Some(service) => subscription.found.insert(name.clone(), service.clone()),
                        None => subscription.found.remove(&name),
                    };
                }
                changes.push(Change {
                    subscription: id,
                    name: name.clone(),
                    service,
                });
            }
        }
        changes
    }

    /// Removes the services whose turn it is from those that may have changed: the ones after the last turn's, so that no
    /// name is always before another.
    fn next_dirty(&mut self) -> Vec<Name> {
        let after = self
            .looked_at
            .take()
            .map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.dirty.range((after, Bound::Unbounded)).cloned();
        let share = CHANGES_AT_ONCE / self.subscriptions.len().max(1);
        let backlog = self.dirty.len() / BACKLOG_TURNS;
        let most = share.max(CHANGES_AT_LEAST).max(backlog);
        let mut names: Vec<Name> = later.take(most).collect();
        if names.is_empty() {
            names = self.dirty.iter().take(most).cloned().collect();
        }
        names.iter().for_each(|name| drop(self.dirty.take(name)));
        self.looked_at = names.last().cloned();
        names
    }

    /// Returns whether a known service has just moved to a host whose addresses are being asked for. It counts as present
    /// meanwhile.
    fn is_moving(&self, name: &Name) -> bool {
        self.links.values().any(|state| {
            let service = state.services.get(name).filter(|i| !i.is_lost);
            let host = service.and_then(|service| service.host.as_ref());
            let host = host.and_then(|host| state.hosts.get(host));
            let ask = host.filter(|h| h.is_new).and_then(|h| h.ask.as_ref());
            ask.is_some_and(|ask| ask.sent < MOVED_ASKED)
                && self.cache.has(state.link.index, name, Kind::Srv)
        })
    }

    /// Returns the service of this name, with the records of all interfaces.
    fn service(&self, wanted: &Wanted, name: &Name, now: Duration) -> Option<Service> {
        if !name.is_below(&wanted.base) {
            return None;
        }
        let used = (self.links.values()).filter(|s| wanted.interfaces.uses(&s.link.name));
        let mut found: Option<(Service, Vec<(Duration, Address)>)> = None;
        for state in used {
            let Some((mut service, addresses)) = self.service_on(state, wanted, name) else {
                continue;
            };
            service.twin = state.twin_of(name, now).cloned();
            match &mut found {
                None => found = Some((service, addresses)),
                // A service with another host or port on this interface is not merged: it is another machine's.
                Some((first, known))
                    if first.host == service.host && first.port == service.port =>
                {
                    known.extend(addresses);
                }
                Some((first, _)) => first.twin = Some(first.name.clone()),
            }
        }
        let (service, mut addresses) = found?;
        addresses.sort_by(|(a_since, a), (b_since, b)| (a_since, a.ip).cmp(&(b_since, b.ip)));
        Some(Service {
            addresses: addresses.into_iter().map(|(_, address)| address).collect(),
            ..service
        })
    }

    fn service_on(
        &self,
        state: &LinkState,
        wanted: &Wanted,
        name: &Name,
    ) -> Option<(Service, Vec<(Duration, Address)>)> {
        let link = state.link.index;
        if !self.cache.points(link, &wanted.browsed, name) {
            return None;
        }
        let (Data::Ptr(shown), pointer) = self.cache.pointer(link, &wanted.browsed, name)? else {
            return None;
        };
        let known = state.services.get(name)?;
        let Data::Srv { target, port, .. } = self.cache.latest(link, name, Kind::Srv)? else {
            return None;
        };
        let txt = match self.cache.latest(link, name, Kind::Txt) {
            Some(Data::Txt(txt)) => txt.clone(),
            _ if (known.resolve.as_ref()).is_some_and(|r| r.sent < TXT_ASKED) => return None,
            _ => Arc::from([]),
        };
        let addresses = self.addresses(state, target);
        let service = Service {
            name: shown.clone(),
            host: target.clone(),
            port: *port,
            addresses: vec![],
            txt,
            source: pointer.source,
            twin: None,
        };
        (!addresses.is_empty()).then_some((service, addresses))
    }

    fn addresses(&self, state: &LinkState, host: &Name) -> Vec<(Duration, Address)> {
        let link = state.link.index;
        let v4 = self.cache.set(link, host, Kind::A);
        let v6 = self.cache.set(link, host, Kind::Aaaa);
        let interface: Arc<str> = state.link.name.as_str().into();
        let addresses = v4.chain(v6).filter_map(|(data, entry)| {
            let ip = data.address()?;
            let address = Address {
                ip,
                interface: interface.clone(),
                network: state.link.network_of(ip),
                is_on_link: self.is_on_link(state, ip),
            };
            let is_usable = is_sound(state, ip) && self.may_have(state, entry.source, ip);
            is_usable.then_some((entry.since, address))
        });
        addresses.collect()
    }

    /// Returns whether an address is on the link. Packets on `lo` are from this machine, so all its addresses are on
    /// that link.
    fn is_on_link(&self, state: &LinkState, ip: IpAddr) -> bool {
        state.link.reaches(ip) || (state.link.is_loopback && self.own.contains(&ip))
    }

    /// Returns whether a host may announce this address. The addresses of this machine belong to its own programs alone.
    fn may_have(&self, state: &LinkState, host: IpAddr, ip: IpAddr) -> bool {
        state.link.is_loopback || !self.own.contains(&ip) || self.own.contains(&host)
    }
}

/// Returns whether a host on the interface may announce this address. It may not announce a loopback address (except on
/// `lo`), a broadcast, class E or multicast address, or the unspecified one.
fn is_sound(state: &LinkState, ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let is_refused = match ip {
        IpAddr::V4(v4) => v4.octets()[0] == 0 || v4.octets()[0] >= 240,
        IpAddr::V6(v6) => v6.is_unspecified(),
    };
    !is_refused && !ip.is_multicast() && (state.link.is_loopback || !ip.is_loopback())
}
