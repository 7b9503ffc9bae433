//! Describes the conversation in words, for logs, and in numbers, for metrics. Pure.
use super::{
    name::Name,
    record::{Kind, Record},
};
use std::{collections::BTreeMap, fmt, net::SocketAddr};

/// The most records of a packet that are kept and shown.
pub(crate) const RECORDS_SHOWN: usize = 12;

/// The reason that a packet was ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ignored {
    /// The packet came by an interface that is not used.
    Interface,
    /// The packet is not a message of multicast DNS, or exceeds a bound of one.
    Malformed,
    /// The packet is a response that was not sent from port 5353 (RFC 6762 6).
    SourcePort,
    /// The packet was sent by unicast from a host that is on no network of the interface (RFC 6762 11).
    OffLink,
    /// The packet is a response by unicast, and no question was sent lately.
    Unasked,
    /// Hosts like its source cause too much work.
    TooMany,
    /// The packet is a query to this host alone, or one of a simple resolver.
    OtherQuery,
}

impl Ignored {
    /// All reasons.
    pub const ALL: [Self; 7] = [
        Self::Interface,
        Self::Malformed,
        Self::SourcePort,
        Self::OffLink,
        Self::Unasked,
        Self::TooMany,
        Self::OtherQuery,
    ];

    /// Returns the label of a metric.
    pub fn label(self) -> &'static str {
        match self {
            Self::Interface => "interface",
            Self::Malformed => "malformed",
            Self::SourcePort => "source_port",
            Self::OffLink => "off_link",
            Self::Unasked => "unasked",
            Self::TooMany => "rate",
            Self::OtherQuery => "other_query",
        }
    }
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interface => "it came by an interface that no subscription uses",
            Self::Malformed => "it is not a message of multicast DNS",
            Self::SourcePort => "it is a response that was not sent from port 5353",
            Self::OffLink => "it was sent by a host outside the networks of the interface",
            Self::Unasked => "it is a response by unicast, and no question was sent lately",
            Self::TooMany => "the packets of hosts like its source cause too much work",
            Self::OtherQuery => {
                "it is a query to this host alone, or one that is answered by unicast"
            }
        })
    }
}

/// One event of the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The questions that were sent on an interface.
    Asked(String, Vec<(Name, Kind)>),
    /// A response.
    Received {
        /// The sender.
        source: SocketAddr,
        /// The first records.
        first: Vec<Record>,
        /// The number of all records.
        count: usize,
        /// The number of records that a subscription can use.
        used: usize,
    },
    /// A packet was ignored.
    Ignored(SocketAddr, Ignored),
    /// A record exceeds the limits of the cache.
    Refused(Name, Kind),
    /// A service was withdrawn, or did not answer.
    Lost(Name),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked(link, questions) => {
                write!(f, "asked on {link}:")?;
                let questions = questions
                    .iter()
                    .map(|(name, kind)| format!(" {kind} {name}"));
                let count = questions.len();
                list(f, questions, count)
            }
            Self::Received {
                source,
                first,
                count,
                used,
            } => {
                write!(f, "{source} answered, {used} of {count} records of use:")?;
                let records = first.iter().map(|record| {
                    let kind = record.data.kind();
                    format!(" {kind} {} ttl {}", record.name, record.ttl)
                });
                list(f, records, *count)
            }
            Self::Ignored(source, reason) => write!(f, "ignored a packet from {source}: {reason}"),
            Self::Refused(name, kind) => write!(
                f,
                "left out {kind} {name}: the limit of records is reached, of this name, of its source, or in total"
            ),
            Self::Lost(name) => {
                write!(
                    f,
                    "{name} was withdrawn or did not answer: it counts as gone, and is searched for"
                )
            }
        }
    }
}

fn list(
    f: &mut fmt::Formatter<'_>,
    items: impl Iterator<Item = String>,
    count: usize,
) -> fmt::Result {
    for (n, item) in items.take(RECORDS_SHOWN).enumerate() {
        f.write_str(if n > 0 { "," } else { "" })?;
        f.write_str(&item)?;
    }
    match count.checked_sub(RECORDS_SHOWN) {
        Some(more @ 1..) => write!(f, ", and {more} more"),
        _ => Ok(()),
    }
}

/// What a querier has counted since its start, and what its cache holds now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// The packets that were received, with those that were ignored.
    pub received: usize,
    /// The packets that were sent.
    pub sent: usize,
    /// The received packets that were ignored, by reason.
    pub ignored: BTreeMap<Ignored, usize>,
    /// The records that exceeded the limits of the cache.
    pub refused: usize,
    /// The records in the cache.
    pub records: usize,
    /// The bytes of the names and data of these records.
    pub bytes: usize,
}

impl Counts {
    /// Returns what was counted after `before`. What the cache holds is as in `self`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let ignored = self.ignored.iter().map(|(reason, count)| {
            let known = before.ignored.get(reason).copied().unwrap_or_default();
            (*reason, count - known)
        });
        Self {
            received: self.received - before.received,
            sent: self.sent - before.sent,
            ignored: ignored.collect(),
            refused: self.refused - before.refused,
            records: self.records,
            bytes: self.bytes,
        }
    }

    pub(crate) fn ignore(&mut self, reason: Ignored) {
        *self.ignored.entry(reason).or_default() += 1;
    }
}
