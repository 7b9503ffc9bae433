//! Makes an illegal `:authority` legal before h2 sees it.
//!
//! A grpc-go client that dials a bare path sends the path as `:authority: %2Fvar%2Flib…`, which h2 answers with
//! `RST_STREAM PROTOCOL_ERROR`. [`LegalAuthority`] wraps a connection and puts [`LOCALHOST`] in its place; the pure
//! [`Rewriter`] inside walks the frames, and `header_block` the header fields. All else passes as it came: what is
//! malformed is h2's to refuse.
use super::header_block;
use std::{
    collections::VecDeque,
    io,
    io::Read as _,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`: RFC 9113 3.4.
const PREFACE_LEN: usize = 24;
/// Length (3), type (1), flags (1), stream (4): RFC 9113 4.1.
const FRAME_HEADER_LEN: usize = 9;
const HEADERS: u8 = 0x1;
const CONTINUATION: u8 = 0x9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// Frames of one header block that are held at most, in bytes: a peer must not make us hold more. A block beyond
/// passes unchanged. h2 takes 16 KiB unless told otherwise.
const HELD_LIMIT: usize = 64 * 1024;
/// How much is read from the socket at once, in bytes. Twice this is what h2 reads at once by default.
const READ_LEN: usize = 8 * 1024;

/// A server's side of a connection, whose requests have a legal `:authority`.
pub struct LegalAuthority<S> {
    inner: S,
    rewriter: Rewriter,
    ended: bool,
}

impl<S> LegalAuthority<S> {
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            rewriter: Rewriter::new(),
            ended: false,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LegalAuthority<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let taken = this.rewriter.take(buf.initialize_unfilled());
            buf.advance(taken);
            if taken > 0 || this.ended || buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let mut chunk = [MaybeUninit::uninit(); READ_LEN];
            let mut chunk = ReadBuf::uninit(&mut chunk);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut chunk))?;
            if chunk.filled().is_empty() {
                this.ended = true;
                this.rewriter.finish();
            } else {
                this.rewriter.push(chunk.filled());
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LegalAuthority<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<S: Connected> Connected for LegalAuthority<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.inner.connect_info()
    }
}

/// What a client sends, in; the same with legal authorities, out.
struct Rewriter {
    state: State,
    /// Frames of a header block that is not whole yet, and the frame header being read.
    held: Vec<u8>,
    /// Where in `held` the last frame begins.
    last_frame: usize,
    out: VecDeque<u8>,
}

/// What the next bytes are; with how many of them are missing.
#[derive(Clone, Copy)]
enum State {
    /// Not a header block: goes out as it comes.
    Passing(usize),
    /// A frame header, to `held`.
    FrameHeader(usize),
    /// The payload of a frame of a header block, to `held`.
    Payload(usize),
}

impl Rewriter {
    fn new() -> Self {
        Self {
            state: State::Passing(PREFACE_LEN),
            held: Vec::new(),
            last_frame: 0,
            out: VecDeque::new(),
        }
    }

    fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (State::Passing(missing) | State::FrameHeader(missing) | State::Payload(missing)) =
                self.state;
            let (piece, rest) = bytes.split_at(missing.min(bytes.len()));
            let missing = missing - piece.len();
            self.state = match self.state {
                State::Passing(_) => {
                    self.out.extend(piece);
                    State::Passing(missing)
                }
                State::FrameHeader(_) => {
                    self.held.extend_from_slice(piece);
                    State::FrameHeader(missing)
                }
                State::Payload(_) => {
                    self.held.extend_from_slice(piece);
                    State::Payload(missing)
                }
            };
            self.step();
            bytes = rest;
        }
    }

    /// The client sends no more: what is held will not become whole.
    fn finish(&mut self) {
        self.release();
    }

    /// Fills `into` with what may be read on; how many bytes that were.
    fn take(&mut self, into: &mut [u8]) -> usize {
        // The deque's `read` gives its first half alone when it wraps around: as good as a short read.
        self.out
            .read(into)
            .expect("reading from memory does not fail")
    }

    /// Goes on to the next state while nothing is missing in this one: a payload may be empty.
    fn step(&mut self) {
        loop {
            self.state = match self.state {
                State::FrameHeader(0) => self.frame_header_read(),
                State::Payload(0) => {
                    self.payload_read();
                    self.next_frame()
                }
                State::Passing(0) => self.next_frame(),
                State::Passing(_) | State::FrameHeader(_) | State::Payload(_) => return,
            };
        }
    }

    fn next_frame(&mut self) -> State {
        self.last_frame = self.held.len();
        State::FrameHeader(FRAME_HEADER_LEN)
    }

    /// Whether the frame whose header ends `held` belongs to a header block that we look into.
    fn frame_header_read(&mut self) -> State {
        let (before, frame) = self.held.split_at(self.last_frame);
        let header = FrameHeader::read(frame).expect("the header is whole");
        let is_wanted = match FrameHeader::read(before) {
            None => header.kind == HEADERS,
            // RFC 9113 6.10: nothing may come between the frames of a block. h2 will refuse what does.
            Some(first) => header.kind == CONTINUATION && header.stream == first.stream,
        };
        if is_wanted && self.held.len() + header.len <= HELD_LIMIT {
            return State::Payload(header.len);
        }
        self.release();
        State::Passing(header.len)
    }

    fn payload_read(&mut self) {
        let last = FrameHeader::read(&self.held[self.last_frame..]);
        if last.is_none_or(|header| header.flags & END_HEADERS == 0) {
            return;
        }
        if let Some(legal) = with_legal_authority(&self.held) {
            self.held = legal;
        }
        self.release();
    }

    fn release(&mut self) {
        self.out.extend(&self.held);
        self.held.clear();
    }
}

#[derive(Clone, Copy)]
struct FrameHeader {
    len: usize,
    kind: u8,
    flags: u8,
    stream: [u8; 4],
}

impl FrameHeader {
    fn read(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, kind, flags, ref stream @ ..] = bytes.first_chunk::<FRAME_HEADER_LEN>()?;
        Some(Self {
            len: usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c),
            kind,
            flags,
            stream: *stream,
        })
    }
}

/// A HEADERS or CONTINUATION frame in its parts.
struct Frame<'a> {
    header: &'a [u8],
    /// Length of the padding, and the priority, where there are.
    before: &'a [u8],
    fragment: &'a [u8],
    padding: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The first frame of `bytes`, and the bytes after it. `None` when it is malformed.
    fn split_first(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let FrameHeader {
            len, kind, flags, ..
        } = FrameHeader::read(bytes)?;
        let (header, rest) = bytes.split_at(FRAME_HEADER_LEN);
        let (payload, rest) = rest.split_at_checked(len)?;
        let has = |flag| kind == HEADERS && flags & flag != 0;
        let padding_len = if has(PADDED) { *payload.first()? } else { 0 };
        // RFC 9113 6.2: one byte of length, then four of stream dependency and one of weight.
        let before_len = usize::from(has(PADDED)) + if has(PRIORITY) { 5 } else { 0 };
        let (before, payload) = payload.split_at_checked(before_len)?;
        let fragment_len = payload.len().checked_sub(usize::from(padding_len))?;
        let (fragment, padding) = payload.split_at(fragment_len);
        let frame = Self {
            header,
            before,
            fragment,
            padding,
        };
        Some((frame, rest))
    }

    /// Appends this frame with another fragment, no longer than the one it has.
    fn write(&self, fragment: &[u8], out: &mut Vec<u8>) {
        let len = self.before.len() + fragment.len() + self.padding.len();
        let [.., a, b, c] = len.to_be_bytes();
        out.extend([a, b, c]);
        out.extend(&self.header[3..]);
        out.extend(self.before);
        out.extend(fragment);
        out.extend(self.padding);
    }
}

/// The frames of one header block with the authority replaced; `None` when they shall stay as they are.
fn with_legal_authority(mut frames: &[u8]) -> Option<Vec<u8>> {
    let len = frames.len();
    let mut split = Vec::new();
    while !frames.is_empty() {
        let (frame, rest) = Frame::split_first(frames)?;
        split.push(frame);
        frames = rest;
    }
    let block: Vec<u8> = split
        .iter()
        .flat_map(|frame| frame.fragment)
        .copied()
        .collect();
    let block = header_block::with_legal_authority(&block)?;
    // The block did not grow, so it fits in the frames it came in, each within the size that the peer may send.
    let mut rest = block.as_slice();
    let mut out = Vec::with_capacity(len);
    for frame in split {
        let (fragment, after) = rest.split_at(frame.fragment.len().min(rest.len()));
        frame.write(fragment, &mut out);
        rest = after;
    }
    Some(out)
}
