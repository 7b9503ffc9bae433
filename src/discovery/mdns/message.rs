//! Parses messages of multicast DNS. Pure.
//!
//! hickory-proto parses the names in packets, and rejects pointers that lead nowhere or in circles. This file parses
//! the records one by one, because an unreadable record must not make the others of its packet unusable, and because
//! most records are of no interest.
use super::name::Name;
use hickory_proto::{
    rr::Name as WireName,
    serialize::binary::{BinDecodable as _, BinDecoder, DecodeError},
};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

/// The most questions of a packet. Beyond it: the packet is ignored.
const QUESTIONS_MAX: usize = 512;
/// The most records that are read from one packet. Beyond it: further ones are ignored.
const RECORDS_MAX: usize = 1024;
const FLAG_RESPONSE: u16 = 0x8000;
pub(super) const FLAG_TRUNCATED: u16 = 0x0200;
const OPCODE: u16 = 0x7800;
pub(super) const CLASS_IN: u16 = 1;
/// The top bit of the class: RFC 6762 5.4 in questions, 10.2 in records.
pub(super) const TOP_BIT: u16 = 0x8000;

/// The types of record that the querier uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    A,
    Aaaa,
    Ptr,
    Srv,
    Txt,
    Nsec,
}

impl Kind {
    pub const fn code(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Ptr => 12,
            Self::Txt => 16,
            Self::Aaaa => 28,
            Self::Srv => 33,
            Self::Nsec => 47,
        }
    }

    fn from_code(code: u16) -> Option<Self> {
        let all = [
            Self::A,
            Self::Aaaa,
            Self::Ptr,
            Self::Srv,
            Self::Txt,
            Self::Nsec,
        ];
        all.into_iter().find(|kind| kind.code() == code)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "A",
            Self::Aaaa => "AAAA",
            Self::Ptr => "PTR",
            Self::Srv => "SRV",
            Self::Txt => "TXT",
            Self::Nsec => "NSEC",
        })
    }
}

/// The data of a record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Data {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    Ptr(Name),
    Srv {
        target: Name,
        port: u16,
        priority: u16,
        weight: u16,
    },
    /// The strings in wire format: each is preceded by its length.
    Txt(Arc<[u8]>),
    /// The types that exist at the name, as far as the querier uses them.
    Nsec(Vec<Kind>),
}

impl Data {
    pub fn kind(&self) -> Kind {
        match self {
            Self::A(_) => Kind::A,
            Self::Aaaa(_) => Kind::Aaaa,
            Self::Ptr(_) => Kind::Ptr,
            Self::Srv { .. } => Kind::Srv,
            Self::Txt(_) => Kind::Txt,
            Self::Nsec(_) => Kind::Nsec,
        }
    }

    /// Returns the address in an address record.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::A(v4) => Some((*v4).into()),
            Self::Aaaa(v6) => Some((*v6).into()),
            Self::Ptr(_) | Self::Srv { .. } | Self::Txt(_) | Self::Nsec(_) => None,
        }
    }

    /// Returns the bytes of the data, without the structures that hold it.
    pub fn size(&self) -> usize {
        match self {
            Self::Ptr(name) | Self::Srv { target: name, .. } => name.wire_len(),
            Self::Txt(bytes) => bytes.len(),
            Self::A(_) | Self::Aaaa(_) | Self::Nsec(_) => 0,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub name: Name,
    pub ttl: u32,
    /// The record replaces the others of its name and type (RFC 6762 10.2).
    pub flush: bool,
    pub data: Data,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub name: Name,
    /// The type; `None` for any type, or for one that is not used here.
    pub kind: Option<Kind>,
    pub is_any: bool,
    /// The answer may come by unicast (RFC 6762 5.4).
    pub wants_unicast: bool,
}

/// A message as it was received.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    pub is_response: bool,
    /// More known answers follow (RFC 6762 7.2).
    pub is_truncated: bool,
    pub questions: Vec<Question>,
    /// The answers, then the additional records. The records that a prober proposes (RFC 6762 8.2) are left out.
    pub records: Vec<Record>,
    /// The number of unusable records: of another class, of an unknown type, or malformed.
    pub skipped: usize,
}

/// A packet that is not a DNS message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a DNS message")]
pub struct Malformed;

impl From<DecodeError> for Malformed {
    fn from(_: DecodeError) -> Self {
        Self
    }
}

impl Message {
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut decoder = BinDecoder::new(bytes);
        u16_of(&mut decoder)?;
        let flags = u16_of(&mut decoder)?;
        // Messages with another opcode are ignored (RFC 6762 18.3).
        if flags & OPCODE != 0 {
            return Err(Malformed);
        }
        let mut counts = [0; 4];
        for count in &mut counts {
            *count = usize::from(u16_of(&mut decoder)?);
        }
        let [questions, answers, authorities, additionals] = counts;
        let mut message = Self {
            is_response: flags & FLAG_RESPONSE != 0,
            is_truncated: flags & FLAG_TRUNCATED != 0,
            ..Self::default()
        };
        if questions > QUESTIONS_MAX {
            return Err(Malformed);
        }
        for _ in 0..questions {
            message.questions.push(question(&mut decoder)?);
        }
        for n in 0..(answers + authorities + additionals).min(RECORDS_MAX) {
            let is_proposal = (answers..answers + authorities).contains(&n);
            match record(&mut decoder)? {
                Some(record) if !is_proposal => message.records.push(record),
                _ => message.skipped += 1,
            }
        }
        Ok(message)
    }
}

fn u16_of(decoder: &mut BinDecoder<'_>) -> Result<u16, Malformed> {
    Ok(decoder.read_u16()?.unverified())
}

fn name(decoder: &mut BinDecoder<'_>) -> Result<Option<Name>, Malformed> {
    let name = WireName::read(decoder)?;
    Ok(Name::from_labels(name.iter()))
}

fn question(decoder: &mut BinDecoder<'_>) -> Result<Question, Malformed> {
    let name = name(decoder)?.ok_or(Malformed)?;
    let code = u16_of(decoder)?;
    let class = u16_of(decoder)?;
    Ok(Question {
        name,
        kind: Kind::from_code(code),
        is_any: code == 255,
        wants_unicast: class & TOP_BIT != 0,
    })
}

/// Parses a record. Returns `None` for an unusable record, and an error if the rest of the packet cannot be read
/// either.
fn record(decoder: &mut BinDecoder<'_>) -> Result<Option<Record>, Malformed> {
    let name = name(decoder)?;
    let code = u16_of(decoder)?;
    let class = u16_of(decoder)?;
    let ttl = decoder.read_u32()?.unverified();
    let length = usize::from(u16_of(decoder)?);
    let start = decoder.index();
    let bytes = decoder.read_slice(length)?.unverified();
    let (Some(name), Some(kind)) = (name, Kind::from_code(code)) else {
        return Ok(None);
    };
    if class & !TOP_BIT != CLASS_IN {
        return Ok(None);
    }
    let rdata = Rdata {
        bytes,
        whole: decoder,
        start,
    };
    Ok(rdata.read(kind).map(|data| Record {
        name,
        ttl,
        flush: class & TOP_BIT != 0,
        data,
    }))
}

/// The data of one record, and the message around it: a name may point to any earlier position.
struct Rdata<'a, 'b> {
    bytes: &'a [u8],
    whole: &'b BinDecoder<'a>,
    start: usize,
}

impl Rdata<'_, '_> {
    fn read(&self, kind: Kind) -> Option<Data> {
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
            Kind::Txt => Data::Txt(self.bytes.into()),
            Kind::Nsec => {
                let (_, end) = self.name_at(0)?;
                Data::Nsec(types_of(self.bytes.get(end..)?))
            }
        })
    }

    /// Returns the name at an offset of the data, and the offset of its end.
    fn name_at(&self, offset: usize) -> Option<(Name, usize)> {
        let at = u16::try_from(self.start + offset).ok()?;
        let mut decoder = self.whole.clone(at);
        let name = name(&mut decoder).ok()??;
        Some((name, decoder.index() - self.start))
    }

    fn last_name(&self, offset: usize) -> Option<Name> {
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
