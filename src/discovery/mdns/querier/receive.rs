//! Processes responses, and the queries of other hosts. Pure.
use super::{
    super::{
        cache::{Key, Origin, Outcome},
        link::{Families, Host, LinkService, RESOLVE_DELAY},
        message::{Data, Kind, Message, Question, Record},
        name::Name,
        schedule::Confirm,
        trace::{Ignored, Note},
    },
    state::{Packet, Querier, SEARCH_DELAY},
};
use std::{net::IpAddr, time::Duration};

/// The source port of valid responses (RFC 6762 6).
const PORT: u16 = 5353;
/// The most packets of one source in a second. A responder that answers for 300 services sends a hundred at once.
/// Beyond it: further packets of the same second are ignored.
const PACKETS_PER_SECOND: u32 = 2000;
/// The most sources that are counted in a second. Beyond it: packets of further sources are ignored in this second.
const SOURCES_MAX: usize = 1024;
/// The jitter of refresh questions in percent of the lifetime (RFC 6762 5.2).
const JITTER: f64 = 2.0;
/// The number of unanswered questions of other hosts after which a service is confirmed (RFC 6762 10.5). The next
/// constant is the time that they must span.
const UNANSWERED: u32 = 2;
const UNANSWERED_FOR: Duration = Duration::from_secs(10);
/// The time within which our own question must be due to be replaced by the question of another host.
const ASKED_FOR_US: Duration = Duration::from_secs(1);

/// The most services of a host that are checked when one of its addresses is to be admitted.
const PREFERRED_LOOKED_AT: usize = 16;

impl Querier {
    /// Processes a packet. Its effects are in the next turn.
    pub fn receive(&mut self, packet: &Packet<'_>, now: Duration) {
        self.counts.received += 1;
        let taken = self.take(packet, now);
        if let Err(reason) = taken {
            self.counts.ignore(reason);
            self.note(|| Note::Ignored(packet.source, reason));
        }
    }

    fn take(&mut self, packet: &Packet<'_>, now: Duration) -> Result<(), Ignored> {
        let source = packet.source.ip();
        let state = self.links.get_mut(&packet.link);
        let state = state.ok_or(Ignored::Interface)?;
        if (state.received.0 + Duration::from_secs(1)) <= now {
            state.received = (now, Default::default());
        }
        let sources = &mut state.received.1;
        if sources.len() >= SOURCES_MAX && !sources.contains_key(&source) {
            return Err(Ignored::TooMany);
        }
        let count = sources.entry(source).or_default();
        *count += 1;
        if *count > PACKETS_PER_SECOND {
            return Err(Ignored::TooMany);
        }
        // RFC 6762 11: a packet to the group is from the link whatever its source is, because no router forwards it.
        if !packet.is_multicast && !state.link.reaches(source) && !self.own.contains(&source) {
            return Err(Ignored::OffLink);
        }
        let message = Message::decode(packet.bytes).map_err(|_| Ignored::Malformed)?;
        if packet.source.port() != PORT {
            return Err(match message.is_response {
                true => Ignored::SourcePort,
                // A simple resolver sent the query, and is answered by unicast (RFC 6762 6.7).
                false => Ignored::OtherQuery,
            });
        }
        self.search_soon(packet.link, source, now);
        match message.is_response {
            true => self.take_response(packet, &message, now),
            false if self.own.contains(&source) => Ok(()),
            false => self.take_query(packet.link, &message, now),
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
        let is_lost = |i: &LinkService| i.is_lost && i.source == Some(source);
        if state.services.values().any(is_lost) {
            search.search_soon(now, wait);
            let next = search.next;
            state.look_at(next);
        }
    }

    fn take_response(
        &mut self,
        packet: &Packet<'_>,
        message: &Message,
        now: Duration,
    ) -> Result<(), Ignored> {
        // Pointers determine which services are used, and services which hosts.
        let rank = |record: &&Record| match record.data.kind() {
            Kind::Ptr => 0,
            Kind::Srv => 1,
            Kind::Txt => 2,
            Kind::A | Kind::Aaaa => 3,
            Kind::Nsec => 4,
        };
        let mut records: Vec<&Record> = message.records.iter().collect();
        records.sort_by_key(rank);
        let mut used = 0;
        for record in records {
            used += usize::from(match record.data.kind() {
                Kind::Ptr => self.take_pointer(packet, record, now),
                Kind::Srv | Kind::Txt => self.take_details(packet, record, now),
                Kind::A | Kind::Aaaa => self.take_address(packet, record, now),
                Kind::Nsec => self.take_denial(packet.link, record),
            });
        }
        self.counts.unused += message.records.len() - used;
        self.note(|| Note::Received(packet.source, message.records.clone(), used));
        Ok(())
    }

    /// Returns whether a record belongs to a service that has an Instance.
    fn is_preferred(&self, link: u32, record: &Record) -> bool {
        let has = |name: &Name| {
            let text = name.text();
            text.is_some_and(|text| self.preferred.contains(&text.to_ascii_lowercase()))
        };
        match &record.data {
            _ if self.preferred.is_empty() => false,
            Data::Ptr(target) => has(target),
            Data::Srv { .. } | Data::Txt(_) => has(&record.name),
            Data::A(_) | Data::Aaaa(_) | Data::Nsec(_) => {
                let state = self.links.get(&link);
                let host = state.and_then(|state| state.hosts.get(&record.name));
                host.is_some_and(|h| h.services.iter().take(PREFERRED_LOOKED_AT).any(has))
            }
        }
    }

    fn keep(&mut self, packet: &Packet<'_>, record: &Record, now: Duration) -> Outcome {
        let origin = Origin {
            is_preferred: self.is_preferred(packet.link, record),
            source: packet.source.ip(),
            now,
            jitter: self.random.f64() * JITTER,
        };
        let outcome = self.cache.take(packet.link, record, &origin);
        if outcome == Outcome::Refused {
            self.counts.refused += 1;
            self.note(|| Note::Refused(record.name.clone(), record.data.kind()));
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
        let outcome = self.keep(packet, record, now);
        match outcome {
            Outcome::New => {
                self.dirty.insert(target.clone());
                self.begin_instance(packet.link, target, now);
            }
            Outcome::Refused => self.leave_out(&record.name, now),
            Outcome::Refreshed | Outcome::Goodbye | Outcome::Unknown => {}
        }
        outcome != Outcome::Refused
    }

    fn leave_out(&mut self, browsed: &Name, now: Duration) {
        let subscriptions = self.subscriptions.values_mut();
        for subscription in subscriptions.filter(|s| s.wanted.browsed == *browsed) {
            subscription.left_out = Some(now);
        }
    }

    fn begin_instance(&mut self, link: u32, name: &Name, now: Duration) {
        let subscriptions = self.subscriptions.values().map(|s| &s.wanted);
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        let of_type =
            subscriptions.filter(|w| name.is_below(&w.base) && w.interfaces.uses(&state.link.name));
        let interval = of_type.filter_map(|w| w.verify).min();
        let service = state.services.entry(name.clone());
        let service = service.or_insert_with(|| LinkService::new(now, interval));
        if std::mem::take(&mut service.is_lost) {
            state.resolve_anew(name, now);
        }
        state.look_at(now + RESOLVE_DELAY);
        // The other records of the service may have arrived before the pointer.
        if let Some(Data::Srv { target, .. }) = self.cache.latest(link, name, Kind::Srv).cloned() {
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
        let outcome = self.keep(packet, record, now);
        if matches!(outcome, Outcome::Refused | Outcome::Unknown) {
            return false;
        }
        self.dirty.insert(record.name.clone());
        if let (Data::Srv { target, .. }, false) = (&record.data, outcome == Outcome::Goodbye) {
            self.note_answer(packet, &record.name, now);
            self.moves_to(link, &record.name, target, now);
        }
        self.settle(link, &record.name);
        true
    }

    /// Ends the dispute about a service that has answered.
    fn note_answer(&mut self, packet: &Packet<'_>, name: &Name, now: Duration) {
        let (link, source) = (packet.link, packet.source.ip());
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        let stretch = state.stretch;
        let Some(service) = state.services.get_mut(name) else {
            return;
        };
        let was_lost = service.is_lost;
        service.note_answer(source, packet.family, now);
        let due = service.due(stretch);
        due.into_iter().for_each(|at| state.look_at(at));
        for (browsed, browse) in state.browses_of(name) {
            let key = Key::pointer(link, browsed);
            if was_lost {
                self.cache.end_dispute(&key, name, now);
            } else if *browsed == browse.base {
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
            known.services.insert(name.clone());
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

    fn take_address(&mut self, packet: &Packet<'_>, record: &Record, now: Duration) -> bool {
        let state = self.links.get_mut(&packet.link);
        let Some(host) = state.and_then(|state| state.hosts.get_mut(&record.name)) else {
            return false;
        };
        let source = packet.source.ip();
        if record.ttl > 0 && record.data.address() == Some(source) {
            host.claims.add(source, now);
        }
        let services = host.services.clone();
        let outcome = self.keep(packet, record, now);
        if outcome == Outcome::New {
            self.dirty.extend(services);
        }
        outcome != Outcome::Refused
    }

    /// Records the address families that do not exist (RFC 6762 6.1).
    fn take_denial(&mut self, link: u32, record: &Record) -> bool {
        let Data::Nsec(kinds) = &record.data else {
            return false;
        };
        let state = self.links.get_mut(&link);
        let Some(host) = state.and_then(|state| state.hosts.get_mut(&record.name)) else {
            return false;
        };
        host.has_no = Families {
            v4: !kinds.contains(&Kind::A),
            v6: !kinds.contains(&Kind::Aaaa),
        };
        true
    }

    /// Processes the questions of another host. A question may replace our own (RFC 6762 7.3), or show that a service
    /// does not answer (10.5).
    fn take_query(&mut self, link: u32, message: &Message, now: Duration) -> Result<(), Ignored> {
        for question in &message.questions {
            if question.wants_unicast {
                continue; // Its answer goes to the other host alone.
            }
            match question.kind {
                Some(Kind::Ptr) if !message.is_truncated => {
                    self.others_browse(link, &question.name, message, now);
                }
                Some(Kind::Srv) => self.others_resolve(link, question, now),
                _ if question.is_any => self.others_resolve(link, question, now),
                _ => {}
            }
        }
        Ok(())
    }

    fn others_browse(&mut self, link: u32, name: &Name, message: &Message, now: Duration) {
        let of_name = message.records.iter().filter(|r| r.name == *name);
        // A responder leaves out the known answers of that host, which may be missing here.
        let mut targets = of_name.filter_map(|r| match &r.data {
            Data::Ptr(target) => Some(target),
            Data::A(_) | Data::Aaaa(_) | Data::Srv { .. } | Data::Txt(_) | Data::Nsec(_) => None,
        });
        if targets.any(|target| !self.cache.points(link, name, target)) {
            return;
        }
        let state = self.links.get_mut(&link);
        let browse = state.and_then(|state| state.browses.get_mut(name));
        if let Some(browse) = browse
            && browse.series.next <= now + ASKED_FOR_US
        {
            browse.series.asked(now);
            self.counts.suppressed += 1;
        }
    }

    fn others_resolve(&mut self, link: u32, question: &Question, now: Duration) {
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        let stretch = state.stretch;
        let Some(service) = state.services.get_mut(&question.name) else {
            return;
        };
        let (since, count) = service.unanswered.unwrap_or((now, 0));
        service.unanswered = Some((since, count + 1));
        let is_unanswered = count + 1 >= UNANSWERED && since + UNANSWERED_FOR <= now;
        let may_confirm = service.may_confirm(stretch, now);
        match &mut service.confirm {
            Some(confirm) if confirm.is_due(now + ASKED_FOR_US) => confirm.asked(now),
            Some(_) => return,
            None if may_confirm => {
                let mut confirm = Confirm::new(now);
                confirm.asked(now);
                service.confirm = Some(confirm);
            }
            None if is_unanswered && !service.is_lost => {
                service.confirm = Some(Confirm::new(now));
                state.look_at(now);
                return;
            }
            None => return,
        }
        let due = service.due(stretch);
        due.into_iter().for_each(|at| state.look_at(at));
        self.counts.suppressed += 1;
    }
}
