//! Simulates real responders. Each has habits, and some of these violate the RFC.
use super::{
    super::super::message::{Message, Question},
    *,
};
use std::net::Ipv4Addr;

/// The habits of one kind of responder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Habits {
    /// Sends the other records of a service along with an answer.
    pub(super) additionals: bool,
    /// Sets the cache-flush bit.
    pub(super) flushes: bool,
    /// Does not answer a question that has the answer as a known answer (RFC 6762 7.1).
    pub(super) suppresses: bool,
    /// Answers by unicast.
    pub(super) unicast: bool,
    /// Repeats no record within a second (RFC 6762 6).
    pub(super) paces: bool,
    /// Writes names in upper case in its answers.
    pub(super) upper_case: bool,
    /// Sends a packet for each record.
    pub(super) splits: bool,
    /// Answers only questions for its type.
    pub(super) knows_only_types: bool,
    /// Denies the address family that it does not have (RFC 6762 6.1).
    pub(super) denies: bool,
    /// Has no TXT records, which RFC 6763 6 requires.
    pub(super) lacks_txt: bool,
    pub(super) host_ttl: u32,
    pub(super) other_ttl: u32,
    pub(super) delay: u64,
}

pub(super) const USUAL: Habits = Habits {
    additionals: true,
    flushes: true,
    suppresses: true,
    unicast: false,
    paces: true,
    upper_case: false,
    splits: false,
    knows_only_types: false,
    denies: false,
    lacks_txt: false,
    host_ttl: 120,
    other_ttl: 4500,
    delay: 20,
};

/// The habits of twelve kinds of responder.
pub(super) const KINDS: [Habits; 12] = [
    USUAL,
    Habits {
        denies: true,
        ..USUAL
    },
    Habits {
        additionals: false,
        ..USUAL
    },
    Habits {
        flushes: false,
        ..USUAL
    },
    Habits {
        flushes: false,
        additionals: false,
        paces: false,
        ..USUAL
    },
    Habits {
        unicast: true,
        suppresses: false,
        ..USUAL
    },
    Habits {
        upper_case: true,
        ..USUAL
    },
    Habits {
        splits: true,
        delay: 110,
        ..USUAL
    },
    Habits {
        host_ttl: 10,
        other_ttl: 10,
        ..USUAL
    },
    Habits {
        host_ttl: 60,
        other_ttl: 120,
        additionals: false,
        ..USUAL
    },
    Habits {
        knows_only_types: true,
        ..USUAL
    },
    Habits {
        suppresses: false,
        paces: false,
        other_ttl: 75 * 60,
        host_ttl: 75 * 60,
        delay: 500,
        ..USUAL
    },
];

pub(super) struct Responder {
    pub(super) habits: Habits,
    pub(super) address: Ipv4Addr,
    pub(super) services: Vec<Name>,
    pub(super) is_alive: bool,
    sent: BTreeMap<(Name, Kind), Duration>,
}

impl Responder {
    pub(super) fn new(habits: Habits, last: u8, services: &[&str]) -> Self {
        Self {
            habits,
            address: [10, 0, 0, last].into(),
            services: services.iter().map(|label| instance(label)).collect(),
            is_alive: true,
            sent: BTreeMap::new(),
        }
    }

    /// Returns the names that it may answer for.
    pub(super) fn names(&self) -> Vec<Name> {
        let mut names = self.services.clone();
        names.extend([self.host(), named(TYPE)]);
        names
    }

    fn host(&self) -> Name {
        let [.., last] = self.address.octets();
        named(&format!("host-{last}.local"))
    }

    fn records_of(&self, name: &Name, kind: Kind) -> Record {
        let data = match kind {
            Kind::Ptr => Data::Ptr(name.clone()),
            Kind::Srv => srv(&self.host().text().unwrap(), 80),
            Kind::Txt => Data::Txt(Arc::from(*b"\x03a=b")),
            Kind::A => Data::A(self.address),
            Kind::Aaaa | Kind::Nsec => Data::Nsec(vec![Kind::A]),
        };
        let owner = match kind {
            Kind::Ptr => named(TYPE),
            Kind::Srv | Kind::Txt => name.clone(),
            Kind::A | Kind::Aaaa | Kind::Nsec => self.host(),
        };
        let ttl = match kind {
            Kind::Ptr | Kind::Txt => self.habits.other_ttl,
            Kind::Srv | Kind::A | Kind::Aaaa | Kind::Nsec => self.habits.host_ttl,
        };
        Record {
            flush: self.habits.flushes && kind != Kind::Ptr,
            ..record(&owner, ttl, data)
        }
    }

    /// Returns its complete announcement.
    pub(super) fn announcement(&self, ttl: Option<u32>) -> Vec<Vec<u8>> {
        let mut records: Vec<Record> = self.services.iter().flat_map(|s| self.all_of(s)).collect();
        if let Some(ttl) = ttl {
            records.iter_mut().for_each(|record| record.ttl = ttl);
        }
        self.packets(&records)
    }

    fn all_of(&self, name: &Name) -> Vec<Record> {
        let kinds = [Kind::Ptr, Kind::Srv, Kind::Txt, Kind::A].into_iter();
        let kinds = kinds.filter(|kind| self.has(*kind));
        kinds.map(|kind| self.records_of(name, kind)).collect()
    }

    fn has(&self, kind: Kind) -> bool {
        kind != Kind::Txt || !self.habits.lacks_txt
    }

    fn packets(&self, records: &[Record]) -> Vec<Vec<u8>> {
        let each = if self.habits.splits { 1 } else { 24 };
        let mut packets: Vec<Vec<u8>> = records.chunks(each).map(response).collect();
        if self.habits.upper_case {
            // Lengths and types are below the letters, and so are all numbers here, so they are not changed.
            packets.iter_mut().for_each(|p| p.make_ascii_uppercase());
        }
        packets
    }

    /// Returns the answers to a query.
    pub(super) fn answer(
        &mut self,
        questions: &[&Question],
        query: &Message,
        now: Duration,
    ) -> Vec<Vec<u8>> {
        let (kind_name, host) = (named(TYPE), self.host());
        let mut records: Vec<Record> = vec![];
        let mut add = |record: Record| {
            if !records.contains(&record) {
                records.push(record);
            }
        };
        for question in questions {
            let Some(kind) = question.kind else { continue };
            for name in &self.services {
                let is_of_type = kind == Kind::Ptr && question.name == kind_name;
                let is_of_name = question.name == *name && !self.habits.knows_only_types;
                let is_of_host = question.name == host && !self.habits.knows_only_types;
                let answers: Vec<Kind> = match kind {
                    Kind::Ptr if is_of_type && !self.is_known(query, name) => {
                        if self.habits.additionals {
                            vec![Kind::Ptr, Kind::Srv, Kind::Txt, Kind::A]
                        } else {
                            vec![Kind::Ptr]
                        }
                    }
                    Kind::Srv if is_of_name && self.habits.additionals => vec![Kind::Srv, Kind::A],
                    Kind::Srv | Kind::Txt if is_of_name => vec![kind],
                    Kind::A if is_of_host => vec![Kind::A],
                    Kind::Aaaa if is_of_host && self.habits.denies => vec![Kind::Nsec],
                    Kind::A | Kind::Aaaa | Kind::Ptr | Kind::Srv | Kind::Txt | Kind::Nsec => vec![],
                };
                for kind in answers {
                    if !self.has(kind) {
                        continue;
                    }
                    let key = (name.clone(), kind);
                    let last = self.sent.get(&key).filter(|_| self.habits.paces);
                    if last.is_none_or(|last| *last + ms(1000) <= now) {
                        self.sent.insert(key, now);
                        add(self.records_of(name, kind));
                    }
                }
            }
        }
        if records.is_empty() {
            vec![]
        } else {
            self.packets(&records)
        }
    }

    fn is_known(&self, query: &Message, name: &Name) -> bool {
        let known = query.records.iter().any(|record| {
            record.data == Data::Ptr(name.clone()) && record.ttl >= self.habits.other_ttl / 2
        });
        known && self.habits.suppresses
    }
}
