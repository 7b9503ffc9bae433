//! The adapter in front of h2: header blocks (RFC 7541) and whole connections (RFC 9113).
use petiole_kubelet_api::uds::fuzzing::{MOST_HELD, rewritten, with_legal_authority};

const PREFACE_LEN: usize = 24;
const FRAME_HEADER_LEN: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

/// An input is a header block.
pub fn run_block(block: &[u8]) {
    let Some(legal) = with_legal_authority(block) else {
        return;
    };
    assert!(legal.len() <= block.len(), "the block grew");
    assert_eq!(with_legal_authority(&legal), None, "it is legal already");
    let (before, after) = (fields(block), fields(&legal));
    let before = before.expect("what is malformed passes unchanged");
    let after = after.expect("what was well formed still is");
    assert_eq!(before.len(), after.len());
    for (before, after) in before.iter().zip(after) {
        assert_eq!(before.name, after.name);
        assert!(before.is_authority() || before.value == after.value);
    }
}

/// An input is the length of the pieces in which it arrives, a byte, and what a client sends.
pub fn run_connection(input: &[u8]) {
    let Some((piece, bytes)) = input.split_first() else {
        return;
    };
    let whole = rewritten([bytes]);
    let pieces = rewritten(bytes.chunks(usize::from(*piece).max(1)));
    assert_eq!(whole.bytes, pieces.bytes, "the pieces matter");
    assert!(whole.held.max(pieces.held) <= MOST_HELD);
    assert_eq!(rewritten([whole.bytes.as_slice()]).bytes, whole.bytes);
    let (mut before, mut after) = (bytes, whole.bytes.as_slice());
    let preface = bytes.len().min(PREFACE_LEN);
    assert_eq!(take(&mut before, preface), take(&mut after, preface));
    while let Some(frame) = frame(&mut before) {
        let now = self::frame(&mut after).expect("no frame is lost");
        assert_eq!(frame.head, now.head);
        assert!(now.payload.len() <= frame.payload.len(), "a frame grew");
        let has_fields = [HEADERS, CONTINUATION].contains(&frame.head[0]);
        assert!(
            has_fields || frame.payload == now.payload,
            "another frame was changed"
        );
    }
    assert_eq!(before, after, "what is no whole frame stays");
}

struct Frame<'a> {
    /// Kind, flags, stream.
    head: &'a [u8],
    payload: &'a [u8],
}

fn frame<'a>(bytes: &mut &'a [u8]) -> Option<Frame<'a>> {
    let (header, rest) = bytes.split_at_checked(FRAME_HEADER_LEN)?;
    let len = u32::from_be_bytes([0, header[0], header[1], header[2]]);
    let (payload, rest) = rest.split_at_checked(len as usize)?;
    *bytes = rest;
    Some(Frame {
        head: &header[3..],
        payload,
    })
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

/// A field as it is written.
#[derive(Default)]
struct Field<'a> {
    /// All before the value.
    name: &'a [u8],
    name_index: Option<u64>,
    value: &'a [u8],
}

impl Field<'_> {
    fn is_authority(&self) -> bool {
        // The name as it is, and in Huffman codes.
        let names: [&[u8]; 2] = [b":authority", b"\xb8\x3b\x53\x39\xec\x32\x7d\x7f"];
        match self.name_index {
            Some(0) => names.iter().any(|name| self.name.ends_with(name)),
            index => index == Some(1),
        }
    }
}

/// The fields of a block, by a reader of its own.
fn fields(mut block: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut fields = vec![];
    while let Some(&first) = block.first() {
        let start = block;
        let read = |rest: &[u8]| &start[..start.len() - rest.len()];
        let (prefix, is_literal) = match first.leading_zeros() {
            0 => (7, false),
            1 => (6, true),
            2 => (5, false),
            _ => (4, true),
        };
        let index = integer(&mut block, prefix)?;
        if is_literal && index == 0 {
            string(&mut block)?;
        }
        let mut field = Field {
            name: read(block),
            ..Field::default()
        };
        if is_literal {
            field.name_index = Some(index);
            field.value = string(&mut block)?;
        }
        fields.push(field);
    }
    Some(fields)
}

/// RFC 7541 5.1.
fn integer(bytes: &mut &[u8], prefix: u32) -> Option<u64> {
    let most = (1 << prefix) - 1;
    let mut value = u64::from(*bytes.first()?) & most;
    *bytes = &bytes[1..];
    if value < most {
        return Some(value);
    }
    let mut shift = 0;
    loop {
        let byte = u64::from(*bytes.first()?);
        *bytes = &bytes[1..];
        value = value.checked_add((byte & 0x7f).checked_shl(shift)?)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
        shift += 7;
    }
}

/// RFC 7541 5.2, with its length.
fn string<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let start = *bytes;
    let len = usize::try_from(integer(bytes, 7)?).ok()?;
    let (_, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(&start[..start.len() - rest.len()])
}
