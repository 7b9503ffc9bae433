//! Processes records that are withdrawn, denied or refused. Pure.
//!
//! Anyone can say goodbye for a service, and of two hosts that publish one name the second may go on. RFC 6762 10.1 keeps
//! a withdrawn record for a second, so that a host that still has it can say so; not all do so unasked.
use super::{
    super::{
        cache::{Limit, TTL_MAX},
        link::Family,
        name::Name,
        record::{Data, Kind, Record},
        trace::Note,
    },
    service::LeftOut,
    state::{Packet, Querier, SEARCH_DELAY},
};
use std::{net::IpAddr, time::Duration};

impl Querier {
    /// Asks for a record that `source` withdrew: for its type and its service if it is a pointer.
    pub(super) fn ask_before_goodbye(
        &mut self,
        link: u32,
        record: &Record,
        source: IpAddr,
        now: Duration,
    ) {
        let at = now + self.between(SEARCH_DELAY);
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        let is_known = |name: &Name| state.services.get(name).is_some_and(|i| !i.is_lost);
        let (name, kind) = (&record.name, record.data.kind());
        let purse = match &record.data {
            Data::Ptr(target) if is_known(target) => {
                let purse = state.purse_of(target, source);
                state.ask_again(target, Kind::Srv, purse);
                Some(purse)
            }
            Data::Srv { .. } | Data::Txt(_) if is_known(name) => Some(state.purse_of(name, source)),
            Data::A(_) | Data::Aaaa(_) => state.purse_of_host(name),
            Data::Ptr(_) | Data::Srv { .. } | Data::Txt(_) | Data::Nsec(_) => None,
        };
        if let Some(purse) = purse {
            state.ask_again(name, kind, purse);
            state.look_at(at);
        }
    }

    /// Records the address families that do not exist, for the lifetime of the denial (RFC 6762 6.1).
    pub(super) fn take_denial(&mut self, link: u32, record: &Record, now: Duration) -> bool {
        let Data::Nsec(kinds) = &record.data else {
            return false;
        };
        let state = self.links.get_mut(&link);
        let Some(host) = state.and_then(|state| state.hosts.get_mut(&record.name)) else {
            return false;
        };
        let until = now + Duration::from_secs(record.ttl.into()).min(TTL_MAX);
        for (family, kind) in [(Family::V4, Kind::A), (Family::V6, Kind::Aaaa)] {
            if kinds.contains(&kind) {
                host.has_no.remove(&family)
            } else {
                host.has_no.insert(family, until)
            };
        }
        true
    }

    /// Counts a refused record, and reports it to the subscriptions that want its service.
    pub(super) fn refuse(
        &mut self,
        packet: &Packet<'_>,
        record: &Record,
        limit: Limit,
        now: Duration,
    ) {
        self.counts.refused += 1;
        self.note(|| Note::Refused(record.name.clone(), record.data.kind()));
        let why = match limit {
            Limit::Set => return,
            Limit::Total => LeftOut::Total,
            Limit::Share => LeftOut::Share(packet.source.ip()),
        };
        let Some(state) = self.links.get(&packet.link) else {
            return;
        };
        let host = state.hosts.get(&record.name);
        let service = match &record.data {
            Data::Ptr(target) => Some(target),
            Data::A(_) | Data::Aaaa(_) => host.and_then(|host| host.services.first()),
            Data::Srv { .. } | Data::Txt(_) | Data::Nsec(_) => {
                Some(&record.name).filter(|name| state.services.contains_key(name))
            }
        };
        let browses = service
            .into_iter()
            .flat_map(|service| state.browses_of(service));
        let wanted: Vec<Name> = browses.map(|(browsed, _)| browsed.clone()).collect();
        for browsed in wanted {
            self.leave_out(&browsed, why, now);
        }
    }
}
