//! Rewrites the bytes of a client so that each authority is legal. It does no I/O.
use super::{
    frames::{CONTINUATION, END_HEADERS, FRAME_HEADER_LEN, Frame, FrameHeader, HEADERS},
    header_block,
};
use std::collections::VecDeque;

/// The length of `PRI * HTTP/2.0\r
/// \r
/// SM\r
/// \r
/// `, by RFC 9113 3.4.
const PREFACE_LEN: usize = 24;
/// The most bytes of one header block that are held back. It is bounded, because the peer decides the size. h2
/// accepts 16 KiB by default. Beyond it: the block passes unchanged.
const HELD_LIMIT: usize = 64 * 1024;
/// The most bytes that are ever held back: the limit, and the header of the frame that would exceed it.
#[cfg(feature = "fuzzing")]
pub const MOST_HELD: usize = HELD_LIMIT + FRAME_HEADER_LEN;

/// Follows the frames of one connection.
pub(super) struct Rewriter {
    state: State,
    /// The frames of an incomplete header block, and the frame header that is being read.
    held: Vec<u8>,
    /// The offset of the last frame in `held`.
    last_frame: usize,
    out: VecDeque<u8>,
}

/// The kind of the next bytes, with the number of bytes that are missing.
#[derive(Clone, Copy)]
enum State {
    /// The bytes do not belong to a header block and pass unchanged.
    Passing(usize),
    /// The bytes of a frame header, which are added to `held`.
    FrameHeader(usize),
    /// The payload of a frame of a header block, which is added to `held`.
    Payload(usize),
}

impl Rewriter {
    pub(super) fn new() -> Self {
        Self {
            state: State::Passing(PREFACE_LEN),
            held: Vec::new(),
            last_frame: 0,
            out: VecDeque::new(),
        }
    }

    pub(super) fn push(&mut self, mut bytes: &[u8]) {
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

    /// Releases the held bytes, because the client sends no more.
    pub(super) fn finish(&mut self) {
        self.release();
    }

    #[cfg(feature = "fuzzing")]
    pub(super) fn held_len(&self) -> usize {
        self.held.len()
    }

    /// Returns bytes that may be read, not always all: the deque may wrap around.
    pub(super) fn readable(&self) -> &[u8] {
        self.out.as_slices().0
    }

    /// Removes the first `len` of the readable bytes.
    pub(super) fn consume(&mut self, len: usize) {
        self.out.drain(..len);
    }

    /// Changes the state as long as no bytes are missing. The loop is needed because a payload may be empty.
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

    /// Decides whether the frame whose header ends `held` belongs to a header block that is to be rewritten.
    fn frame_header_read(&mut self) -> State {
        let (before, frame) = self.held.split_at(self.last_frame);
        let header = FrameHeader::read(frame).expect("the header is whole");
        let is_wanted = match FrameHeader::read(before) {
            None => header.kind == HEADERS,
            // RFC 9113 6.10 forbids other frames within a block. h2 rejects them.
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

/// Returns the frames of one header block with the authority replaced, or `None` if they stay unchanged.
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
    // The block did not grow, so it fits into the original frames, each within the size limit of the peer.
    let mut rest = block.as_slice();
    let mut out = Vec::with_capacity(len);
    for frame in split {
        let (fragment, after) = rest.split_at(frame.fragment.len().min(rest.len()));
        frame.write(fragment, &mut out);
        rest = after;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::{
        super::frames::{PADDED, PRIORITY},
        *,
    };
    use proptest::prelude::*;

    /// The string `localhost` with its length.
    const LOCALHOST: &[u8] = b"\x09localhost";
    const ILLEGAL: &[u8] = b"%2Fvar%2Flib%2Fkubelet.sock";
    /// The same in Huffman codes, with its length, and what replaces it: it has at least six characters.
    const CODED: &[u8] =
        b"\x94\x54\x58\x7b\x8e\xc5\x45\x86\x83\x46\xa8\xb0\xf5\xb6\x32\xd0\x54\xae\x83\x93\xaf";
    const INSTEAD_OF_CODED: &[u8] = b"\x06localh";
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const DATA: u8 = 0x0;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let [.., a, b, c] = payload.len().to_be_bytes();
        [&[a, b, c, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// Returns a block with `:method`, `:authority` as a literal that begins with `kind`, and `content-type`.
    fn block(kind: u8, authority: &[u8]) -> Vec<u8> {
        [&[0x83, kind | 1], authority, b"\x5f\x10application/grpc"].concat()
    }

    fn plain(value: &[u8]) -> Vec<u8> {
        [&[u8::try_from(value.len()).unwrap()], value].concat()
    }

    /// Returns the output for `input` that arrives in pieces of these lengths, repeated.
    fn rewritten(input: &[u8], pieces: &[usize]) -> Vec<u8> {
        let mut rewriter = Rewriter::new();
        let mut out = Vec::new();
        let mut rest = input;
        for piece in pieces.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*piece).clamp(1, rest.len()));
            rewriter.push(piece);
            drain(&mut rewriter, &mut out);
            rest = after;
        }
        rewriter.finish();
        drain(&mut rewriter, &mut out);
        out
    }

    fn drain(rewriter: &mut Rewriter, out: &mut Vec<u8>) {
        while !rewriter.readable().is_empty() {
            let few = rewriter.readable().len().min(7);
            out.extend(&rewriter.readable()[..few]);
            rewriter.consume(few);
        }
    }

    fn connection(frames: &[Vec<u8>]) -> Vec<u8> {
        [PREFACE, &frames.concat()].concat()
    }

    #[test]
    fn a_block_that_is_split_padded_and_prioritised_keeps_its_frames() {
        let old = block(0x40, &plain(ILLEGAL));
        let new = block(0x40, LOCALHOST);
        let input = connection(&[
            frame(
                HEADERS,
                PADDED | PRIORITY,
                &[&[2, 0, 0, 0, 0, 16], &old[..5], &[0, 0]].concat(),
            ),
            frame(CONTINUATION, 0, &old[5..20]),
            frame(CONTINUATION, END_HEADERS, &old[20..]),
            frame(DATA, 1, b"body"),
        ]);
        let expected = connection(&[
            frame(
                HEADERS,
                PADDED | PRIORITY,
                &[&[2, 0, 0, 0, 0, 16], &new[..5], &[0, 0]].concat(),
            ),
            frame(CONTINUATION, 0, &new[5..20]),
            frame(CONTINUATION, END_HEADERS, &new[20..]),
            frame(DATA, 1, b"body"),
        ]);
        assert_eq!(rewritten(&input, &[1]), expected);
        assert_eq!(rewritten(&input, &[1000]), expected);
    }

    #[test]
    fn a_payload_that_is_no_header_block_goes_out_as_it_comes() {
        let mut rewriter = Rewriter::new();
        let mut out = Vec::new();
        rewriter.push(PREFACE);
        rewriter.push(&frame(DATA, PADDED, &[7; 1000])[..10]);
        drain(&mut rewriter, &mut out);
        assert_eq!(out.len(), PREFACE.len() + 10);
        assert!(rewriter.held.is_empty());
    }

    #[test]
    fn what_is_malformed_passes_unchanged() {
        let illegal = block(0x40, &plain(ILLEGAL));
        for frames in [
            // The padding is longer than the payload.
            vec![frame(
                HEADERS,
                END_HEADERS | PADDED,
                &[&[255], illegal.as_slice()].concat(),
            )],
            vec![frame(HEADERS, END_HEADERS | PADDED, &[])],
            vec![frame(HEADERS, END_HEADERS | PRIORITY, &[0, 0])],
            // The block ends within a field.
            vec![frame(HEADERS, END_HEADERS, &illegal[..illegal.len() - 1])],
            // Another frame comes between the frames of the block: another type, another stream.
            vec![
                frame(HEADERS, 0, &illegal[..1]),
                frame(DATA, 0, &[0x83]),
                frame(CONTINUATION, END_HEADERS, &illegal[1..]),
            ],
            vec![
                frame(HEADERS, 0, &illegal[..1]),
                vec![0, 0, 1, CONTINUATION, 0, 0, 0, 0, 3, 0x83],
                frame(CONTINUATION, END_HEADERS, &illegal[1..]),
            ],
            // The connection ends before the block is complete.
            vec![frame(HEADERS, 0, &illegal), vec![0, 0]],
        ] {
            let input = connection(&frames);
            assert_eq!(rewritten(&input, &[3]), input, "{frames:?}");
        }
    }

    #[test]
    fn a_block_beyond_the_limit_passes_unchanged_and_is_not_held() {
        let illegal = block(0x40, &plain(ILLEGAL));
        // The header `x: ""` fills the block.
        let filler = [0x00, 1, b'x', 0].repeat(4096);
        let mut frames = vec![frame(HEADERS, 0, &illegal)];
        frames.extend(vec![frame(CONTINUATION, 0, &filler); 5]);
        frames.push(frame(CONTINUATION, END_HEADERS, &[]));
        let mut next = frames.clone();
        next.push(frame(HEADERS, END_HEADERS, &illegal));
        let mut expected = frames;
        expected.push(frame(HEADERS, END_HEADERS, &block(0x40, LOCALHOST)));
        assert_eq!(
            rewritten(&connection(&next), &[4000]),
            connection(&expected)
        );

        let mut rewriter = Rewriter::new();
        rewriter.push(PREFACE);
        for _ in 0..100 {
            rewriter.push(&frame(HEADERS, 0, &[]));
            rewriter.push(&frame(CONTINUATION, 0, &[]).repeat(10_000));
            assert!(rewriter.held.len() <= HELD_LIMIT);
        }
    }

    proptest! {
        #[test]
        fn an_illegal_authority_becomes_localhost_however_it_arrives(
            kind in prop::sample::select(&[0x40, 0x00, 0x10][..]),
            is_huffman: bool,
            body: Vec<u8>,
            pieces in prop::collection::vec(1_usize..40, 1..20),
        ) {
            let old = if is_huffman { CODED.to_vec() } else { plain(ILLEGAL) };
            let new = if is_huffman { INSTEAD_OF_CODED } else { LOCALHOST };
            let request = |authority: &[u8]| connection(&vec![[
                frame(4, 0, &[]),
                frame(HEADERS, END_HEADERS, &block(kind, authority)),
                frame(DATA, 1, &body),
            ].concat(); 2]);
            prop_assert_eq!(rewritten(&request(&old), &pieces), request(new));
        }

        #[test]
        fn whatever_arrives_is_rewritten_once(
            frames in prop::collection::vec((0_u8..12, any::<u8>(), any::<Vec<u8>>()), 0..12),
            garbage: Vec<u8>,
            pieces in prop::collection::vec(1_usize..60, 1..20),
        ) {
            let mut frames: Vec<_> =
                frames.iter().map(|(kind, flags, payload)| frame(*kind, *flags, payload)).collect();
            frames.push(garbage);
            let input = connection(&frames);
            let out = rewritten(&input, &pieces);
            // A block may have an authority by chance.
            prop_assert!(out.len() <= input.len());
            prop_assert_eq!(rewritten(&out, &pieces), out);
        }

        #[test]
        fn other_frames_pass_byte_for_byte_beside_any_headers(
            payloads in prop::collection::vec(any::<Vec<u8>>(), 1..6),
            kind in prop::sample::select(&[0_u8, 2, 3, 4, 5, 6, 7, 8, 200][..]),
            flags: u8,
            pieces in prop::collection::vec(1_usize..60, 1..20),
        ) {
            let with = |authority: &[u8]| connection(&payloads.iter().flat_map(|payload| [
                frame(kind, flags, payload),
                frame(HEADERS, END_HEADERS, &block(0x40, authority)),
            ]).collect::<Vec<_>>());
            prop_assert_eq!(rewritten(&with(&plain(ILLEGAL)), &pieces), with(LOCALHOST));
        }
    }
}
