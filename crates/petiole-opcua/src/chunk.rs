//! Splits the bytes of a connection into chunks (OPC 10000-6, 6.7 and 7.1), and writes them. Pure.
use crate::{
    binary::{Malformed, Writer},
    failure::Reason,
};

/// The largest chunk that a server may send, in bytes, which is what we say to it. Beyond it: the conversation ends.
pub const CHUNK_MAX: usize = 65_535;
/// The largest message of all its chunks, in bytes. Beyond it: the conversation ends.
pub const MESSAGE_MAX: usize = 256 * 1024;
/// The most chunks of a message. Beyond it: the conversation ends.
pub const CHUNKS_MAX: usize = 64;
/// The bytes of the header of each chunk: three letters, whether it is the last one, and its size.
const HEADER: usize = 8;

/// What a chunk belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Hello,
    Acknowledge,
    Error,
    Open,
    Message,
    Close,
}

impl Kind {
    fn letters(self) -> &'static [u8; 3] {
        match self {
            Self::Hello => b"HEL",
            Self::Acknowledge => b"ACK",
            Self::Error => b"ERR",
            Self::Open => b"OPN",
            Self::Message => b"MSG",
            Self::Close => b"CLO",
        }
    }

    /// Returns the kind as a message of errors names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hello => "a Hello",
            Self::Acknowledge => "an Acknowledge",
            Self::Error => "an Error",
            Self::Open => "an OpenSecureChannel",
            Self::Message => "a message",
            Self::Close => "a CloseSecureChannel",
        }
    }
}

/// The place of a chunk in its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Last,
    More,
    /// The sender has given up on the message.
    Abort,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) kind: Kind,
    pub(crate) place: Place,
    /// All after the header.
    pub(crate) body: Vec<u8>,
}

/// The bytes that have come and are no whole chunk yet.
#[derive(Debug, Default)]
pub(crate) struct Incoming(Vec<u8>);

impl Incoming {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Returns the next chunk, if all of it is there.
    pub(crate) fn next(&mut self) -> Result<Option<Chunk>, Reason> {
        const KINDS: [Kind; 6] = [
            Kind::Hello,
            Kind::Acknowledge,
            Kind::Error,
            Kind::Open,
            Kind::Message,
            Kind::Close,
        ];
        let Some((header, _)) = self.0.split_first_chunk::<HEADER>() else {
            // A banner of another program may be shorter than a header.
            let letters = &self.0[..self.0.len().min(3)];
            let may_be = KINDS.iter().any(|kind| kind.letters().starts_with(letters));
            return if may_be {
                Ok(None)
            } else {
                Err(Reason::NotOpcUa)
            };
        };
        let [a, b, c, place, size @ ..] = *header;
        let kind = KINDS.into_iter().find(|kind| *kind.letters() == [a, b, c]);
        let kind = kind.ok_or(Reason::NotOpcUa)?;
        let place = match place {
            b'F' => Place::Last,
            b'C' => Place::More,
            b'A' => Place::Abort,
            other => return Err(Reason::Malformed(Malformed::Encoding(other))),
        };
        let size = usize::try_from(u32::from_le_bytes(size)).unwrap_or(usize::MAX);
        if size > CHUNK_MAX {
            return Err(Reason::Malformed(Malformed::TooMany {
                what: "bytes in a chunk",
                count: size,
                most: CHUNK_MAX,
            }));
        }
        if size < HEADER {
            return Err(Reason::Malformed(Malformed::Short));
        }
        if self.0.len() < size {
            return Ok(None);
        }
        let body = self.0[HEADER..size].to_vec();
        self.0.drain(..size);
        Ok(Some(Chunk { kind, place, body }))
    }
}

/// Returns a chunk with its header.
pub(crate) fn write(kind: Kind, place: Place, body: &[u8]) -> Vec<u8> {
    let place = match place {
        Place::Last => b'F',
        Place::More => b'C',
        Place::Abort => b'A',
    };
    let mut chunk = Writer(kind.letters().to_vec());
    chunk.byte(place);
    chunk.u32(u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX));
    chunk.0.extend_from_slice(body);
    chunk.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(bytes: &[u8]) -> Result<Option<Chunk>, Reason> {
        let mut incoming = Incoming::default();
        incoming.add(bytes);
        incoming.next()
    }

    #[test]
    fn section_7_1_2_a_chunk_is_whole_at_its_last_byte_however_it_comes() {
        let bytes = [
            write(Kind::Acknowledge, Place::Last, b"12"),
            write(Kind::Message, Place::More, b""),
        ];
        let bytes = bytes.concat();
        let mut incoming = Incoming::default();
        let mut chunks = vec![];
        for byte in bytes {
            incoming.add(&[byte]);
            chunks.extend(incoming.next().unwrap());
        }
        let [first, second] = chunks.try_into().unwrap();
        assert_eq!((first.kind, first.place), (Kind::Acknowledge, Place::Last));
        assert_eq!(first.body, b"12");
        assert_eq!((second.kind, second.place), (Kind::Message, Place::More));
        assert_eq!(second.body, b"");
    }

    #[test]
    fn what_another_program_sends_is_no_chunk_from_its_first_letters_on() {
        for text in ["HTTP/1.1 400", "SSH-2.0-x", "\u{3}", "H", "HT"] {
            let is_refused = next(text.as_bytes()) == Err(Reason::NotOpcUa);
            assert_eq!(is_refused, text != "H", "{text}");
        }
        assert_eq!(next(b""), Ok(None));
    }

    #[test]
    fn a_size_that_cannot_be_is_refused_before_its_bytes_come() {
        let sized = |size: u32| next(&[b"MSGF".as_slice(), &size.to_le_bytes()].concat());
        assert_eq!(sized(7), Err(Reason::Malformed(Malformed::Short)));
        assert_eq!(sized(65_535), Ok(None));
        for size in [65_536, u32::MAX] {
            let Err(Reason::Malformed(why)) = sized(size) else {
                panic!("{size} is taken");
            };
            assert!(why.to_string().contains("65535 are the most"), "{why}");
        }
        let odd = next(b"MSGX\x08\0\0\0");
        assert_eq!(odd, Err(Reason::Malformed(Malformed::Encoding(b'X'))));
    }
}
