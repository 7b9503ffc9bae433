//! Makes good what clients written in Go send as `:authority` over a Unix socket.
//!
//! grpc-go that dials a bare path sends the escaped path (`%2Fvar%2F…`), which is no authority, and h2 resets the
//! stream for it. [`Connection`] replaces that value by `localhost` before h2 sees it. It reads lengths only: it
//! walks the HPACK block of each HEADERS frame to the literal named by static index 1, and re-frames the block.
//! All other bytes, and any frame it does not understand, pass unchanged and are never held whole.
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
};
use tonic::transport::server::Connected;

const AUTHORITY: &[u8] = b"localhost";
/// The connection preface of a client, RFC 9113 3.4.
const PREFACE_LENGTH: usize = 24;
const FRAME_HEADER_LENGTH: usize = 9;
/// A header block that does not fit is passed on unread. h2 itself takes no more than 16 KiB by default.
const BLOCK_LIMIT: usize = 64 * 1024;
/// The largest frame every peer accepts, RFC 9113 4.2.
const FRAME_LIMIT: usize = 16 * 1024;
const HEADERS: u8 = 0x1;
const CONTINUATION: u8 = 0x9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// An accepted connection whose `:authority` h2 can read.
#[derive(Debug)]
pub struct Connection<S> {
    stream: S,
    rewriter: Rewriter,
    /// How much of `rewriter.out` has been read.
    taken: usize,
}

#[derive(Debug, Default)]
struct Rewriter {
    state: State,
    /// Bytes that h2 may read.
    out: Vec<u8>,
}

#[derive(Debug)]
enum State {
    /// This many bytes pass unread: the preface, or the rest of a frame.
    Passing(usize),
    /// Part of a frame's header.
    Header(Vec<u8>),
    /// A header block, as received: whole frames, then part of one.
    Block(Block),
}

#[derive(Debug)]
struct Block {
    raw: Vec<u8>,
    /// Where the frame that is being received begins in `raw`.
    frame: usize,
    flags: u8,
    stream: [u8; 4],
    /// What is left of the frames before: priority, and the fragments without padding.
    priority: Vec<u8>,
    fragments: Vec<u8>,
}

// === impl Rewriter ===

impl Default for State {
    fn default() -> Self {
        Self::Passing(PREFACE_LENGTH)
    }
}

impl Rewriter {
    fn receive(&mut self, mut input: &[u8]) {
        while !input.is_empty() {
            self.state = match std::mem::take(&mut self.state) {
                State::Passing(left) => {
                    let (now, later) = input.split_at(left.min(input.len()));
                    self.out.extend_from_slice(now);
                    input = later;
                    passing(left - now.len())
                }
                State::Header(mut header) => {
                    input = fill(&mut header, FRAME_HEADER_LENGTH, input);
                    self.after_header(header)
                }
                State::Block(mut block) => {
                    let end = block.frame_end();
                    input = fill(&mut block.raw, end, input);
                    self.after_block_bytes(block)
                }
            };
        }
    }

    /// What is still held goes out as it came: the peer has ended in the middle of a frame.
    fn end(&mut self) {
        match std::mem::replace(&mut self.state, State::Passing(0)) {
            State::Passing(_) => {}
            State::Header(held) => self.out.extend(held),
            State::Block(block) => self.out.extend(block.raw),
        }
    }

    fn after_header(&mut self, header: Vec<u8>) -> State {
        if header.len() < FRAME_HEADER_LENGTH {
            return State::Header(header);
        }
        if header[3] == HEADERS && payload_length(&header) <= BLOCK_LIMIT {
            let block = Block {
                frame: 0,
                flags: header[4],
                stream: [header[5], header[6], header[7], header[8]],
                raw: header,
                priority: Vec::new(),
                fragments: Vec::new(),
            };
            // A frame without payload is complete already.
            return self.after_block_bytes(block);
        }
        self.out.extend_from_slice(&header);
        passing(payload_length(&header))
    }

    fn after_block_bytes(&mut self, mut block: Block) -> State {
        if block.raw.len() < block.frame + FRAME_HEADER_LENGTH {
            return State::Block(block);
        }
        let payload = payload_length(&block.raw[block.frame..]);
        let continues = block.frame > 0;
        let expected = !continues
            || (block.raw[block.frame + 3] == CONTINUATION
                && block.raw[block.frame + 5..block.frame + 9] == block.stream);
        if !expected || block.frame + payload > BLOCK_LIMIT {
            let left = block.frame_end() - block.raw.len();
            self.out.append(&mut block.raw);
            return passing(left);
        }
        if block.raw.len() < block.frame_end() {
            return State::Block(block);
        }
        if block.take_frame().is_none() {
            self.out.append(&mut block.raw);
            return passing(0);
        }
        if block.raw[block.frame + 4] & END_HEADERS == 0 {
            block.frame = block.raw.len();
            return State::Block(block);
        }
        match rewrite(&block.fragments) {
            Some(fragments) => block.write(&fragments, &mut self.out),
            None => self.out.append(&mut block.raw),
        }
        passing(0)
    }
}

impl Block {
    /// Where the frame that is being received ends in `raw`; first its header must be there.
    fn frame_end(&self) -> usize {
        let header_end = self.frame + FRAME_HEADER_LENGTH;
        if self.raw.len() < header_end {
            return header_end;
        }
        header_end + payload_length(&self.raw[self.frame..])
    }

    /// Takes the fragment out of the frame that has just been received; `None` where it is malformed.
    fn take_frame(&mut self) -> Option<()> {
        let mut payload = &self.raw[self.frame + FRAME_HEADER_LENGTH..];
        if self.frame == 0 {
            if self.flags & PADDED != 0 {
                let (padding, rest) = payload.split_first()?;
                payload = rest.get(..rest.len().checked_sub(usize::from(*padding))?)?;
            }
            if self.flags & PRIORITY != 0 {
                let (priority, rest) = payload.split_at_checked(5)?;
                self.priority = priority.to_vec();
                payload = rest;
            }
        }
        self.fragments.extend_from_slice(payload);
        Some(())
    }

    /// The same headers around another block, without padding.
    fn write(&self, fragments: &[u8], out: &mut Vec<u8>) {
        let payload = [&self.priority, fragments].concat();
        let frames = payload.chunks(FRAME_LIMIT).count();
        for (n, chunk) in payload.chunks(FRAME_LIMIT).enumerate() {
            let last = if n + 1 == frames { END_HEADERS } else { 0 };
            let (kind, flags) = match n {
                0 => (HEADERS, self.flags & !(PADDED | END_HEADERS) | last),
                _ => (CONTINUATION, last),
            };
            let length = u32::try_from(chunk.len()).expect("a chunk has at most 16 KiB");
            out.extend_from_slice(&length.to_be_bytes()[1..]);
            out.extend_from_slice(&[kind, flags]);
            out.extend_from_slice(&self.stream);
            out.extend_from_slice(chunk);
        }
    }
}

fn passing(left: usize) -> State {
    if left == 0 {
        State::Header(Vec::new())
    } else {
        State::Passing(left)
    }
}

/// Appends to `buffer` until it has `length` bytes; returns what is left of `input`.
fn fill<'a>(buffer: &mut Vec<u8>, length: usize, input: &'a [u8]) -> &'a [u8] {
    let missing = length.saturating_sub(buffer.len()).min(input.len());
    let (now, later) = input.split_at(missing);
    buffer.extend_from_slice(now);
    later
}

fn payload_length(header: &[u8]) -> usize {
    u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize
}

/// The block with its `:authority` literal replaced; `None` where there is none, or the block is malformed.
fn rewrite(block: &[u8]) -> Option<Vec<u8>> {
    let mut at = 0;
    let mut out = Vec::with_capacity(block.len());
    let mut found = false;
    while at < block.len() {
        let start = at;
        let first = block[at];
        if first & 0x80 != 0 {
            integer(block, &mut at, 7)?; // indexed field, RFC 7541 6.1
        } else if first & 0xe0 == 0x20 {
            integer(block, &mut at, 5)?; // table size, 6.3
        } else {
            let name = integer(block, &mut at, if first & 0x40 != 0 { 6 } else { 4 })?;
            if name == 0 {
                string(block, &mut at)?;
            }
            let value = at;
            let least = string(block, &mut at)?;
            if name == 1 && least > 0 {
                // The peer's table counts its own value: an entry that is no longer is evicted no earlier.
                let authority = &AUTHORITY[..least.min(AUTHORITY.len())];
                out.extend_from_slice(&block[start..value]);
                out.push(u8::try_from(authority.len()).expect("it has at most 9 bytes"));
                out.extend_from_slice(authority);
                found = true;
                continue;
            }
        }
        out.extend_from_slice(&block[start..at]);
    }
    found.then_some(out)
}

/// An integer with a prefix of `bits`, RFC 7541 5.1.
fn integer(block: &[u8], at: &mut usize, bits: u32) -> Option<usize> {
    let most = (1usize << bits) - 1;
    let mut value = usize::from(*block.get(*at)?) & most;
    *at += 1;
    if value < most {
        return Some(value);
    }
    // Four bytes carry 28 bits: no length in a block of 64 KiB needs more.
    for shift in [0, 7, 14, 21] {
        let byte = usize::from(*block.get(*at)?);
        *at += 1;
        value += (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Skips a string, RFC 7541 5.2. Returns the least number of bytes it can decode to.
fn string(block: &[u8], at: &mut usize) -> Option<usize> {
    let huffman = block.get(*at)? & 0x80 != 0;
    let length = integer(block, at, 7)?;
    *at += length;
    if *at > block.len() {
        return None;
    }
    // The longest Huffman code has 30 bits; up to 7 bits are padding.
    Some(match (huffman, length) {
        (false, length) => length,
        (true, 0) => 0,
        (true, length) => (length * 8 - 7).div_ceil(30),
    })
}

// === impl Connection ===

impl<S> Connection<S> {
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            rewriter: Rewriter::default(),
            taken: 0,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            let ready = &this.rewriter.out[this.taken..];
            if !ready.is_empty() {
                let taken = ready.len().min(buf.remaining());
                buf.put_slice(&ready[..taken]);
                this.taken += taken;
                return Poll::Ready(Ok(()));
            }
            this.rewriter.out.clear();
            this.taken = 0;
            let mut bytes = [0; 4096];
            let mut received = ReadBuf::new(&mut bytes);
            match Pin::new(&mut this.stream).poll_read(cx, &mut received) {
                Poll::Ready(Ok(())) if received.filled().is_empty() => {
                    this.rewriter.end();
                    if this.rewriter.out.is_empty() {
                        return Poll::Ready(Ok(()));
                    }
                }
                Poll::Ready(Ok(())) => this.rewriter.receive(received.filled()),
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Connected for Connection<UnixStream> {
    type ConnectInfo = <UnixStream as Connected>::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const PATH: &[u8] = b"%2Fvar%2Flib%2Fkubelet%2Fdevice-plugins%2Fkubelet.sock";

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags, 0, 0, 0, stream]);
        frame.extend(payload);
        frame
    }

    /// `:method POST`, `:scheme http`, `:authority` as an indexed literal, then a literal with a name of its own.
    fn block(authority: &[u8]) -> Vec<u8> {
        let mut block = vec![0x83, 0x86, 0x41, u8::try_from(authority.len()).unwrap()];
        block.extend(authority);
        block.extend([0x40, 2, b't', b'e', 1, b'x']);
        block
    }

    fn through(input: &[u8], cuts: &[usize]) -> Vec<u8> {
        let mut rewriter = Rewriter::default();
        let mut rest = input;
        for cut in cuts {
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            rewriter.receive(now);
            rest = later;
        }
        rewriter.receive(rest);
        rewriter.end();
        rewriter.out
    }

    #[test]
    fn a_path_becomes_localhost_in_every_form_of_header_block() {
        let sent = block(PATH);
        let priority = [0, 0, 0, 0, 16];
        let padded = [&[3][..], &priority, &sent, &[0; 3]].concat();
        let want_plain = frame(HEADERS, 0x5, 1, &block(AUTHORITY));
        let with_priority = frame(
            HEADERS,
            0x24,
            1,
            &[&priority[..], &block(AUTHORITY)].concat(),
        );
        let cases = [
            (frame(HEADERS, 0x5, 1, &sent), want_plain.clone()),
            (frame(HEADERS, 0x2c, 1, &padded), with_priority),
            (
                [
                    frame(HEADERS, 0x1, 1, &sent[..7]),
                    frame(CONTINUATION, 0, 1, &[]),
                    frame(CONTINUATION, 0x4, 1, &sent[7..]),
                ]
                .concat(),
                want_plain,
            ),
        ];
        for (given, want) in cases {
            let data = frame(0, 1, 1, b"body");
            let input = [&PREFACE[..], &given, &data].concat();
            let want = [&PREFACE[..], &want, &data].concat();
            assert_eq!(through(&input, &[]), want);
        }
    }

    #[test]
    fn an_entry_of_the_peers_table_never_grows() {
        let input = [&PREFACE[..], &frame(HEADERS, 0x5, 1, &block(b"%2Fa"))].concat();
        let want = [&PREFACE[..], &frame(HEADERS, 0x5, 1, &block(b"loca"))].concat();
        assert_eq!(through(&input, &[]), want);
    }

    #[test]
    fn a_block_past_the_limit_passes_unread() {
        let mut input = [&PREFACE[..], &frame(HEADERS, 0, 1, &block(PATH))].concat();
        for _ in 0..5 {
            input.extend(frame(CONTINUATION, 0, 1, &[0x20; FRAME_LIMIT]));
        }
        input.extend(frame(CONTINUATION, END_HEADERS, 1, &[]));
        assert_eq!(through(&input, &[]), input);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same(cuts in prop::collection::vec(1..40usize, 0..40), cut in 0..60usize) {
            let sent = block(PATH);
            let cut = cut.min(sent.len());
            let input = [
                &PREFACE[..],
                &frame(4, 0, 0, &[]),
                &frame(HEADERS, 0x1, 1, &sent[..cut]),
                &frame(CONTINUATION, 0x4, 1, &sent[cut..]),
                &frame(0, 1, 1, b"body"),
            ].concat();
            let want = [
                &PREFACE[..],
                &frame(4, 0, 0, &[]),
                &frame(HEADERS, 0x5, 1, &block(AUTHORITY)),
                &frame(0, 1, 1, b"body"),
            ].concat();
            prop_assert_eq!(through(&input, &cuts), want);
        }

        #[test]
        fn frames_without_headers_pass_byte_for_byte(
            frames in prop::collection::vec((0..20u8, any::<u8>(), prop::collection::vec(any::<u8>(), 0..300)), 0..8),
            cuts in prop::collection::vec(1..200usize, 0..20),
        ) {
            let mut input = PREFACE.to_vec();
            for (kind, flags, payload) in frames.iter().filter(|f| f.0 != HEADERS) {
                input.extend(frame(*kind, *flags, 3, payload));
            }
            prop_assert_eq!(through(&input, &cuts), input);
        }

        #[test]
        fn arbitrary_bytes_never_panic_and_never_pile_up(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..20),
        ) {
            let mut rewriter = Rewriter { state: State::Header(Vec::new()), out: Vec::new() };
            for chunk in chunks {
                rewriter.receive(&chunk);
            }
            rewriter.end();
        }

        #[test]
        fn arbitrary_blocks_never_panic(block in prop::collection::vec(any::<u8>(), 0..200), flags in any::<u8>()) {
            through(&[&PREFACE[..], &frame(HEADERS, flags, 1, &block)].concat(), &[]);
            rewrite(&block);
        }
    }
}
