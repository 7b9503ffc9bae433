//! Reads and writes values of ASN.1 in BER, with definite lengths and short tags. Pure.

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OBJECT_ID: u8 = 0x06;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// One value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item<'a> {
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
}

/// Reads values off the front of its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Reader<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let (&[tag, length], mut rest) = self.0.split_first_chunk()?;
        let mut size = usize::from(length);
        if length & 0x80 != 0 {
            let (digits, after) = rest.split_at_checked(usize::from(length & 0x7F))?;
            if digits.is_empty() || digits.len() > 4 {
                return None;
            }
            size = digits.iter().fold(0, |n, d| n << 8 | usize::from(*d));
            rest = after;
        }
        let (content, rest) = rest.split_at_checked(size)?;
        self.0 = rest;
        Some(Item { tag, content })
    }
}

impl<'a> Reader<'a> {
    /// Reads the next value, which must have this tag. Returns what is in it.
    pub(crate) fn open(&mut self, tag: u8) -> Option<Self> {
        let item = self.next().filter(|item| item.tag == tag)?;
        Some(Self(item.content))
    }

    /// Reads an integer of up to four bytes without a sign.
    pub(crate) fn number(&mut self) -> Option<u32> {
        let digits = self.open(INTEGER)?.0;
        let digits = digits.strip_prefix(&[0]).unwrap_or(digits);
        let is_fit = digits.len() <= 4;
        is_fit.then(|| digits.iter().fold(0, |n, d| n << 8 | u32::from(*d)))
    }
}

/// Writes a value.
pub(crate) fn item(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let zeros = length.iter().take_while(|digit| **digit == 0).count();
    let digits = &length[zeros.min(length.len() - 1)..];
    let mut written = vec![tag];
    if content.len() >= 0x80 {
        written.push(0x80 | digits.len() as u8);
    }
    written.extend(digits);
    written.extend(content);
    written
}

/// Writes an integer without a sign, in as few bytes as it must have (X.690 8.3.2).
pub(crate) fn number(number: u32) -> Vec<u8> {
    let digits = u64::from(number).to_be_bytes();
    let is_spare = |two: &&[u8]| two[0] == 0 && two[1] < 0x80;
    let spare = digits.windows(2).take_while(is_spare).count();
    item(INTEGER, &digits[spare..])
}

/// Returns the text of an object identifier, such as `1.3.6.1`.
pub(crate) fn object_id(content: &[u8]) -> String {
    let mut numbers = vec![];
    let mut number = 0_u64;
    for byte in content {
        number = number << 7 | u64::from(byte & 0x7F);
        if byte & 0x80 == 0 {
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.push(first.to_string());
                number -= first * 40;
            }
            numbers.push(number.to_string());
            number = 0;
        }
    }
    numbers.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_have_two_forms_and_others_are_refused() {
        let long = item(OCTET_STRING, &[7; 300]);
        assert_eq!(long[..4], [4, 0x82, 1, 44]);
        assert_eq!(item(OCTET_STRING, &[]), [4, 0]);
        for refused in [
            &[4][..],
            &[4, 2, 0],
            &[4, 0x80, 0, 0],
            &[4, 0x85, 0, 0, 0, 0, 0],
        ] {
            assert!(Reader(refused).next().is_none(), "{refused:?}");
        }
    }

    #[test]
    fn an_integer_has_as_few_bytes_as_it_must() {
        for (value, written) in [
            (0, &[2, 1, 0][..]),
            (1, &[2, 1, 1]),
            (0x80, &[2, 2, 0, 0x80]),
            (0x7F01_0203, &[2, 4, 0x7F, 1, 2, 3]),
            (u32::MAX, &[2, 5, 0, 0xFF, 0xFF, 0xFF, 0xFF]),
        ] {
            assert_eq!(number(value), written);
            assert_eq!(Reader(written).number(), Some(value));
        }
    }

    #[test]
    fn an_object_identifier_is_numbers_with_dots() {
        assert_eq!(object_id(&[0x2B, 6, 1, 4, 1, 0xBF, 8]), "1.3.6.1.4.1.8072");
        assert_eq!(object_id(&[0x88, 0x37]), "2.999");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(content in proptest::collection::vec(any::<u8>(), 0..70_000)) {
            let written = item(SEQUENCE, &content);
            let mut reader = Reader(&written);
            prop_assert_eq!(reader.open(SEQUENCE).map(|r| r.0), Some(&content[..]));
            prop_assert!(reader.0.is_empty());
        }
    }
}
