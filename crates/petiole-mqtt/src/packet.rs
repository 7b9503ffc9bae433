//! Reads and writes the packets of MQTT 3.1.1 and 5 that a subscriber needs. Pure.
use crate::failure::{Code, Reason};
use std::sync::Arc;

/// The largest packet that is kept, in bytes. Beyond it: a message is skipped and counted, and another packet ends the session.
pub const PACKET_MAX: usize = 68 << 10;
/// The longest text of a broker about a failure, in bytes. Beyond it: the end is cut off.
pub(crate) const REASON_MAX: usize = 256;
/// The most bytes of the size of a packet.
const SIZE_BYTES: usize = 4;

pub(crate) const CONNECT: u8 = 0x10;
pub(crate) const CONNACK: u8 = 0x20;
pub(crate) const PUBLISH: u8 = 0x30;
pub(crate) const SUBSCRIBE: u8 = 0x82;
pub(crate) const SUBACK: u8 = 0x90;
pub(crate) const UNSUBSCRIBE: u8 = 0xA2;
pub(crate) const UNSUBACK: u8 = 0xB0;
pub(crate) const PINGREQ: u8 = 0xC0;
pub(crate) const PINGRESP: u8 = 0xD0;
pub(crate) const DISCONNECT: u8 = 0xE0;

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// MQTT 3.1.1.
    V3,
    /// MQTT 5.
    V5,
}

/// What a broker has sent, cut into packets.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    bytes: Vec<u8>,
    /// The bytes of `bytes` that were taken.
    at: usize,
    /// The bytes that still come of a message that is too large.
    skip: usize,
}

pub(crate) enum Next {
    Packet {
        first: u8,
        body: Vec<u8>,
    },
    /// The beginning of a message that is too large.
    Skipped,
}

impl Incoming {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        self.bytes.extend_from_slice(&bytes[skipped..]);
    }

    /// Returns the first byte that was not taken.
    pub(crate) fn first(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn next(&mut self) -> Result<Option<Next>, Reason> {
        let rest = &self.bytes[self.at..];
        let Some((first, after)) = rest.split_first() else {
            return Ok(None);
        };
        let mut reader = Reader(after);
        let size = match reader.number() {
            Ok(size) => size,
            Err(_) if after.len() < SIZE_BYTES => return Ok(None),
            Err(why) => return Err(why),
        };
        let head = rest.len() - reader.0.len();
        if size > PACKET_MAX {
            if first & 0xF0 != PUBLISH {
                return Err(Reason::Malformed("a packet is too large"));
            }
            let taken = size.min(reader.0.len());
            self.skip = size - taken;
            self.at += head + taken;
            return Ok(Some(Next::Skipped));
        }
        let Some(body) = reader.0.get(..size) else {
            return Ok(None);
        };
        let packet = Next::Packet {
            first: *first,
            body: body.to_vec(),
        };
        self.at += head + size;
        Ok(Some(packet))
    }
}

/// Reads values off the front of a packet.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Reason> {
        let parts = self.0.split_at_checked(count);
        let (bytes, rest) = parts.ok_or(Reason::Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Reason> {
        Ok(self.bytes(1)?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Reason> {
        Ok(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    /// Reads a number of variable length.
    pub(crate) fn number(&mut self) -> Result<usize, Reason> {
        let mut number = 0;
        for n in 0..SIZE_BYTES {
            let byte = self.byte()?;
            number |= usize::from(byte & 0x7F) << (7 * n);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Reason::Malformed("a length has more than four bytes"))
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Reason> {
        let length = self.u16()?;
        let text = std::str::from_utf8(self.bytes(length.into())?);
        text.map_err(|_| Reason::Malformed("a text is not UTF-8"))
    }

    /// Reads the properties of MQTT 5 that matter. A packet that ends before has none.
    pub(crate) fn properties(&mut self) -> Result<Properties, Reason> {
        let mut found = Properties::default();
        if self.0.is_empty() {
            return Ok(found);
        }
        let length = self.number()?;
        let mut reader = Reader(self.bytes(length)?);
        while !reader.0.is_empty() {
            match reader.byte()? {
                0x13 => found.keep_alive = Some(reader.u16()?),
                0x1F => {
                    let text = reader.text()?;
                    let end = text.floor_char_boundary(REASON_MAX);
                    text[..end].clone_into(&mut found.reason);
                }
                0x27 => {
                    let bytes = reader.bytes(4)?;
                    let size = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                    found.packet_max = usize::try_from(size).ok();
                }
                0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28 | 0x29 | 0x2A => drop(reader.byte()?),
                0x21..=0x23 => drop(reader.u16()?),
                0x02 | 0x11 | 0x18 => drop(reader.bytes(4)?),
                0x0B => drop(reader.number()?),
                0x26 => {
                    reader.text()?;
                    reader.text()?;
                }
                // Binary data has the form of a text.
                0x03 | 0x08 | 0x09 | 0x12 | 0x15 | 0x16 | 0x1A | 0x1C => {
                    let length = reader.u16()?;
                    reader.bytes(length.into())?;
                }
                _ => return Err(Reason::Malformed("a property is none of MQTT 5")),
            }
        }
        Ok(found)
    }
}

/// The properties of CONNACK, SUBACK and DISCONNECT that matter.
#[derive(Debug, Default)]
pub(crate) struct Properties {
    pub(crate) keep_alive: Option<u16>,
    pub(crate) packet_max: Option<usize>,
    pub(crate) reason: String,
}

/// Who connects.
#[derive(Clone)]
pub struct Login {
    /// The version of the protocol.
    pub protocol: Protocol,
    /// The identifier of the client. A second client with the same one ends the first one's session.
    pub client_id: String,
    /// The name of the user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

/// Returns CONNECT. The broker is told to keep nothing, and in MQTT 5 to send nothing that is too large.
pub(crate) fn connect(login: &Login, keep_alive: u16) -> Vec<u8> {
    const CLEAN: u8 = 0x02;
    let mut body = vec![];
    put_text(&mut body, "MQTT");
    let user = login.user.as_deref();
    let password = login.password.as_deref().filter(|_| user.is_some());
    let flags = CLEAN | (u8::from(user.is_some()) << 7) | (u8::from(password.is_some()) << 6);
    let version = match login.protocol {
        Protocol::V3 => 4,
        Protocol::V5 => 5,
    };
    body.extend([version, flags]);
    body.extend(keep_alive.to_be_bytes());
    if login.protocol == Protocol::V5 {
        body.extend([5, 0x27]);
        body.extend((PACKET_MAX as u32).to_be_bytes());
    }
    let texts = [Some(login.client_id.as_str()), user, password];
    texts
        .into_iter()
        .flatten()
        .for_each(|text| put_text(&mut body, text));
    packet(CONNECT, &body)
}

/// Returns SUBSCRIBE for messages at most once (nothing is acknowledged, and over TCP nothing is lost), or UNSUBSCRIBE.
pub(crate) fn of_filters(first: u8, protocol: Protocol, id: u16, filters: &[Arc<str>]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    if protocol == Protocol::V5 {
        body.push(0);
    }
    for filter in filters {
        put_text(&mut body, filter);
        if first == SUBSCRIBE {
            body.push(0);
        }
    }
    packet(first, &body)
}

/// Returns a packet of a first byte and a body.
pub(crate) fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![first];
    let mut size = body.len();
    loop {
        let more = u8::from(size > 0x7F) << 7;
        packet.push((size & 0x7F) as u8 | more);
        size >>= 7;
        if size == 0 {
            break;
        }
    }
    packet.extend(body);
    packet
}

fn put_text(body: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(u16::MAX.into())];
    body.extend((text.len() as u16).to_be_bytes());
    body.extend(text.as_bytes());
}

/// A message as it came.
pub(crate) struct Message<'a> {
    /// Nothing, if it is no text: that is the fault of its publisher.
    pub(crate) topic: Option<&'a str>,
    pub(crate) payload: &'a [u8],
}

/// Reads PUBLISH.
pub(crate) fn publish(protocol: Protocol, first: u8, body: &[u8]) -> Result<Message<'_>, Reason> {
    const QOS: u8 = 0x06;
    if first & QOS != 0 {
        return Err(Reason::Unexpected(
            "a message that wants an acknowledgement, which no subscription asks for",
        ));
    }
    let mut reader = Reader(body);
    let length = reader.u16()?;
    let topic = std::str::from_utf8(reader.bytes(length.into())?).ok();
    if protocol == Protocol::V5 {
        let length = reader.number()?;
        reader.bytes(length)?;
    }
    let payload = reader.0;
    Ok(Message { topic, payload })
}

/// Reads the code of CONNACK, and its properties. One of MQTT 3.1.1 answers a client of MQTT 5, too.
pub(crate) fn connack(body: &[u8]) -> Result<(Code, Properties), Reason> {
    let mut reader = Reader(body);
    reader.byte()?;
    let code = reader.byte()?;
    let code = match body.len() {
        2 => Code::of_3_1_1(code),
        _ => Code(code),
    };
    Ok((code, reader.properties()?))
}
