//! Writes the questions that are due, in as few packets as possible. Pure.
use super::{
    super::{
        cache::Cache,
        link::{Families, Family, LinkService, LinkState, MOVED_ASKED, TXT_ASKED},
        name::Name,
        pace::{HELD_FOR, Purse, Space},
        query::{Ask, KnownAnswer, PACKET_MAX, queries},
        record::{Data, Kind},
        schedule::Confirm,
        trace::Note,
    },
    state::{Outgoing, Querier},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The bytes of a question without the first label of its name: the label's length, a pointer, type and class.
const QUESTION_BYTES: usize = 7;
/// The bytes of a question after its name, and those of a known answer without the first label of its target.
const TYPE_AND_CLASS: usize = 4;
const KNOWN_BYTES: usize = 14;
/// The most bytes of the questions of one round of confirmations; 8 packets hold them.
const ROUND_BYTES: usize = 8 * (PACKET_MAX - 40);
/// The most lost services that are asked for by name.
const LOST_BY_NAME: usize = 20;
/// The number of questions of a confirmation after which both families are used, and the type is asked for too, because
/// some responders answer nothing else.
const CONFIRM_BY_NAME: usize = 2;

/// The families by which a question is sent, and its unicast bit.
#[derive(Debug, Clone, Copy, Default)]
struct Manner {
    families: Families,
    wants_unicast: bool,
}

/// The questions that are due on one interface, and the known answers to them.
struct Agenda {
    space: Space,
    questions: BTreeMap<(Name, Kind), Manner>,
    /// The services that are being confirmed. They are not sent as known answers.
    unconfirmed: BTreeSet<Name>,
    known: Vec<KnownAnswer>,
}

impl Agenda {
    /// Adds a question. Returns false if the pace does not let it out: then it does not count as asked.
    fn add(&mut self, name: &Name, kind: Kind, families: Families, purse: Purse) -> bool {
        let key = (name.clone(), kind);
        let is_new = !self.questions.contains_key(&key);
        if is_new && !self.space.take(name.wire_len() + TYPE_AND_CLASS, purse) {
            return false;
        }
        let manner = self.questions.entry(key).or_default();
        manner.families = manner.families.union(families);
        manner.wants_unicast = false;
        true
    }

    /// Adds the known answers. Those that the pace does not let out are given again by their responders.
    fn add_known(&mut self, state: &LinkState, cache: &Cache, now: Duration) {
        let asked = self.questions.keys().filter(|(_, kind)| *kind == Kind::Ptr);
        for (name, _) in asked {
            let answers = known_answers(cache, state.link.index, name, now);
            let answers = answers.filter(|k| !self.unconfirmed.contains(&k.target));
            self.known.extend(answers);
        }
        let space = &mut self.space;
        self.known.retain(|answer| {
            let bytes = answer
                .target
                .wire_len()
                .saturating_sub(answer.name.wire_len());
            let purse = state.services.get(&answer.target).map(LinkService::purse);
            purse.is_some_and(|purse| space.take(bytes + KNOWN_BYTES, purse))
        });
    }

    fn packets(&self, family: Family) -> Vec<Vec<u8>> {
        let (mut pointers, mut others, mut known) = (vec![], vec![], vec![]);
        for ((name, kind), manner) in &self.questions {
            if !manner.families.has(family) {
                continue;
            }
            let ask = Ask {
                name: name.clone(),
                kind: *kind,
                wants_unicast: manner.wants_unicast,
            };
            if *kind == Kind::Ptr {
                pointers.push(ask);
                known.extend(self.known.iter().filter(|k| k.name == *name).cloned());
            } else {
                others.push(ask);
            }
        }
        if known.is_empty() {
            pointers.extend(others);
            return queries(&pointers, &[]);
        }
        let mut packets = queries(&pointers, &known);
        packets.extend(queries(&others, &[]));
        packets
    }
}

/// Returns the pointers that have more than half of their lifetime left (RFC 6762 7.1). Disputed ones are left out
/// (10.4), because a correct responder would not answer for them.
fn known_answers<'a>(
    cache: &'a Cache,
    link: u32,
    name: &'a Name,
    now: Duration,
) -> impl Iterator<Item = KnownAnswer> + use<'a> {
    let set = cache.set(link, name, Kind::Ptr);
    set.filter_map(move |(data, entry)| {
        let left = entry.expires.saturating_sub(now);
        match data {
            Data::Ptr(target) if left > entry.ttl / 2 && entry.refreshes == 0 => {
                Some(KnownAnswer {
                    name: name.clone(),
                    target: target.clone(),
                    ttl: u32::try_from(left.as_secs()).unwrap_or(u32::MAX),
                })
            }
            Data::A(_)
            | Data::Aaaa(_)
            | Data::Ptr(_)
            | Data::Srv { .. }
            | Data::Txt(_)
            | Data::Nsec(_) => None,
        }
    })
}

impl Querier {
    /// Flushes the services that did not answer.
    pub(super) fn give_up(&mut self, now: Duration) {
        let mut lost = vec![];
        for (index, state) in &self.links {
            if state.due.is_none_or(|due| due > now) {
                continue;
            }
            let failed = |i: &LinkService| i.confirm.as_ref().is_some_and(|c| c.has_failed(now));
            let failed = state.services.iter().filter(|(_, i)| failed(i));
            lost.extend(failed.map(|(name, _)| (*index, name.clone())));
        }
        for (index, name) in lost {
            self.lose(index, &name, now);
        }
    }

    pub(super) fn ask(&mut self, now: Duration) -> Vec<Outgoing> {
        let mut send = vec![];
        let due = |state: &LinkState| state.due.is_some_and(|due| due <= now);
        let due: Vec<u32> = (self.links.iter())
            .filter(|(_, state)| due(state))
            .map(|(index, _)| *index)
            .collect();
        for index in due {
            self.ask_on(index, now, &mut send);
        }
        self.counts.sent += send.len();
        send
    }

    fn ask_on(&mut self, index: u32, now: Duration, send: &mut Vec<Outgoing>) {
        let first = Manner {
            families: Families::BOTH,
            wants_unicast: self.asks_for_unicast,
        };
        let Some(state) = self.links.get_mut(&index) else {
            return;
        };
        let families = state.families();
        let count = usize::from(families.v4) + usize::from(families.v6);
        state.stretch = stretch(state);
        let mut agenda = Agenda {
            space: state.pace.space(now, count),
            questions: BTreeMap::new(),
            unconfirmed: BTreeSet::new(),
            known: vec![],
        };
        ask_browses(state, &mut agenda, first, now);
        let asked = ask_services(state, &self.cache, &mut agenda, now);
        self.dirty.extend(asked);
        let asked = ask_hosts(state, &self.cache, &mut agenda, now);
        self.dirty.extend(asked);
        search(state, &mut agenda, now);
        ask_again(state, &mut self.cache, &mut agenda, now);
        state.due = next(state);
        if agenda.space.has_held {
            state.held_until = now + HELD_FOR;
            state.due = Some(state.held_until);
        }
        agenda.add_known(state, &self.cache, now);
        let mut packets = 0;
        for family in [Family::V4, Family::V6] {
            if families.has(family) {
                for bytes in agenda.packets(family) {
                    packets += 1;
                    send.push(Outgoing {
                        link: index,
                        family,
                        bytes,
                    });
                }
            }
        }
        state.pace.sent(packets);
        if !agenda.questions.is_empty() {
            let link = state.link.name.clone();
            self.note(|| Note::Asked(link, agenda.questions.into_keys().collect()));
        }
    }
}

fn stretch(state: &LinkState) -> f64 {
    let own = |name: &Name| name.labels().next().map_or(0, <[u8]>::len) + QUESTION_BYTES;
    let bytes: usize = state.services.keys().map(own).sum();
    let bytes = u32::try_from(bytes).map_or(f64::MAX, f64::from);
    let round = u32::try_from(ROUND_BYTES).map_or(f64::MAX, f64::from);
    (bytes / round).max(1.0)
}

/// Asks for the types that are browsed. Only the first question may be answered by unicast (RFC 6762 5.4).
fn ask_browses(state: &mut LinkState, agenda: &mut Agenda, first: Manner, now: Duration) {
    let later = Manner {
        wants_unicast: false,
        ..first
    };
    for (name, browse) in &mut state.browses {
        if browse.series.is_due(now) && agenda.add(name, Kind::Ptr, first.families, Purse::Whole) {
            let is_first = browse.series.sent == 0;
            browse.series.asked(now);
            let manner = if is_first { first } else { later };
            agenda.questions.insert((name.clone(), Kind::Ptr), manner);
        }
    }
}

/// Returns the services that count without a TXT record from now on.
fn ask_services(
    state: &mut LinkState,
    cache: &Cache,
    agenda: &mut Agenda,
    now: Duration,
) -> Vec<Name> {
    let (link, stretch) = (state.link.index, state.stretch);
    let is_round = state
        .services
        .values()
        .any(|i| i.is_to_confirm(stretch, now));
    let (mut by_type, mut asked) = (vec![], vec![]);
    let waits = |service: &LinkService| service.confirm.is_some();
    for (name, service) in &mut state.services {
        let purse = service.purse();
        if let Some(resolve) = service.resolve.as_mut().filter(|r| r.is_due(now)) {
            let mut missing = [Kind::Srv, Kind::Txt]
                .into_iter()
                .filter(|k| !cache.has(link, name, *k));
            if missing.all(|kind| agenda.add(name, kind, Families::BOTH, purse)) {
                resolve.asked(now);
                if resolve.sent == TXT_ASKED {
                    asked.push(name.clone());
                }
            }
        }
        if is_round && service.may_confirm(stretch, now) {
            service.confirm = Some(Confirm::new(now));
        }
        let families = service.families;
        if let Some(confirm) = service.confirm.as_mut().filter(|c| c.is_due(now)) {
            let is_last_try = confirm.sent() >= CONFIRM_BY_NAME;
            let families = match confirm.sent() {
                0 => families.first(),
                _ => Families::BOTH,
            };
            if !agenda.add(name, Kind::Srv, families, purse) {
                continue;
            }
            confirm.asked(now);
            if is_last_try {
                by_type.push((name.clone(), purse));
            }
        }
    }
    let unconfirmed = state.services.iter().filter(|(_, i)| waits(i));
    (agenda.unconfirmed).extend(unconfirmed.map(|(name, _)| name.clone()));
    for (name, purse) in by_type {
        for (browsed, _) in state.browses_of(&name) {
            agenda.add(browsed, Kind::Ptr, Families::BOTH, purse);
        }
    }
    asked
}

/// Returns the services of the hosts whose addresses were asked for in vain.
fn ask_hosts(
    state: &mut LinkState,
    cache: &Cache,
    agenda: &mut Agenda,
    now: Duration,
) -> Vec<Name> {
    let mut in_vain = vec![];
    let link = state.link.index;
    let services = &state.services;
    for (name, host) in &mut state.hosts {
        if host.ask.as_ref().is_none_or(|ask| !ask.is_due(now)) {
            continue;
        }
        let known = Families {
            v4: cache.has(link, name, Kind::A),
            v6: cache.has(link, name, Kind::Aaaa),
        };
        let missing = host.missing(known, now);
        let kinds = [(Kind::A, missing.v4), (Kind::Aaaa, missing.v6)];
        let mut kinds = kinds.into_iter().filter(|(_, is_missing)| *is_missing);
        // The questions begin anew when one of the services returns.
        let present = host.services.iter().filter_map(|name| services.get(name));
        let purse = present.filter(|i| !i.is_lost).map(LinkService::purse).min();
        let Some(purse) = purse.filter(|_| missing.v4 || missing.v6) else {
            host.ask = None;
            continue;
        };
        let is_asked = kinds.all(|(kind, _)| agenda.add(name, kind, Families::BOTH, purse));
        if let Some(ask) = host.ask.as_mut().filter(|_| is_asked) {
            ask.asked(now);
            if ask.sent == MOVED_ASKED {
                in_vain.extend(host.services.iter().cloned());
            }
        }
    }
    in_vain
}

/// Adds the questions that search for the services that did not answer.
fn search(state: &mut LinkState, agenda: &mut Agenda, now: Duration) {
    let Some(search) = state.search.as_mut().filter(|s| s.is_due(now)) else {
        return;
    };
    search.asked(now);
    let lost = state.services.iter().filter(|(_, i)| i.is_lost);
    let lost: Vec<(&Name, Purse)> = lost.map(|(name, i)| (name, i.purse())).collect();
    if lost.is_empty() || search.has_ended(now) {
        state.search = None;
        return;
    }
    // Only a few lost services are asked for by name, which not all responders answer; all are asked for by type.
    let are_many = lost.len() > LOST_BY_NAME;
    for (name, purse) in lost {
        for (browsed, _) in state.browses_of(name) {
            agenda.add(browsed, Kind::Ptr, Families::BOTH, purse);
        }
        if !are_many {
            agenda.add(name, Kind::Srv, Families::BOTH, purse);
            agenda.add(name, Kind::Txt, Families::BOTH, purse);
        }
    }
}

/// Adds the questions for records that are about to expire, or were withdrawn. Those that the pace holds back wait.
fn ask_again(state: &mut LinkState, cache: &mut Cache, agenda: &mut Agenda, now: Duration) {
    let link = state.link.index;
    state.refresh.retain(|(name, kind), purse| {
        let is_asked = agenda.add(name, *kind, Families::BOTH, *purse);
        if is_asked {
            cache.asked(link, name, *kind, now);
        }
        !is_asked
    });
}

/// Returns the time of the next question, or of the next failure of a confirmation.
fn next(state: &LinkState) -> Option<Duration> {
    let browses = state.browses.values().map(|browse| browse.series.next);
    let services = state.services.values();
    let services = services.filter_map(|service| service.due(state.stretch));
    let hosts = state.hosts.values().filter_map(|host| host.ask.as_ref());
    let hosts = hosts.map(|ask| ask.next);
    let search = state.search.as_ref().map(|search| search.next);
    browses.chain(services).chain(hosts).chain(search).min()
}
