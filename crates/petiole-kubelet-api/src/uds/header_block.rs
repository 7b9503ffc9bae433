//! Replaces the `:authority` in an HPACK header block (RFC 7541). The dynamic table is not decoded. Fields are skipped
//! by their lengths, and only the value of the literal is read whose name is entry 1 of the static table, or is written out.
//! Every encoder known to us sends the field in one of these forms first. Later it sends an index into the dynamic table,
//! which contains our value.

/// The value that replaces an illegal authority.
pub(super) const LOCALHOST: &[u8] = b"localhost";

/// The index of `:authority` in the static table, by RFC 7541 appendix A.
const AUTHORITY: usize = 1;
const AUTHORITY_NAME: &[u8] = b":authority";
/// The bit in the first byte of a string that marks Huffman coding, by RFC 7541 5.2.
const HUFFMAN: u8 = 0x80;

/// The Huffman codes of the printable characters except `\`, and of NUL, by RFC 7541 appendix B. A row has the number
/// of bits, the first code, and the characters that have this code and the following ones. An authority with any other
/// character is left unchanged.
const HUFFMAN_CODES: [(u32, u32, &[u8]); 10] = [
    (5, 0x0, b"012aceiost"),
    (6, 0x14, b" %-./3456789=A_bdfghlmnpru"),
    (7, 0x5c, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, 0xf8, b"&*,;XZ"),
    (10, 0x3f8, b"!\"()?"),
    (11, 0x7fa, b"'+|"),
    (12, 0xffa, b"#>"),
    (13, 0x1ff8, b"\0$@[]~"),
    (14, 0x3ffc, b"^}"),
    (15, 0x7ffc, b"<`{"),
];

/// Returns `block` with the illegal authority replaced; it is never longer than before. Returns `None` if there is no
/// illegal authority or the block is malformed.
///
/// The replacement also enters the decoder's dynamic table, which evicts entries by size (RFC 7541 4.1, 4.4), while the
/// peer's encoder counts its own, original entry. That is safe as long as our entry is not larger. Both tables keep the
/// newest entries that fit into the same capacity, so our table keeps at least the entries of the peer's table, even if
/// the original is too large for the table and empties it. Indexes count from the newest entry, so each index that the
/// peer may use means the same entry here. A value that is shorter than [`LOCALHOST`] is replaced by only as many
/// characters of it.
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

/// Returns the string that replaces `authority`; both start with their length. Returns `None` if the authority is legal
/// or cannot be read, or if the replacement would be longer. A longer one could exceed the frame size that h2 accepts.
fn legal_instead_of(authority: &[u8]) -> Option<Vec<u8>> {
    let is_huffman = authority.first()? & HUFFMAN != 0;
    let value = Reader(authority).string()?;
    let decoded;
    let value = if is_huffman {
        decoded = from_huffman(value)?;
        decoded.as_slice()
    } else {
        value
    };
    if !value.contains(&b'%') && !value.starts_with(b"/") {
        return None;
    }
    let host = to_huffman(&LOCALHOST[..LOCALHOST.len().min(value.len())]);
    let len = u8::try_from(host.len()).expect("the name is short");
    let legal: Vec<u8> = [HUFFMAN | len].into_iter().chain(host).collect();
    (legal.len() <= authority.len()).then_some(legal)
}

/// Returns whether a string, which starts with its length, is the name `:authority`.
fn is_authority(name: &[u8]) -> bool {
    let is_huffman = name.first().is_some_and(|first| first & HUFFMAN != 0);
    let coded = Reader(name).string().unwrap_or_default();
    if is_huffman {
        from_huffman(coded).is_some_and(|name| name == AUTHORITY_NAME)
    } else {
        coded == AUTHORITY_NAME
    }
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
            0 => is_authority(self.string_with_length()?),
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

/// Decodes a Huffman string, by RFC 7541 5.2. Returns `None` if a character is not in [`HUFFMAN_CODES`] or the padding
/// is invalid.
fn from_huffman(coded: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    let (mut code, mut bits) = (0_u32, 0_u32);
    for bit in coded
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |n| byte >> n & 1))
    {
        code = code << 1 | u32::from(bit);
        bits += 1;
        let symbol = HUFFMAN_CODES
            .iter()
            .find(|(row_bits, ..)| *row_bits == bits)
            .and_then(|(_, first, symbols)| symbols.get(code.checked_sub(*first)? as usize));
        if let Some(symbol) = symbol {
            decoded.push(*symbol);
            (code, bits) = (0, 0);
        } else if bits > 15 {
            return None;
        }
    }
    // The padding is less than a byte of ones.
    (bits < 8 && code == (1 << bits) - 1).then_some(decoded)
}

/// Encodes a string with Huffman codes. `text` may contain only characters of [`HUFFMAN_CODES`]; others are dropped.
pub(super) fn to_huffman(text: &[u8]) -> Vec<u8> {
    let mut coded = Vec::new();
    let (mut pending, mut bits) = (0_u64, 0_u32);
    for character in text {
        for (row_bits, first, symbols) in HUFFMAN_CODES {
            if let Some(nth) = symbols.iter().position(|symbol| symbol == character) {
                pending = pending << row_bits | (u64::from(first) + nth as u64);
                bits += row_bits;
            }
        }
        while bits >= 8 {
            bits -= 8;
            coded.push((pending >> bits) as u8);
            pending &= (1 << bits) - 1;
        }
    }
    if bits > 0 {
        let padding = 8 - bits;
        coded.push((pending << padding) as u8 | ((1 << padding) - 1));
    }
    coded
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn literal(first: u8, value: &[u8]) -> Vec<u8> {
        [&[first, u8::try_from(value.len()).unwrap()], value].concat()
    }

    fn huffman_literal(first: u8, value: &[u8]) -> Vec<u8> {
        let mut literal = literal(first, &to_huffman(value));
        literal[1] |= HUFFMAN;
        literal
    }

    #[test]
    fn strings_are_coded_as_in_the_rfc() {
        // The examples are those of RFC 7541 C.4.1 and C.4.2.
        let host = b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
        assert_eq!(to_huffman(b"www.example.com"), host);
        assert_eq!(from_huffman(host).unwrap(), b"www.example.com");
        assert_eq!(to_huffman(b"no-cache"), b"\xa8\xeb\x10\x64\x9c\xbf");
        // These are a whole byte of padding, padding with a zero, and a character that is not in the table.
        assert_eq!(from_huffman(b"\xff"), None);
        assert_eq!(from_huffman(b"\x18"), None);
        assert_eq!(from_huffman(b"\xff\xfe\x1f"), None);
    }

    #[test]
    fn every_form_of_an_illegal_literal_is_replaced_and_keeps_its_form() {
        for first in [0x41, 0x01, 0x11] {
            let expected = Some(huffman_literal(first, LOCALHOST));
            for illegal in [
                &b"%2Fvar%2Flib%2Fa.sock"[..],
                b"/var/lib/a.sock",
                b"a%2Fb.sock",
            ] {
                assert_eq!(with_legal_authority(&literal(first, illegal)), expected);
                assert_eq!(
                    with_legal_authority(&huffman_literal(first, illegal)),
                    expected
                );
            }
        }
    }

    #[test]
    fn an_authority_whose_name_is_written_out_is_replaced_as_grpcio_sends_it() {
        let huffman = |text: &[u8]| huffman_literal(0x40, text)[1..].to_vec();
        let plain = |text: &[u8]| literal(0x40, text)[1..].to_vec();
        for name in [plain(b":authority"), huffman(b":authority")] {
            for value in [plain(b"%2Fvar%2Flib%2Fa.sock"), huffman(b"%2Fvar%2Fa")] {
                for first in [0x40, 0x00, 0x10] {
                    let field = [&[first], name.as_slice(), &value].concat();
                    let expected = [&[first], name.as_slice(), &huffman(LOCALHOST)].concat();
                    assert_eq!(with_legal_authority(&field), Some(expected));
                }
            }
        }
        let other = [plain(b"x-authority"), plain(b"/a%2F")].concat();
        assert_eq!(with_legal_authority(&[vec![0x40], other].concat()), None);
    }

    #[test]
    fn other_fields_and_legal_authorities_stay() {
        for field in [
            literal(0x41, b"localhost"),
            huffman_literal(0x41, b"example.com:443"),
            literal(0x41, b"[::1]:80"),
            literal(0x41, b""),
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
            Some(with(huffman_literal(0x01, LOCALHOST)))
        );
    }

    #[test]
    fn an_authority_is_never_replaced_by_a_longer_one() {
        assert_eq!(
            with_legal_authority(&literal(0x41, b"/a.b")),
            Some(huffman_literal(0x41, b"loca"))
        );
        // The value has four bytes as it is and would have five as `localh`.
        assert_eq!(
            with_legal_authority(&huffman_literal(0x41, b"/aaaaa")),
            None
        );
    }

    #[test]
    fn numbers_without_end_are_malformed() {
        assert_eq!(Reader(b"\x7f\x9a\x0a").integer(5), Some(1337));
        assert_eq!(Reader(&[0xff; 20]).integer(7), None);
        assert_eq!(Reader(b"\x1f").integer(5), None);
    }

    proptest! {
        #[test]
        fn a_block_never_grows(block: Vec<u8>, authority in "[%/][ -Z_a-z~]{0,99}", is_huffman: bool) {
            let literal = if is_huffman { huffman_literal } else { literal };
            let with = [literal(0x41, authority.as_bytes()), block.clone()].concat();
            for block in [block, with] {
                let len = block.len();
                prop_assert!(with_legal_authority(&block).is_none_or(|legal| legal.len() <= len));
            }
        }

        #[test]
        fn strings_are_read_as_they_were_coded(text in "[ -Z_a-z~]*") {
            prop_assert_eq!(from_huffman(&to_huffman(text.as_bytes())), Some(text.into_bytes()));
        }
    }
}
