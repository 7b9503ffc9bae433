//! Parses and writes the frames of an HTTP/2 connection that carry header fields (RFC 9113 4.1, 6.2, 6.10).

pub(super) const FRAME_HEADER_LEN: usize = 9;
pub(super) const HEADERS: u8 = 0x1;
pub(super) const CONTINUATION: u8 = 0x9;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITY: u8 = 0x20;

/// The header of a frame: length (3 bytes), type (1), flags (1) and stream (4), by RFC 9113 4.1.
#[derive(Clone, Copy)]
pub(super) struct FrameHeader {
    pub(super) len: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: [u8; 4],
}

impl FrameHeader {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, kind, flags, ref stream @ ..] = bytes.first_chunk::<FRAME_HEADER_LEN>()?;
        Some(Self {
            len: usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c),
            kind,
            flags,
            stream: *stream,
        })
    }
}

/// A HEADERS or CONTINUATION frame, split into its parts.
pub(super) struct Frame<'a> {
    header: &'a [u8],
    /// The length of the padding and the priority, if the frame has them.
    before: &'a [u8],
    pub(super) fragment: &'a [u8],
    padding: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Splits the first frame off `bytes`. Returns `None` if it is malformed.
    pub(super) fn split_first(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let FrameHeader {
            len, kind, flags, ..
        } = FrameHeader::read(bytes)?;
        let (header, rest) = bytes.split_at(FRAME_HEADER_LEN);
        let (payload, rest) = rest.split_at_checked(len)?;
        let has = |flag| kind == HEADERS && flags & flag != 0;
        let padding_len = if has(PADDED) { *payload.first()? } else { 0 };
        // RFC 9113 6.2 has one byte of length, then four of stream dependency and one of weight.
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

    /// Appends this frame with another fragment, which must not be longer than the original.
    pub(super) fn write(&self, fragment: &[u8], out: &mut Vec<u8>) {
        let len = self.before.len() + fragment.len() + self.padding.len();
        let [.., a, b, c] = len.to_be_bytes();
        out.extend([a, b, c]);
        out.extend(&self.header[3..]);
        out.extend(self.before);
        out.extend(fragment);
        out.extend(self.padding);
    }
}
