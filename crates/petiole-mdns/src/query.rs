//! Writes questions and known answers into packets. Pure.
use super::{
    message::{CLASS_IN, FLAG_TRUNCATED, TOP_BIT},
    name::Name,
    record::Kind,
};
use std::collections::BTreeMap;

/// The size limit of a packet, in bytes. It fits into an Ethernet frame with the headers of IPv6 and UDP (RFC 6762 17).
pub const PACKET_MAX: usize = 1440;
const HEADER: usize = 12;
/// The two top bits of a pointer (RFC 1035 4.1.4).
const POINTER: u16 = 0xc000;
const POINTED_MAX: u16 = 0x4000;

/// A question to be asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ask {
    pub name: Name,
    pub kind: Kind,
    pub wants_unicast: bool,
}

/// A pointer from `name` to `target` that responders need not repeat (RFC 6762 7.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownAnswer {
    pub name: Name,
    pub target: Name,
    /// The remaining lifetime in seconds.
    pub ttl: u32,
}

/// Returns the packets that ask these questions. Known answers that do not fit follow in separate packets, and all but
/// the last of these are marked as truncated (RFC 6762 7.2).
pub(crate) fn queries(questions: &[Ask], known: &[KnownAnswer]) -> Vec<Vec<u8>> {
    let mut packets = vec![];
    let mut current = Draft::default();
    // Questions with known answers come first, so that their answers follow them in the same packet.
    for question in questions {
        if !current.ask(question) {
            packets.push(std::mem::take(&mut current));
            current.ask(question);
        }
    }
    for answer in known {
        if !current.know(answer) {
            current.is_truncated = true;
            packets.push(std::mem::take(&mut current));
            current.know(answer);
        }
    }
    packets.push(current);
    let packets = packets.into_iter().filter(|draft| !draft.is_empty());
    packets.map(Draft::finish).collect()
}

/// A query that is being written.
#[derive(Default)]
struct Draft {
    bytes: Vec<u8>,
    /// The offset of each name, and of each end of a name.
    names: BTreeMap<Vec<u8>, u16>,
    questions: u16,
    answers: u16,
    is_truncated: bool,
}

impl Draft {
    fn is_empty(&self) -> bool {
        self.questions == 0 && self.answers == 0
    }

    fn ask(&mut self, question: &Ask) -> bool {
        let class = CLASS_IN | if question.wants_unicast { TOP_BIT } else { 0 };
        let fits = self.append(|draft| {
            draft.name(&question.name);
            draft.number(question.kind.code());
            draft.number(class);
        });
        self.questions += u16::from(fits);
        fits
    }

    fn know(&mut self, answer: &KnownAnswer) -> bool {
        let fits = self.append(|draft| {
            draft.name(&answer.name);
            draft.number(Kind::Ptr.code());
            draft.number(CLASS_IN);
            draft.bytes.extend(answer.ttl.to_be_bytes());
            let place = draft.bytes.len();
            draft.number(0);
            draft.name(&answer.target);
            let length = u16::try_from(draft.bytes.len() - place - 2).unwrap_or_default();
            draft.bytes[place..place + 2].copy_from_slice(&length.to_be_bytes());
        });
        self.answers += u16::from(fits);
        fits
    }

    /// Writes an item, unless the packet would become too long. The first item is always written.
    fn append(&mut self, write: impl FnOnce(&mut Self)) -> bool {
        let was_empty = self.is_empty();
        self.bytes.resize(self.bytes.len().max(HEADER), 0);
        let before = self.bytes.len();
        write(self);
        let fits = was_empty || self.bytes.len() <= PACKET_MAX;
        if !fits {
            self.bytes.truncate(before);
            self.names.retain(|_, at| usize::from(*at) < before);
        }
        fits
    }

    fn number(&mut self, number: u16) {
        self.bytes.extend(number.to_be_bytes());
    }

    /// Writes a name. The end of a name that was written before is replaced by a pointer to it (RFC 1035 4.1.4).
    fn name(&mut self, name: &Name) {
        let mut rest = name.labels();
        while !rest.as_bytes().is_empty() {
            if let Some(at) = self.names.get(rest.as_bytes()) {
                return self.number(POINTER | *at);
            }
            if let Ok(at @ 0..POINTED_MAX) = u16::try_from(self.bytes.len()) {
                self.names.insert(rest.as_bytes().to_vec(), at);
            }
            let label = rest.next().unwrap_or_default();
            self.bytes
                .push(u8::try_from(label.len()).unwrap_or_default());
            self.bytes.extend_from_slice(label);
        }
        self.bytes.push(0);
    }

    fn finish(mut self) -> Vec<u8> {
        let flags = if self.is_truncated { FLAG_TRUNCATED } else { 0 };
        for (at, value) in [(2, flags), (4, self.questions), (6, self.answers)] {
            self.bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
        }
        self.bytes
    }
}
