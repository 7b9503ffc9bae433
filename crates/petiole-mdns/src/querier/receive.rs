//! Processes packets, and the records of responses. Pure.
use super::{
    super::{
        cache::{Key, Origin, Outcome},
        link::{Family, Host, LinkService, RESOLVE_DELAY},
        message::{Header, Message},
        name::Name,
        record::{Data, Kind, Record},
        schedule::{MISSING_MAX, Series},
        trace::{Ignored, Note, RECORDS_SHOWN},
        traffic::{Arrival, Standing},
    },
    state::{Packet, Querier, SEARCH_DELAY, is_among},
};
use std::{net::IpAddr, time::Duration};

/// The source port of valid responses (RFC 6762 6).
const PORT: u16 = 5353;
/// The time after a question in which responses by unicast are accepted. A host that sleeps answers after some seconds.
const UNICAST_FOR: Duration = Duration::from_secs(5);
/// The hop limit of a packet that no router has forwarded (RFC 6762 11).
const UNFORWARDED: u8 = 255;
/// The range of the jitter of confirmations in milliseconds. All hosts of the link have heard the last answer.
const CONFIRM_JITTER: [u64; 2] = [0, 100];
/// The jitter of refresh questions in percent of the lifetime (RFC 6762 5.2).
const JITTER: f64 = 2.0;

/// The work, in steps of about 0.1 us, of reading a packet from its socket, of a record of an unknown name, of a record of
/// a known one, and of one of the services that an address may concern.
pub(crate) const PACKET_STEPS: usize = 20;
const UNUSED_STEPS: usize = 3;
const RECORD_STEPS: usize = 30;
const SERVICE_STEPS: usize = 2;
/// The most work of one packet, in steps of about 0.1 us. An address of a host with as many services as the cache holds adds
/// 8000. Beyond it: the further records of the packet are not used.
pub const PACKET_STEPS_MAX: usize = 20_000;

/// The most services of a host that are checked when one of its addresses is to be admitted.
const PREFERRED_LOOKED_AT: usize = 16;

impl Querier {
    /// Processes a packet. Its effects are in the next turn. Returns the steps that it took.
    pub fn receive(&mut self, packet: &Packet<'_>, now: Duration) -> usize {
        self.counts.received += 1;
        self.steps = PACKET_STEPS;
        let taken = self.take(packet, now);
        if let Err(reason) = taken {
            self.counts.ignore(reason);
            self.note(|| Note::Ignored(packet.source, reason));
        }
        self.steps
    }

    fn take(&mut self, packet: &Packet<'_>, now: Duration) -> Result<(), Ignored> {
        let header = self.check(packet, now)?;
        let source = packet.source.ip();
        if !header.is_response && self.own.contains(&source) {
            return Ok(());
        }
        let arrival = Arrival {
            link: packet.link,
            family: packet.family,
            standing: self.standing(packet),
            source,
        };
        if !(self.traffic).admits(&arrival, packet.bytes.len(), now) {
            return Err(Ignored::TooMany);
        }
        let message = Message::decode(packet.bytes, &mut self.steps);
        if let Ok(message) = &message {
            self.search_soon(packet.link, source, now);
            if message.is_response {
                self.take_response(packet, message, now)
            } else {
                self.take_query(packet.link, message, now)
            }
        }
        self.traffic
            .charge(&arrival, self.steps - PACKET_STEPS, now);
        message.map(drop).map_err(|_| Ignored::Malformed)
    }

    /// Checks form, link and port of a packet, before it is counted.
    fn check(&self, packet: &Packet<'_>, now: Duration) -> Result<Header, Ignored> {
        let (ip, port) = (packet.source.ip(), packet.source.port());
        let state = self.links.get(&packet.link).ok_or(Ignored::Interface)?;
        let header = Header::read(packet.bytes).map_err(|_| Ignored::Malformed)?;
        let is_asked = state.asked_at.is_some_and(|at| now <= at + UNICAST_FOR);
        match (header.is_response, packet.is_multicast) {
            // RFC 6762 11: a packet to the group is from the link whatever its source is, because no router forwards it.
            (_, false) if !state.link.reaches(ip) && !self.own.contains(&ip) => {
                Err(Ignored::OffLink)
            }
            (true, _) if port != PORT => Err(Ignored::SourcePort),
            (true, false) if !is_asked => Err(Ignored::Unasked),
            // Nobody else has heard a question to this host alone. A simple resolver, which has another port, is answered
            // by unicast (RFC 6762 6.7).
            (false, is_multicast) if !is_multicast || port != PORT => Err(Ignored::OtherQuery),
            (true | false, _) => Ok(header),
        }
    }

    fn standing(&self, packet: &Packet<'_>) -> Standing {
        let source = packet.source.ip();
        let state = self.links.get(&packet.link);
        if !packet.is_multicast && packet.hop_limit != UNFORWARDED {
            // Some responders send with the usual hop limit of their system. A router may have forwarded it.
            Standing::Unproven
        } else if state.is_some_and(|state| state.hosts_of_preferred.contains_key(&source)) {
            Standing::Preferred
        } else if self.cache.has_source(source) {
            Standing::Known
        } else {
            Standing::Unknown
        }
    }

    /// Schedules a search soon, because a host with lost services has sent a packet.
    fn search_soon(&mut self, link: u32, source: IpAddr, now: Duration) {
        let wait = self.between(SEARCH_DELAY);
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        let Some(search) = &mut state.search else {
            return;
        };
        let lost = state.services.values().filter(|service| service.is_lost);
        let hosts = (state.hosts_of_lost)
            .get_or_insert_with(|| lost.filter_map(|service| service.source).collect());
        if hosts.contains(&source) {
            search.search_soon(now, wait);
            let next = search.next;
            state.look_at(next);
        }
    }

    fn take_response(&mut self, packet: &Packet<'_>, message: &Message, now: Duration) {
        // Pointers determine which services are used, and services which hosts. The addresses of a host are together.
        let rank = |record: &Record| match record.data.kind() {
            Kind::Ptr => 0,
            Kind::Srv => 1,
            Kind::Txt => 2,
            Kind::A | Kind::Aaaa => 3,
            Kind::Nsec => 4,
        };
        let host = |record: &Record| record.data.address().map(|_| record.name.clone());
        let mut records: Vec<&Record> = message.records.iter().collect();
        records.sort_by_cached_key(|record| (rank(record), host(record)));
        let are_of_one_host = |a: &&Record, b: &&Record| host(a).is_some() && host(a) == host(b);
        let mut used = 0;
        for records in records.chunk_by(are_of_one_host) {
            if self.steps > PACKET_STEPS_MAX {
                break;
            }
            self.steps += UNUSED_STEPS * records.len();
            used += self.take_records(packet, records, now);
        }
        let count = message.records.len();
        self.note(|| Note::Received {
            source: packet.source,
            first: message.records[..count.min(RECORDS_SHOWN)].to_vec(),
            count,
            used,
        });
    }

    /// Processes a record, or the addresses of one host. Returns the number of used records.
    fn take_records(&mut self, packet: &Packet<'_>, records: &[&Record], now: Duration) -> usize {
        let Some(first) = records.first() else {
            return 0;
        };
        usize::from(match first.data.kind() {
            Kind::A | Kind::Aaaa => return self.take_addresses(packet, records, now),
            Kind::Ptr => self.take_pointer(packet, first, now),
            Kind::Srv | Kind::Txt => self.take_details(packet, first, now),
            Kind::Nsec => self.take_denial(packet.link, first, now),
        })
    }

    /// Returns whether a service is preferred.
    fn is_preferred(&self, service: &Name) -> bool {
        is_among(&self.preferred, service)
    }

    /// Offers a record to the cache.
    fn keep(
        &mut self,
        packet: &Packet<'_>,
        record: &Record,
        is_preferred: bool,
        now: Duration,
    ) -> Outcome {
        self.steps += RECORD_STEPS;
        let source = packet.source.ip();
        let is_of_service = matches!(record.data.kind(), Kind::Srv | Kind::Txt);
        let origin = Origin {
            is_preferred,
            is_orphan: is_of_service && self.link_service(packet.link, &record.name).is_none(),
            source,
            now,
            jitter: self.random.f64() * JITTER,
        };
        let outcome = self.cache.take(packet.link, record, &origin);
        match outcome {
            Outcome::Refused(limit) => self.refuse(packet, record, limit, now),
            Outcome::Goodbye => self.ask_before_goodbye(packet.link, record, source, now),
            Outcome::New | Outcome::Refreshed | Outcome::Unknown => {}
        }
        outcome
    }

    /// Processes a pointer. It returns whether the record is used, and so do the functions below.
    fn take_pointer(&mut self, packet: &Packet<'_>, record: &Record, now: Duration) -> bool {
        let Data::Ptr(target) = &record.data else {
            return false;
        };
        let state = self.links.get(&packet.link);
        let browse = state.and_then(|state| state.browses.get(&record.name));
        if !browse.is_some_and(|browse| target.is_below(&browse.base)) {
            return false;
        }
        let outcome = self.keep(packet, record, self.is_preferred(target), now);
        match outcome {
            Outcome::New => {
                self.dirty.insert(target.clone());
                self.begin_service(packet, target, now);
            }
            Outcome::Refused(_) => return false,
            Outcome::Refreshed | Outcome::Goodbye | Outcome::Unknown => {}
        }
        true
    }

    fn begin_service(&mut self, packet: &Packet<'_>, name: &Name, now: Duration) {
        let (link, source) = (packet.link, packet.source.ip());
        let is_preferred = is_among(&self.preferred, name);
        let subscriptions = self.subscriptions.values().map(|s| &s.wanted);
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        let of_type =
            subscriptions.filter(|w| name.is_below(&w.base) && w.interfaces.uses(&state.link.name));
        let interval = of_type.filter_map(|w| w.verify).min();
        let service = state.services.entry(name.clone());
        let service = service.or_insert_with(|| {
            self.cache.adopt(link, name);
            LinkService::new(source, interval, now)
        });
        service.is_preferred = is_preferred;
        if std::mem::take(&mut service.is_lost) {
            state.resolve_anew(name, now);
        }
        state.look_at(now + RESOLVE_DELAY);
        // The other records of the service may have arrived before the pointer.
        if let Some(Data::Srv { target, .. }) = self.cache.latest(link, name, Kind::Srv).cloned() {
            let service = self.link_service(link, name);
            if service.is_some_and(|service| service.source.is_none()) {
                self.note_answer(packet, name, is_preferred, now);
            }
            self.moves_to(link, name, &target, now);
        }
        self.settle(link, name);
    }

    fn take_details(&mut self, packet: &Packet<'_>, record: &Record, now: Duration) -> bool {
        let link = packet.link;
        let state = self.links.get(&link);
        if state.is_none_or(|state| state.browses_of(&record.name).next().is_none()) {
            return false;
        }
        let is_preferred = self.is_preferred(&record.name);
        let outcome = self.keep(packet, record, is_preferred, now);
        if matches!(outcome, Outcome::Refused(_) | Outcome::Unknown) {
            return false;
        }
        self.details_changed(link, &record.name);
        if let (Data::Srv { target, .. }, false) = (&record.data, outcome == Outcome::Goodbye) {
            self.note_answer(packet, &record.name, is_preferred, now);
            self.moves_to(link, &record.name, target, now);
        }
        self.settle(link, &record.name);
        true
    }

    /// Ends the dispute about a service that has answered.
    fn note_answer(&mut self, packet: &Packet<'_>, name: &Name, is_preferred: bool, now: Duration) {
        let (link, source) = (packet.link, packet.source.ip());
        let jitter = self.between(CONFIRM_JITTER);
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        let stretch = state.stretch;
        let Some(service) = state.services.get_mut(name) else {
            return;
        };
        let was_lost = service.is_lost;
        service.note_answer(source, packet.family, now);
        service.jitter = jitter;
        let due = service.due(stretch);
        if is_preferred && service.is_of(source) {
            state.remember_host(source, now);
        }
        due.into_iter().for_each(|at| state.look_at(at));
        for (browsed, browse) in state.browses_of(name) {
            let key = Key::pointer(link, browsed);
            let is_subtype = *browsed != browse.base;
            if was_lost {
                self.cache.end_dispute(&key, name, is_subtype, now);
            } else if !is_subtype {
                // A question for its pointer would carry the known answers of all other services, and the service is
                // known to be present.
                self.cache.renew(&key, name, now);
            }
        }
        if was_lost {
            state.resolve_anew(name, now);
        }
    }

    /// Records the host of a service.
    fn moves_to(&mut self, link: u32, name: &Name, host: &Name, now: Duration) {
        let Some(service) = self.link_service(link, name) else {
            return;
        };
        let before = service.host.replace(host.clone());
        if let Some(before) = before.filter(|before| before != host) {
            self.leave_host(link, &before, name);
        }
        if let Some(state) = self.links.get_mut(&link) {
            let known = state.hosts.entry(host.clone());
            let known = known.or_insert_with(|| Host::new(now));
            // A host whose services were all lost is not asked for any more.
            let is_known = [Kind::A, Kind::Aaaa].map(|kind| self.cache.has(link, host, kind));
            if known.services.insert(name.clone()) && is_known == [false; 2] {
                let ask = || Series::new(now + RESOLVE_DELAY, MISSING_MAX);
                known.ask.get_or_insert_with(ask);
            }
            state.look_at(now + RESOLVE_DELAY);
        }
    }

    /// Ends the questions for records that have arrived.
    fn settle(&mut self, link: u32, name: &Name) {
        let is_whole =
            self.cache.has(link, name, Kind::Srv) && self.cache.has(link, name, Kind::Txt);
        if is_whole && let Some(service) = self.link_service(link, name) {
            service.resolve = None;
        }
    }

    fn take_addresses(&mut self, packet: &Packet<'_>, records: &[&Record], now: Duration) -> usize {
        let source = packet.source.ip();
        let state = self.links.get_mut(&packet.link);
        let first = records.first();
        let host = first.and_then(|first| state?.hosts.get_mut(&first.name));
        let Some(host) = host else {
            return 0;
        };
        let is_claim = |r: &&Record| r.ttl > 0 && r.data.address() == Some(source);
        if records.iter().any(is_claim) {
            host.claims.add(source, now);
        }
        let announced = records.iter().filter(|record| record.ttl > 0);
        for ip in announced.filter_map(|record| record.data.address()) {
            host.has_no.remove(&Family::of(ip));
            host.is_new = false;
        }
        let looked_at: Vec<Name> =
            (host.services.iter().take(PREFERRED_LOOKED_AT).cloned()).collect();
        self.steps += SERVICE_STEPS * looked_at.len();
        let is_preferred = looked_at.iter().any(|service| self.is_preferred(service));
        let (mut used, mut is_any_new) = (0, false);
        for record in records {
            if self.steps > PACKET_STEPS_MAX {
                break;
            }
            let outcome = self.keep(packet, record, is_preferred, now);
            used += usize::from(!matches!(outcome, Outcome::Refused(_)));
            is_any_new |= outcome == Outcome::New;
        }
        let state = self.links.get(&packet.link).filter(|_| is_any_new);
        if let Some(host) = first.and_then(|first| state?.hosts.get(&first.name)) {
            self.steps += SERVICE_STEPS * host.services.len();
            self.dirty.extend(host.services.iter().cloned());
        }
        used
    }
}
