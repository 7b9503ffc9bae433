//! Reads and writes the built-in types of OPC UA Binary (OPC 10000-6, 5.2), as far as discovery has them. Pure.
//!
//! Every length is checked before anything is taken or kept, so that a reader does no more work than a value for each byte.
use std::fmt;

/// The longest text of an answer, in bytes. Beyond it: the answer is not used.
pub const STRING_MAX: usize = 4096;
/// The most levels of diagnostics within each other. Beyond it: the answer is not used.
const DEPTH_MAX: usize = 8;

/// The reason why bytes are no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Malformed {
    /// The message ends within a value.
    Short,
    /// There are more of these than the bound.
    TooMany {
        /// What is bounded.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// The bound.
        most: usize,
    },
    /// A byte that says how a value is encoded has no meaning.
    Encoding(u8),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("it ends within a value"),
            Self::TooMany { what, count, most } => {
                write!(f, "it has {count} {what}, and {most} are the most")
            }
            Self::Encoding(byte) => write!(f, "0x{byte:02X} is no known encoding of a value"),
        }
    }
}

/// Reads values off the front of a message.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    /// The values that were read.
    pub(crate) steps: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            steps: 0,
        }
    }

    /// Returns all that was not read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        self.steps += 1;
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed::Short)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.fixed::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.fixed()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.fixed()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_le_bytes(self.fixed()?))
    }

    /// Skips a time, in steps of 100 ns since 1601.
    pub(crate) fn skip_time(&mut self) -> Result<(), Malformed> {
        self.fixed::<8>().map(drop)
    }

    /// Reads the length of a string or an array: that of a null one, which is negative, counts as 0.
    fn length(&mut self) -> Result<usize, Malformed> {
        Ok(usize::try_from(self.i32()?).unwrap_or(0))
    }

    /// Reads a text. What is not UTF-8 in it becomes U+FFFD, and a null one is empty.
    pub(crate) fn string(&mut self) -> Result<String, Malformed> {
        let count = self.length()?;
        if count > STRING_MAX {
            return Err(Malformed::TooMany {
                what: "bytes in a text",
                count,
                most: STRING_MAX,
            });
        }
        Ok(String::from_utf8_lossy(self.take(count)?).into_owned())
    }

    /// Skips a string of bytes, such as a certificate.
    pub(crate) fn skip_bytes(&mut self) -> Result<(), Malformed> {
        let count = self.length()?;
        self.take(count).map(drop)
    }

    /// Reads an array of at most `most` elements.
    pub(crate) fn array<T>(
        &mut self,
        what: &'static str,
        most: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.length()?;
        if count > most {
            return Err(Malformed::TooMany { what, count, most });
        }
        // Nothing is reserved for what the bytes do not have.
        let mut elements = vec![];
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    pub(crate) fn strings(
        &mut self,
        what: &'static str,
        most: usize,
    ) -> Result<Vec<String>, Malformed> {
        self.array(what, most, Self::string)
    }

    /// Reads a text with a locale; the locale is dropped.
    pub(crate) fn localized_text(&mut self) -> Result<String, Malformed> {
        let mask = self.byte()?;
        if mask & !0x03 != 0 {
            return Err(Malformed::Encoding(mask));
        }
        if mask & 0x01 != 0 {
            self.string()?;
        }
        match mask & 0x02 {
            0 => Ok(String::new()),
            _ => self.string(),
        }
    }

    /// Reads a NodeId. Returns its number, if it is a numeric one of the namespace of OPC UA.
    pub(crate) fn node_id(&mut self) -> Result<Option<u32>, Malformed> {
        let encoding = self.byte()?;
        let (namespace, number) = match encoding {
            0x00 => (0, Some(u32::from(self.byte()?))),
            0x01 => (u16::from(self.byte()?), Some(u32::from(self.u16()?))),
            0x02 => (self.u16()?, Some(self.u32()?)),
            0x03 | 0x05 => {
                let namespace = self.u16()?;
                self.skip_bytes()?;
                (namespace, None)
            }
            0x04 => {
                let namespace = self.u16()?;
                self.fixed::<16>()?;
                (namespace, None)
            }
            other => return Err(Malformed::Encoding(other)),
        };
        Ok(number.filter(|_| namespace == 0))
    }

    pub(crate) fn skip_extension_object(&mut self) -> Result<(), Malformed> {
        self.node_id()?;
        match self.byte()? {
            0x00 => Ok(()),
            0x01 | 0x02 => self.skip_bytes(),
            other => Err(Malformed::Encoding(other)),
        }
    }

    /// Skips diagnostics, which may have others within.
    pub(crate) fn skip_diagnostics(&mut self) -> Result<(), Malformed> {
        const NUMBERS: u8 = 0x0F;
        for _ in 0..DEPTH_MAX {
            let mask = self.byte()?;
            if mask & 0x80 != 0 {
                return Err(Malformed::Encoding(mask));
            }
            for _ in 0..(mask & NUMBERS).count_ones() {
                self.i32()?;
            }
            if mask & 0x10 != 0 {
                self.skip_bytes()?;
            }
            if mask & 0x20 != 0 {
                self.u32()?;
            }
            if mask & 0x40 == 0 {
                return Ok(());
            }
        }
        Err(Malformed::TooMany {
            what: "levels of diagnostics",
            count: DEPTH_MAX + 1,
            most: DEPTH_MAX,
        })
    }
}

/// Writes values.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.0.extend(value.to_le_bytes());
    }

    /// Writes a time, in steps of 100 ns since 1601.
    pub(crate) fn time(&mut self, value: i64) {
        self.0.extend(value.to_le_bytes());
    }

    /// Writes the length of a string or an array.
    pub(crate) fn length(&mut self, count: usize) {
        self.i32(i32::try_from(count).unwrap_or(i32::MAX));
    }

    /// Writes a string or an array that is null.
    pub(crate) fn null(&mut self) {
        self.i32(-1);
    }

    pub(crate) fn string(&mut self, text: &str) {
        self.length(text.len());
        self.0.extend(text.as_bytes());
    }

    /// Writes the number of a type of messages, in the namespace of OPC UA.
    pub(crate) fn type_id(&mut self, number: u16) {
        self.0.extend([0x01, 0x00]);
        self.0.extend(number.to_le_bytes());
    }

    /// Writes the NodeId and the encoding of an extension object without a body, or a null NodeId alone.
    pub(crate) fn null_node_id(&mut self) {
        self.0.extend([0x00, 0x00]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_5_2_2_strings_may_be_null_and_are_bounded() {
        let read = |bytes: &[u8]| Reader::new(bytes).string();
        assert_eq!(read(&[2, 0, 0, 0, b'a', b'b']).unwrap(), "ab");
        assert_eq!(read(&[255, 255, 255, 255]).unwrap(), "");
        assert_eq!(read(&[1, 0, 0, 0, 0xFF]).unwrap(), "\u{FFFD}");
        assert_eq!(read(&[2, 0, 0, 0, b'a']), Err(Malformed::Short));
        assert_eq!(read(&[2, 0, 0]), Err(Malformed::Short));
        let why = read(&[0, 0, 0, 0x7F]).unwrap_err();
        assert!(why.to_string().contains("4096 are the most"), "{why}");
    }

    #[test]
    fn section_5_2_2_9_node_ids_of_every_encoding_are_read() {
        let read = |bytes: &[u8]| {
            let mut reader = Reader::new(bytes);
            let id = reader.node_id();
            (id, reader.rest().len())
        };
        assert_eq!(read(&[0, 7]), (Ok(Some(7)), 0));
        assert_eq!(read(&[1, 0, 0xA9, 1]), (Ok(Some(425)), 0));
        assert_eq!(
            read(&[1, 3, 0xA9, 1]),
            (Ok(None), 0),
            "of another namespace"
        );
        assert_eq!(read(&[2, 0, 0, 0xB1, 0x2F, 0, 0]), (Ok(Some(12209)), 0));
        assert_eq!(read(&[3, 0, 0, 1, 0, 0, 0, b'x']), (Ok(None), 0));
        assert_eq!(read(&[4; 19]), (Ok(None), 0));
        assert_eq!(read(&[5, 0, 0, 255, 255, 255, 255]), (Ok(None), 0));
        assert_eq!(read(&[0x46, 0]).0, Err(Malformed::Encoding(0x46)));
    }

    #[test]
    fn section_5_2_2_12_diagnostics_within_diagnostics_are_bounded() {
        let skip = |bytes: &[u8]| Reader::new(bytes).skip_diagnostics();
        assert_eq!(skip(&[0]), Ok(()));
        assert_eq!(skip(&[0x41, 0, 0, 0, 0, 0x20, 1, 2, 3, 4]), Ok(()));
        assert_eq!(
            skip(&[0x40, 0x40, 0x30, 1, 0, 0, 0, b'x', 0, 0, 0, 0]),
            Ok(())
        );
        let why = skip(&[0x40; 100]).unwrap_err().to_string();
        assert!(why.contains("8 are the most"), "{why}");
        assert_eq!(skip(&[0x80]), Err(Malformed::Encoding(0x80)));
    }

    #[test]
    fn an_array_that_claims_more_than_it_has_ends_with_its_bytes() {
        let mut reader = Reader::new(&[100, 0, 0, 0, 1, 0, 0, 0, b'x']);
        assert_eq!(reader.strings("texts", 100), Err(Malformed::Short));
        let mut reader = Reader::new(&[100, 0, 0, 0]);
        let why = reader.strings("texts", 99).unwrap_err().to_string();
        assert_eq!(why, "it has 100 texts, and 99 are the most");
        assert!(reader.steps < 4);
    }

    #[test]
    fn section_5_2_2_14_a_text_may_have_no_locale_and_no_text() {
        let read = |bytes: &[u8]| Reader::new(bytes).localized_text();
        assert_eq!(read(&[0]).unwrap(), "");
        assert_eq!(read(&[1, 1, 0, 0, 0, b'd']).unwrap(), "");
        assert_eq!(read(&[3, 1, 0, 0, 0, b'd', 1, 0, 0, 0, b'x']).unwrap(), "x");
        assert_eq!(read(&[4]), Err(Malformed::Encoding(4)));
    }
}
