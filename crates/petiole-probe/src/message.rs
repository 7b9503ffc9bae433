//! Reads an answer of HTTP/1.1 (RFC 9112) or RTSP (RFC 2326): its status, its headers and, if it is of interest, its body. Pure.
use crate::failure::{ANSWER_MAX, Failure};
use std::str;

/// The longest line of a head, in bytes. Beyond it: the host is not identified.
pub const LINE_MAX: usize = 8 * 1024;
/// The most lines of a head. Beyond it: the host is not identified.
pub const HEADERS_MAX: usize = 128;

/// An answer, as far as it has come.
#[derive(Debug)]
pub(crate) struct Message {
    protocol: &'static str,
    wants_body: bool,
    received: Vec<u8>,
    /// The number of bytes that are understood.
    read: usize,
    part: Part,
    pub(crate) status: u16,
    /// The names of the headers are in lower case.
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// The part of an answer that comes next.
#[derive(Debug, Clone, Copy)]
enum Part {
    Status,
    Header,
    Body(usize),
    UntilClosed,
    ChunkSize,
    Chunk(usize),
    ChunkEnd,
    Over,
}

impl Message {
    /// `protocol` is what the first line begins with.
    pub(crate) fn new(protocol: &'static str, wants_body: bool) -> Self {
        Self {
            protocol,
            wants_body,
            received: vec![],
            read: 0,
            part: Part::Status,
            status: 0,
            headers: vec![],
            body: vec![],
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Takes bytes. Returns whether the message is whole.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<bool, Failure> {
        if self.received.len() + bytes.len() > ANSWER_MAX {
            return Err(Failure::Large);
        }
        self.received.extend_from_slice(bytes);
        while !matches!(self.part, Part::Over) && self.step()? {}
        Ok(matches!(self.part, Part::Over))
    }

    /// Returns whether the message is whole if no more bytes come.
    pub(crate) fn is_whole_at_end(&self) -> bool {
        matches!(self.part, Part::Over | Part::UntilClosed)
    }

    /// Reads the next part. Returns false if more bytes are needed.
    fn step(&mut self) -> Result<bool, Failure> {
        match self.part {
            Part::Body(size) | Part::Chunk(size) => {
                let left = self.received.len() - self.read;
                if left < size {
                    return Ok(false);
                }
                let end = self.read + size;
                self.body.extend_from_slice(&self.received[self.read..end]);
                self.read = end;
                let is_chunk = matches!(self.part, Part::Chunk(_));
                self.part = if is_chunk { Part::ChunkEnd } else { Part::Over };
                Ok(true)
            }
            Part::UntilClosed => {
                self.body.extend_from_slice(&self.received[self.read..]);
                self.read = self.received.len();
                Ok(false)
            }
            Part::Status | Part::Header | Part::ChunkSize | Part::ChunkEnd => {
                let Some(line) = self.line()? else {
                    return Ok(false);
                };
                self.part = self.next_part(&line)?;
                Ok(true)
            }
            Part::Over => Ok(false),
        }
    }

    /// Returns the next line, without its end.
    fn line(&mut self) -> Result<Option<String>, Failure> {
        let rest = &self.received[self.read..];
        // What speaks another protocol is known by its first bytes, and may send no line at all.
        let begins = rest.len().min(self.protocol.len());
        if matches!(self.part, Part::Status) && rest[..begins] != self.protocol.as_bytes()[..begins]
        {
            return Err(Failure::Foreign(self.protocol));
        }
        let end = rest.iter().position(|byte| *byte == b'\n');
        if end.unwrap_or(rest.len()) > LINE_MAX {
            return Err(Failure::Large);
        }
        let Some(end) = end else { return Ok(None) };
        let line = String::from_utf8_lossy(&rest[..end]).trim_end().to_owned();
        self.read += end + 1;
        Ok(Some(line))
    }

    fn next_part(&mut self, line: &str) -> Result<Part, Failure> {
        let foreign = || Failure::Foreign(self.protocol);
        match self.part {
            Part::Status => {
                // RFC 9112 4: the version, the status and a reason.
                let (version, status) = line.split_once(' ').ok_or_else(foreign)?;
                let digits = status.get(..3).filter(|_| version.contains('/'));
                let status = digits.and_then(|digits| digits.parse().ok());
                self.status = status.ok_or_else(foreign)?;
                Ok(Part::Header)
            }
            Part::Header if line.is_empty() => self.after_head(),
            Part::Header if self.headers.len() == HEADERS_MAX => Err(Failure::Large),
            Part::Header => {
                let (name, value) = line.split_once(':').unwrap_or_default();
                let header = (name.to_ascii_lowercase(), value.trim().to_owned());
                self.headers.push(header);
                Ok(Part::Header)
            }
            Part::ChunkSize => {
                // RFC 9112 7.1.1: extensions are ignored.
                let digits = line.split(';').next().unwrap_or_default().trim();
                let size = usize::from_str_radix(digits, 16).map_err(|_| foreign())?;
                // What follows the last chunk is of no interest.
                Ok(if size == 0 {
                    Part::Over
                } else {
                    Part::Chunk(bounded(size)?)
                })
            }
            Part::ChunkEnd | Part::Body(_) | Part::UntilClosed | Part::Chunk(_) | Part::Over => {
                Ok(Part::ChunkSize)
            }
        }
    }

    /// Returns how the body is framed (RFC 9112 6.3).
    fn after_head(&self) -> Result<Part, Failure> {
        if !self.wants_body || [204, 304].contains(&self.status) {
            return Ok(Part::Over);
        }
        let is_chunked = |codings: &str| codings.to_ascii_lowercase().ends_with("chunked");
        if self.header("transfer-encoding").is_some_and(is_chunked) {
            return Ok(Part::ChunkSize);
        }
        let Some(length) = self.header("content-length") else {
            return Ok(Part::UntilClosed);
        };
        let length = length
            .parse()
            .map_err(|_| Failure::Foreign(self.protocol))?;
        Ok(Part::Body(bounded(length)?))
    }
}

fn bounded(size: usize) -> Result<usize, Failure> {
    if size > ANSWER_MAX {
        Err(Failure::Large)
    } else {
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8], size: usize) -> Result<Option<(u16, String)>, Failure> {
        let mut message = Message::new("HTTP/1.", true);
        let mut is_whole = false;
        for part in bytes.chunks(size) {
            is_whole = is_whole || message.receive(part)?;
        }
        let body = String::from_utf8_lossy(&message.body).into_owned();
        Ok((is_whole || message.is_whole_at_end()).then_some((message.status, body)))
    }

    #[test]
    fn a_body_ends_by_its_length_its_chunks_or_the_connection_however_it_comes() {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbodyrest",
            "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nbod\r\n1\r\ny\r\n0\r\n\r\n",
            "HTTP/1.0 200 OK\nServer: old\n\nbody",
        ] {
            for size in 1..text.len() {
                let read = read(text.as_bytes(), size).unwrap();
                assert_eq!(read, Some((200, "body".to_owned())), "{text} by {size}");
            }
        }
        let part = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbody";
        assert_eq!(read(part.as_bytes(), 7), Ok(None));
        let none = "HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(read(none.as_bytes(), 7), Ok(Some((204, String::new()))));
    }

    #[test]
    fn what_is_too_large_or_of_another_protocol_is_refused_at_once() {
        let foreign = Err(Failure::Foreign("HTTP/1."));
        for text in ["SSH", "HTTP/2", "HTTP/1.1 OK \r\n", "RTSP/1.0 200 OK\r\n"] {
            assert_eq!(read(text.as_bytes(), 1), foreign, "{text}");
        }
        let head = "HTTP/1.1 200 OK\r\n";
        for text in [
            format!("{head}Content-Length: 65537\r\n\r\n"),
            format!("{head}Transfer-Encoding: chunked\r\n\r\nFFFFF\r\n"),
            format!("{head}{}", "x".repeat(LINE_MAX + 1)),
            format!("{head}{}", "a: b\r\n".repeat(HEADERS_MAX + 1)),
            format!("{head}\r\n{}", "x".repeat(ANSWER_MAX)),
        ] {
            assert_eq!(
                read(text.as_bytes(), 1000),
                Err(Failure::Large),
                "{text:.60}"
            );
        }
        let endless = format!("{head}Content-Length: x\r\n\r\n");
        assert_eq!(read(endless.as_bytes(), 9), foreign);
    }

    proptest! {
        #[test]
        fn the_parts_in_which_bytes_come_change_nothing(
            head in "(HTTP/1\\.1 [0-9]{3}[ a-z]{0,4}\r?\n)([A-Za-z-]{1,9}: ?[a-z0-9]{0,4}\r?\n){0,4}",
            body in proptest::collection::vec(any::<u8>(), 0..60),
            size in 1_usize..40,
        ) {
            let bytes = [head.as_bytes(), b"\r\n", &body].concat();
            prop_assert_eq!(read(&bytes, size), read(&bytes, bytes.len()));
        }
    }
}
