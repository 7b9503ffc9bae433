//! Replaces the `:authority` in an HPACK header block (RFC 7541). The dynamic table is not decoded. Fields are skipped
//! by their lengths, and only the value of the literal is read whose name is entry 1 of the static table, or is written out.
//! Every encoder known to us sends the field in one of these forms first. Later it sends an index into the dynamic table,
//! which contains our value.

/// The value that replaces an authority.
pub(super) const LOCALHOST: &[u8] = b"localhost";

/// The index of `:authority` in the static table, by RFC 7541 appendix A.
const AUTHORITY: usize = 1;
/// The name as it is, and in Huffman codes.
const AUTHORITY_NAMES: [&[u8]; 2] = [b"\x0a:authority", b"\x88\xb8\x3b\x53\x39\xec\x32\x7d\x7f"];
/// The bit in the first byte of a string that marks Huffman coding, by RFC 7541 5.2.
const HUFFMAN: u8 = 0x80;
/// The bits of the longest Huffman code, by RFC 7541 appendix B, and the most bits of padding.
const LONGEST_CODE: usize = 30;
const PADDING_BITS: usize = 7;

/// Returns `block` with the authority replaced; it is never longer than before. Returns `None` if there is no authority, if it is
/// replaced already, or if the block is malformed. Nobody behind a Unix socket reads the authority, so a legal one is replaced, too:
/// to tell them apart, Huffman codes would have to be decoded.
///
/// The replacement also enters the decoder's dynamic table, which evicts entries by size (RFC 7541 4.1, 4.4), while the
/// peer's encoder counts its own, original entry. That is safe as long as our entry is not larger. Both tables keep the
/// newest entries that fit into the same capacity, so our table keeps at least the entries of the peer's table, even if
/// the original is too large for the table and empties it. Indexes count from the newest entry, so each index that the
/// peer may use means the same entry here. A value that may be shorter than [`LOCALHOST`] is replaced by only as many
/// characters of it as the value has at least.
pub(super) fn with_legal_authority(block: &[u8]) -> Option<Vec<u8>> {
    let mut fields = Reader(block);
    let mut out = Vec::with_capacity(block.len());
    let mut is_changed = false;
    while let Some(&first) = fields.0.first() {
        let field = fields.0;
        let value = fields.field(first)?;
        let read = &field[..field.len() - fields.0.len()];
        match value.and_then(|value| Some((value, legal_instead_of(value)?))) {
            None => out.extend(read),
            Some((value, legal)) => {
                out.extend(&read[..read.len() - value.len()]);
                out.extend(legal);
                is_changed = true;
            }
        }
    }
    is_changed.then_some(out)
}

/// Returns the string that replaces `authority`; both start with their length. Returns `None` if it is the same, or empty.
fn legal_instead_of(authority: &[u8]) -> Option<Vec<u8>> {
    let is_huffman = authority.first()? & HUFFMAN != 0;
    let value = Reader(authority).string()?;
    let least = if is_huffman {
        (8 * value.len())
            .saturating_sub(PADDING_BITS)
            .div_ceil(LONGEST_CODE)
    } else {
        value.len()
    };
    let host = &LOCALHOST[..LOCALHOST.len().min(least)];
    let len = u8::try_from(host.len()).expect("the name is short");
    let legal: Vec<u8> = [&[len], host].concat();
    (len > 0 && legal != authority).then_some(legal)
}

/// The unread rest of a block. Its methods return `None` if the block is malformed.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads one field that begins with `first`. Returns the value with its length if the field is a literal
    /// `:authority`.
    fn field(&mut self, first: u8) -> Option<Option<&'a [u8]>> {
        let name_bits = match first {
            // RFC 7541 6.1 is an indexed field, and 6.3 is a size of the table.
            0x80.. => return self.integer(7).map(|_| None),
            0x20..=0x3f => return self.integer(5).map(|_| None),
            // RFC 7541 6.2.1 is a literal with incremental indexing; 6.2.2 and 6.2.3 are literals without it.
            0x40..=0x7f => 6,
            0x00..=0x1f => 4,
        };
        let name = self.integer(name_bits)?;
        let is_authority = match name {
            // grpcio, the gRPC of Python, Ruby and C++, writes the name out.
            0 => AUTHORITY_NAMES.contains(&self.string_with_length()?),
            name => name == AUTHORITY,
        };
        let value = self.string_with_length()?;
        Some(is_authority.then_some(value))
    }

    /// Reads a string as it is coded, with its length.
    fn string_with_length(&mut self) -> Option<&'a [u8]> {
        let before = self.0;
        self.string()?;
        Some(&before[..before.len() - self.0.len()])
    }

    /// Reads an integer, by RFC 7541 5.1.
    fn integer(&mut self, prefix_bits: u32) -> Option<usize> {
        let mask = (1 << prefix_bits) - 1;
        let mut value = usize::from(self.byte()? & mask);
        if value < usize::from(mask) {
            return Some(value);
        }
        // Four more bytes encode up to 2^28. That exceeds any length here, and no shift overflows.
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a string as it is coded, without its length, by RFC 7541 5.2.
    fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.integer(7)?;
        let (string, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(string)
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `%2Fvar%2Flib%2Fa.sock` in Huffman codes: at least five characters.
    const CODED: &[u8] = b"\x54\x58\x7b\x8e\xc5\x45\x86\x83\x46\xa8\xb0\x8d\x74\x1c\x9d\x7f";
    /// `localhost` in Huffman codes: at least two characters.
    const CODED_LOCALHOST: &[u8] = b"\xa0\xe4\x1d\x13\x9d\x09";

    fn literal(first: u8, value: &[u8]) -> Vec<u8> {
        [&[first, u8::try_from(value.len()).unwrap()], value].concat()
    }

    fn huffman_literal(first: u8, coded: &[u8]) -> Vec<u8> {
        let mut literal = literal(first, coded);
        literal[1] |= HUFFMAN;
        literal
    }

    #[test]
    fn every_form_of_a_literal_is_replaced_and_keeps_its_form() {
        for first in [0x41, 0x01, 0x11] {
            for value in [
                &b"%2Fvar%2Flib%2Fa.sock"[..],
                b"/var/lib/a.sock",
                b"a%2Fb.sock",
                b"example.com:443",
            ] {
                let expected = Some(literal(first, LOCALHOST));
                assert_eq!(with_legal_authority(&literal(first, value)), expected);
            }
            for (coded, host) in [(CODED, &b"local"[..]), (CODED_LOCALHOST, b"lo")] {
                let expected = Some(literal(first, host));
                assert_eq!(
                    with_legal_authority(&huffman_literal(first, coded)),
                    expected
                );
            }
        }
    }

    #[test]
    fn an_authority_whose_name_is_written_out_is_replaced_as_grpcio_sends_it() {
        for name in AUTHORITY_NAMES {
            let plain = &literal(0, b"%2Fvar%2Flib%2Fa.sock")[1..];
            let huffman = &huffman_literal(0, CODED)[1..];
            for (value, host) in [(plain, LOCALHOST), (huffman, b"local")] {
                for first in [0x40, 0x00, 0x10] {
                    let field = [&[first], name, value].concat();
                    let expected = [&[first], name, &literal(0, host)[1..]].concat();
                    assert_eq!(with_legal_authority(&field), Some(expected));
                }
            }
        }
        let other = [&literal(0x40, b"x-authority"), &literal(0, b"/a%2F")[1..]].concat();
        assert_eq!(with_legal_authority(&other), None);
    }

    #[test]
    fn other_fields_and_replaced_authorities_stay() {
        for field in [
            literal(0x41, b"localhost"),
            literal(0x41, b"lo"),
            literal(0x41, b""),
            huffman_literal(0x41, b""),
            // These are `:path`, and a name that is written out.
            literal(0x44, b"/v1beta1.Registration/Register"),
            b"\x40\x01x\x02/y".to_vec(),
            // These are an index, and a table size of more than one byte.
            vec![0x81, 0x3f, 0xe1, 0x1f],
        ] {
            assert_eq!(with_legal_authority(&field), None, "{field:?}");
        }
    }

    #[test]
    fn the_fields_around_are_kept() {
        let other = [
            literal(0x44, b"/a%2F"),
            vec![0x83, 0x3f, 0xe1, 0x1f],
            b"\x00\x01x\x02/y".to_vec(),
        ]
        .concat();
        let with = |field: Vec<u8>| [other.clone(), field, other.clone()].concat();
        assert_eq!(
            with_legal_authority(&with(literal(0x01, b"/var/lib/a.sock"))),
            Some(with(literal(0x01, LOCALHOST)))
        );
    }

    #[test]
    fn an_authority_is_never_replaced_by_a_longer_one() {
        let shorter = Some(literal(0x41, b"loca"));
        assert_eq!(with_legal_authority(&literal(0x41, b"/a.b")), shorter);
        // A code has 30 bits at most: 33 bits are two characters at least.
        for (bytes, host) in [(1, b"l".as_slice()), (4, b"l"), (5, b"lo")] {
            let expected = Some(literal(0x41, host));
            let coded = huffman_literal(0x41, &vec![0; bytes]);
            assert_eq!(with_legal_authority(&coded), expected);
        }
    }

    #[test]
    fn numbers_without_end_are_malformed() {
        assert_eq!(Reader(b"\x7f\x9a\x0a").integer(5), Some(1337));
        assert_eq!(Reader(&[0xff; 20]).integer(7), None);
        assert_eq!(Reader(b"\x1f").integer(5), None);
    }

    proptest! {
        #[test]
        fn a_block_never_grows_and_is_replaced_once(block: Vec<u8>, authority in prop::collection::vec(any::<u8>(), 0..99), is_huffman: bool) {
            let literal = if is_huffman { huffman_literal } else { literal };
            let with = [literal(0x41, &authority), block.clone()].concat();
            for block in [block, with] {
                if let Some(legal) = with_legal_authority(&block) {
                    prop_assert!(legal.len() <= block.len());
                    prop_assert_eq!(with_legal_authority(&legal), None);
                }
            }
        }
    }
}
