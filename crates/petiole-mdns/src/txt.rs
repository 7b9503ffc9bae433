//! Bounds TXT records, and splits them into keys and values. Pure.
use std::collections::BTreeSet;

/// The most bytes of a TXT record. A record should have less than 1300 (RFC 6763 6.2). Beyond it: its further strings are left out.
const TXT_MAX: usize = 4352;

/// Returns the strings that fit into [`TXT_MAX`] bytes.
pub(super) fn first_strings(bytes: &[u8]) -> &[u8] {
    let mut end = bytes.len();
    if end > TXT_MAX {
        end = 0;
        while let Some(next) = bytes.get(end).map(|length| end + 1 + usize::from(*length))
            && next <= TXT_MAX
        {
            end = next;
        }
    }
    &bytes[..end]
}

/// Returns the keys and values of a TXT record in wire format, in their order (RFC 6763 6.4). A key alone has no value,
/// which is not the same as an empty one. Of several keys that differ only in case the first counts. A string beyond the
/// end, and a key that is not text, are left out.
pub(super) fn entries(bytes: &[u8]) -> Vec<(&str, Option<&[u8]>)> {
    let mut keys = BTreeSet::new();
    strings(bytes)
        .filter(|(key, _)| keys.insert(key.to_lowercase()))
        .collect()
}

/// Returns the same, with all of several keys.
pub(super) fn strings(mut bytes: &[u8]) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
    let strings = std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first()?;
        let (string, rest) = rest.split_at_checked(usize::from(*length))?;
        bytes = rest;
        Some(string)
    });
    strings.filter_map(|string| {
        let mut parts = string.splitn(2, |byte| *byte == b'=');
        let key = std::str::from_utf8(parts.next().unwrap_or_default()).ok()?;
        (!string.is_empty()).then(|| (key, parts.next()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strings_of_a_txt_record_are_keys_and_values() {
        let record = b"\x06path=/\x06duplex\x00\x06Path=2\x02=x\x03a==\x04\xffk=1\x09short";
        let expected: [(&str, Option<&[u8]>); 4] = [
            ("path", Some(b"/")),
            ("duplex", None),
            ("", Some(b"x")),
            ("a", Some(b"=")),
        ];
        assert_eq!(entries(record), expected);
    }

    #[test]
    fn of_a_txt_record_the_strings_that_fit_are_read() {
        let long = [&[200][..], &[b'x'; 200]].concat();
        let whole = [long.repeat(21), vec![3], b"a=b".to_vec()].concat();
        assert!(whole.len() <= TXT_MAX && whole.len() + long.len() > TXT_MAX);
        for rest in [0, 1, 20] {
            let data = [whole.clone(), long.repeat(rest)].concat();
            assert_eq!(first_strings(&data), whole);
        }
    }
}
