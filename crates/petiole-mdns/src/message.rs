//! Parses messages of multicast DNS. Pure.
//!
//! hickory-proto parses the names in packets, and rejects pointers that lead nowhere or in circles. This file parses
//! the records one by one, because an unreadable record must not make the others of its packet unusable, and because
//! most records are of no interest.
use super::{
    name::Name,
    record::{Data, Kind, Record},
    txt::first_strings,
};
use hickory_proto::{
    rr::Name as WireName,
    serialize::binary::{BinDecodable as _, BinDecoder, DecodeError},
};

/// The most questions of a packet. An Ethernet frame holds 180. Beyond it: the packet is ignored.
const QUESTIONS_MAX: usize = 256;
/// The most labels and pointers of all names of a packet. Without compression, 9000 bytes cannot have more. Beyond it: the
/// packet is ignored.
const LABELS_MAX: usize = 9000;
/// The most pointers of one name in a packet. Writers of packets need one or two. Beyond it: the packet is ignored, or the
/// record if the name is in its data.
const POINTERS_MAX: usize = 8;
/// The fewest bytes of a question and of a record.
const QUESTION_BYTES: usize = 5;
const RECORD_BYTES: usize = 11;
const HEADER_BYTES: usize = 12;
const FLAG_RESPONSE: u16 = 0x8000;
pub(super) const FLAG_TRUNCATED: u16 = 0x0200;
const OPCODE: u16 = 0x7800;
const RESPONSE_CODE: u16 = 0x000f;
pub(super) const CLASS_IN: u16 = 1;
/// The top bit of the class: RFC 6762 5.4 in questions, 10.2 in records.
pub(super) const TOP_BIT: u16 = 0x8000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    pub name: Name,
    /// The type; `None` for any type, or for one that is not used here.
    pub kind: Option<Kind>,
    pub is_any: bool,
    /// The answer may come by unicast (RFC 6762 5.4).
    pub wants_unicast: bool,
}

/// The header of a message. It is checked before anything is counted or read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub is_response: bool,
    is_truncated: bool,
    questions: usize,
    answers: usize,
    authorities: usize,
    additionals: usize,
}

impl Header {
    /// Messages with another opcode or with a response code are ignored (RFC 6762 18.3 and 18.11).
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let numbers = bytes.first_chunk::<HEADER_BYTES>().ok_or(Malformed)?;
        let number = |n: usize| u16::from_be_bytes([numbers[2 * n], numbers[2 * n + 1]]);
        let (flags, count) = (number(1), |n| usize::from(number(n)));
        let header = Self {
            is_response: flags & FLAG_RESPONSE != 0,
            is_truncated: flags & FLAG_TRUNCATED != 0,
            questions: count(2),
            answers: count(3),
            authorities: count(4),
            additionals: count(5),
        };
        let records = header.answers + header.authorities + header.additionals;
        let least = HEADER_BYTES + header.questions * QUESTION_BYTES + records * RECORD_BYTES;
        let is_sound = flags & (OPCODE | RESPONSE_CODE) == 0
            && header.questions <= QUESTIONS_MAX
            && least <= bytes.len();
        is_sound.then_some(header).ok_or(Malformed)
    }
}

/// A message as it was received.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Message {
    pub is_response: bool,
    /// More known answers follow (RFC 6762 7.2).
    pub is_truncated: bool,
    pub questions: Vec<Question>,
    /// The answers, then the additional records. The records that a prober proposes (RFC 6762 8.2) are left out.
    pub records: Vec<Record>,
    /// The number of unusable records: of another class, of an unknown type, or malformed.
    pub skipped: usize,
}

/// A packet that is not a message of multicast DNS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

impl From<DecodeError> for Malformed {
    fn from(_: DecodeError) -> Self {
        Self
    }
}

impl Message {
    /// Reads a message, and adds the number of labels and pointers of its names to `steps`.
    pub(crate) fn decode(bytes: &[u8], steps: &mut usize) -> Result<Self, Malformed> {
        let mut reader = Reader {
            decoder: BinDecoder::new(bytes),
            bytes,
            labels: 0,
        };
        let message = reader.message();
        *steps += reader.labels;
        message
    }
}

/// Reads the parts of a message in their order.
struct Reader<'a> {
    decoder: BinDecoder<'a>,
    bytes: &'a [u8],
    /// The number of labels and pointers of the names so far.
    labels: usize,
}

impl Reader<'_> {
    fn message(&mut self) -> Result<Message, Malformed> {
        let header = Header::read(self.bytes)?;
        self.decoder.read_slice(HEADER_BYTES)?;
        let mut message = Message {
            is_response: header.is_response,
            is_truncated: header.is_truncated,
            ..Message::default()
        };
        for _ in 0..header.questions {
            message.questions.push(self.question()?);
        }
        let proposed = header.answers..header.answers + header.authorities;
        for n in 0..proposed.end + header.additionals {
            match self.record()? {
                Some(record) if !proposed.contains(&n) => message.records.push(record),
                _ => message.skipped += 1,
            }
        }
        Ok(message)
    }

    fn number(&mut self) -> Result<u16, Malformed> {
        Ok(self.decoder.read_u16()?.unverified())
    }

    fn name(&mut self) -> Result<Option<Name>, Malformed> {
        self.follow(self.decoder.index())?;
        name(&mut self.decoder)
    }

    /// Checks the length of the way through the name at an offset. A name may point to the pointer of another name, which
    /// may do the same, so a packet of 9 kB can have a million pointers to follow.
    fn follow(&mut self, mut at: usize) -> Result<(), Malformed> {
        let mut pointers = 0;
        while self.labels < LABELS_MAX && pointers <= POINTERS_MAX {
            self.labels += 1;
            match *self.bytes.get(at).ok_or(Malformed)? {
                0 => return Ok(()),
                length @ 1..0x40 => at += 1 + usize::from(length),
                high => {
                    let low = *self.bytes.get(at + 1).ok_or(Malformed)?;
                    at = usize::from(u16::from_be_bytes([high & 0x3f, low]));
                    pointers += 1;
                }
            }
        }
        Err(Malformed)
    }

    fn question(&mut self) -> Result<Question, Malformed> {
        let name = self.name()?.ok_or(Malformed)?;
        let code = self.number()?;
        let class = self.number()?;
        Ok(Question {
            name,
            kind: Kind::from_code(code),
            is_any: code == 255,
            wants_unicast: class & TOP_BIT != 0,
        })
    }

    /// Parses a record. Returns `None` for an unusable record, and an error if the rest of the packet cannot be read
    /// either.
    fn record(&mut self) -> Result<Option<Record>, Malformed> {
        let name = self.name()?;
        let code = self.number()?;
        let class = self.number()?;
        let ttl = self.decoder.read_u32()?.unverified();
        let length = usize::from(self.number()?);
        let start = self.decoder.index();
        let bytes = self.decoder.read_slice(length)?.unverified();
        let (Some(name), Some(kind)) = (name, Kind::from_code(code)) else {
            return Ok(None);
        };
        if class & !TOP_BIT != CLASS_IN {
            return Ok(None);
        }
        let mut rdata = Rdata {
            bytes,
            whole: self,
            start,
        };
        Ok(rdata.read(kind).map(|data| Record {
            name,
            ttl,
            flush: class & TOP_BIT != 0,
            data,
        }))
    }
}

fn name(decoder: &mut BinDecoder<'_>) -> Result<Option<Name>, Malformed> {
    let name = WireName::read(decoder)?;
    Ok(Name::from_labels(name.iter()))
}

/// The data of one record, and the message around it: a name may point to any earlier position.
struct Rdata<'a, 'b> {
    bytes: &'a [u8],
    whole: &'b mut Reader<'a>,
    start: usize,
}

impl Rdata<'_, '_> {
    fn read(&mut self, kind: Kind) -> Option<Data> {
        Some(match kind {
            Kind::A => Data::A(<[u8; 4]>::try_from(self.bytes).ok()?.into()),
            Kind::Aaaa => Data::Aaaa(<[u8; 16]>::try_from(self.bytes).ok()?.into()),
            Kind::Ptr => Data::Ptr(self.last_name(0)?),
            Kind::Srv => {
                let number = |at: usize| {
                    let bytes = self.bytes.get(at..at + 2)?;
                    Some(u16::from_be_bytes(bytes.try_into().ok()?))
                };
                Data::Srv {
                    priority: number(0)?,
                    weight: number(2)?,
                    port: number(4)?,
                    target: self.last_name(6)?,
                }
            }
            Kind::Txt => Data::Txt(first_strings(self.bytes).into()),
            Kind::Nsec => {
                let (_, end) = self.name_at(0)?;
                Data::Nsec(types_of(self.bytes.get(end..)?))
            }
        })
    }

    /// Returns the name at an offset of the data, and the offset of its end.
    fn name_at(&mut self, offset: usize) -> Option<(Name, usize)> {
        let at = self.start + offset;
        self.whole.follow(at).ok()?;
        let mut decoder = self.whole.decoder.clone(u16::try_from(at).ok()?);
        let name = name(&mut decoder).ok()??;
        Some((name, decoder.index() - self.start))
    }

    fn last_name(&mut self, offset: usize) -> Option<Name> {
        let (name, end) = self.name_at(offset)?;
        (end == self.bytes.len()).then_some(name)
    }
}

/// Returns the types of the first block of an NSEC bitmap (RFC 4034 4.1.2). RFC 6762 6.1 uses no other block.
fn types_of(bitmap: &[u8]) -> Vec<Kind> {
    let Some((&[0, length], bits)) = bitmap.split_first_chunk() else {
        return vec![];
    };
    let bits = &bits[..bits.len().min(usize::from(length))];
    let has = |kind: &Kind| {
        let (at, bit) = (usize::from(kind.code() / 8), kind.code() % 8);
        bits.get(at).is_some_and(|byte| byte & (0x80 >> bit) != 0)
    };
    let kinds = [Kind::A, Kind::Aaaa, Kind::Ptr, Kind::Srv, Kind::Txt];
    kinds.into_iter().filter(has).collect()
}

#[cfg(test)]
mod tests;
