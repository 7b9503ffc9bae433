//! Removes records that have expired and services that did not answer. Pure.
use super::{
    super::{
        cache::{Due, Entry, Key, Use},
        link::RESOLVE_DELAY,
        name::Name,
        pace::Purse,
        record::{Data, Kind},
        schedule::{MISSING_MAX, Search, Series},
        trace::Note,
    },
    state::Querier,
};
use std::time::Duration;

impl Querier {
    pub(super) fn expire(&mut self, now: Duration) {
        let links = &self.links;
        let Due {
            expired,
            lost,
            refresh,
        } = self.cache.turn(now, |key| {
            let Some(state) = links.get(&key.link) else {
                return Use::Unused;
            };
            let is_used = match key.kind {
                Kind::Ptr => state.browses.contains_key(&key.name),
                Kind::Srv | Kind::Txt => {
                    (state.services.get(&key.name)).is_some_and(|i| !i.is_lost)
                }
                Kind::A | Kind::Aaaa => state.hosts.contains_key(&key.name),
                Kind::Nsec => false,
            };
            let waits = || state.refresh.contains_key(&(key.name.clone(), key.kind));
            match is_used {
                false => Use::Unused,
                true if !state.refresh.is_empty() && waits() => Use::Waits,
                true => Use::Used,
            }
        });
        for (key, data, source) in refresh {
            if let Some(state) = self.links.get_mut(&key.link) {
                let purse = match &data {
                    Data::Ptr(target) => Some(state.purse_of(target, source)),
                    Data::A(_) | Data::Aaaa(_) => state.purse_of_host(&key.name),
                    Data::Srv { .. } | Data::Txt(_) | Data::Nsec(_) => {
                        Some(state.purse_of(&key.name, source))
                    }
                };
                state.ask_again(&key.name, key.kind, purse.unwrap_or(Purse::Of(source)));
                state.look_at(now);
            }
        }
        for (key, data) in lost {
            if let Data::Ptr(target) = &data {
                self.pointer_lost(&key, target, now);
            }
        }
        for (key, data, entry) in expired {
            self.expired(&key, &data, &entry, now);
        }
    }

    fn expired(&mut self, key: &Key, data: &Data, entry: &Entry, now: Duration) {
        match (key.kind, data) {
            (Kind::Ptr, Data::Ptr(target)) => {
                self.dirty.insert(target.clone());
                self.forget_service(key.link, target);
            }
            (Kind::Srv, _) if entry.is_unanswered() => self.lose(key.link, &key.name, now),
            (Kind::Srv | Kind::Txt, _) => self.resolve_again(key.link, &key.name, now),
            (Kind::A | Kind::Aaaa, _) => self.host_changed(key.link, &key.name, now),
            (Kind::Ptr | Kind::Nsec, _) => {}
        }
    }

    /// Loses the service of a pointer that was withdrawn or not confirmed. A service that was withdrawn from a subtype,
    /// and to which another pointer leads, is not lost.
    fn pointer_lost(&mut self, key: &Key, target: &Name, now: Duration) {
        self.dirty.insert(target.clone());
        let pointer = self.cache.pointer(key.link, &key.name, target);
        let is_withdrawn = pointer.is_some_and(|(_, entry)| entry.is_ended);
        let mut browses = (self.links.get(&key.link).into_iter()).flat_map(|s| s.browses.keys());
        if is_withdrawn && browses.any(|b| self.cache.points(key.link, b, target)) {
            return;
        }
        self.lose(key.link, target, now);
        // Its host may go on without it: its packets are no reason to search sooner.
        if is_withdrawn && let Some(service) = self.link_service(key.link, target) {
            service.source = None;
        }
    }

    /// Removes a service to which no pointer leads any more.
    fn forget_service(&mut self, link: u32, name: &Name) {
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        let mut browses = state.browses.keys();
        if browses.any(|b| self.cache.pointer(link, b, name).is_some()) {
            return;
        }
        let service = state.services.remove(name);
        self.cache.drop_set(link, name, Kind::Srv);
        self.cache.drop_set(link, name, Kind::Txt);
        if let Some(host) = service.and_then(|i| i.host) {
            self.leave_host(link, &host, name);
        }
    }

    pub(super) fn leave_host(&mut self, link: u32, host: &Name, name: &Name) {
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        if let Some(known) = state.hosts.get_mut(host) {
            known.services.remove(name);
            if known.services.is_empty() {
                state.hosts.remove(host);
                self.cache.drop_set(link, host, Kind::A);
                self.cache.drop_set(link, host, Kind::Aaaa);
            }
        }
    }

    /// Asks for the missing record of a service again.
    fn resolve_again(&mut self, link: u32, name: &Name, now: Duration) {
        self.details_changed(link, name);
        if let Some(state) = self.links.get_mut(&link)
            && let Some(service) = state.services.get_mut(name)
            && !service.is_lost
            && service.resolve.is_none()
        {
            service.resolve = Some(Series::new(now, MISSING_MAX));
            state.look_at(now);
        }
    }

    fn host_changed(&mut self, link: u32, host: &Name, now: Duration) {
        if let Some(state) = self.links.get_mut(&link)
            && let Some(known) = state.hosts.get_mut(host)
        {
            self.dirty.extend(known.services.iter().cloned());
            known.ask = Some(Series::new(now + RESOLVE_DELAY, MISSING_MAX));
            state.look_at(now + RESOLVE_DELAY);
        }
    }

    /// Flushes a service that has not answered (RFC 6762 10.4), and begins a search for it. Its pointers are disputed:
    /// they keep its name for the search, and are no longer sent as known answers.
    pub(super) fn lose(&mut self, link: u32, name: &Name, now: Duration) {
        self.dirty.insert(name.clone());
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        for browse in state.browses.keys() {
            let key = Key::pointer(link, browse);
            self.cache.dispute(&key, name, now);
        }
        let Some(service) = state.services.get_mut(name) else {
            return;
        };
        (service.is_lost, service.confirm, service.resolve) = (true, None, None);
        match &mut state.search {
            Some(search) => search.renew(now),
            None => state.search = Some(Search::new(now)),
        }
        let next = state.search.as_ref().map(|search| search.next);
        next.into_iter().for_each(|at| state.look_at(at));
        self.cache.drop_set(link, name, Kind::Srv);
        self.note(|| Note::Lost(name.clone()));
    }
}
