//! Converts the TXT record of a service to the environment of a broker. Pure.
//!
//! Anyone on the LAN can choose the keys. The names made of them are safe, bounded in number and size, and never equal
//! to the names that the handler sets itself.
use crate::model::container_edits::without_digest;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use std::collections::BTreeMap;

/// The prefix of each name that the handler makes.
pub(super) const PREFIX: &str = "AKRI_ZEROCONF_DEVICE_";
/// The names after [`PREFIX`] that the handler sets itself.
pub(super) const RESERVED: [&str; 5] = ["KIND", "NAME", "HOST", "ADDR", "PORT"];
/// The most variables of a TXT record. A record may hold thousands of keys, and all variables are copied with the
/// environment of a container. Beyond it: the keys that come later are left out.
pub(super) const KEYS_MAX: usize = 64;
/// The most bytes of the names and values of these variables together. A TXT record should have less than 1300 bytes
/// (RFC 6763 6.2), whose variables fit. Beyond it: the keys that come later are left out.
pub(super) const BYTES_MAX: usize = 4096;

/// One key of a TXT record, as it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Txt {
    pub(super) key: String,
    /// The value. `None` means a key alone (`duplex`), which differs from `duplex=`.
    pub(super) value: Option<Vec<u8>>,
}

impl Txt {
    /// Returns the value as text, for filters. A key alone has the value `true`.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            None => Some("true"),
            Some(bytes) => std::str::from_utf8(bytes).ok(),
        }
    }
}

/// Returns the variables of a TXT record, including [`PREFIX`]. Keys beyond the limits are left out; the first ones
/// stay.
pub(super) fn variables(record: &[Txt]) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let mut bytes = 0;
    for txt in record {
        if variables.len() == KEYS_MAX {
            break;
        }
        let Some((key, value)) = variable(txt) else {
            continue;
        };
        let name = free_name(&key, &variables);
        let size = name.len() + value.len();
        if bytes + size > BYTES_MAX {
            continue;
        }
        bytes += size;
        variables.insert(name, value);
    }
    variables
}

fn variable(txt: &Txt) -> Option<(String, String)> {
    // A string without a key is ignored (RFC 6763 6.4).
    if txt.key.is_empty() {
        return None;
    }
    let key = safe(&txt.key);
    match (&txt.value, txt.text()) {
        // A variable is a NUL-terminated string.
        (_, Some(text)) if text.contains('\0') => None,
        (_, Some(text)) => Some((key, text.to_owned())),
        (Some(bytes), None) => Some((format!("{key}_B64"), BASE64_STANDARD.encode(bytes))),
        (None, None) => None,
    }
}

fn safe(key: &str) -> String {
    let safe = |c: char| match c.to_ascii_uppercase() {
        upper @ ('A'..='Z' | '0'..='9') => upper,
        _ => '_',
    };
    key.chars().map(safe).collect()
}

/// Returns a name that is not taken. Two keys may give one name, as `a-b` and `a_b` do; the later one gets a number. No
/// name looks like that of another device.
fn free_name(key: &str, taken: &BTreeMap<String, String>) -> String {
    let is_free = |name: &String| {
        !taken.contains_key(name) && !RESERVED.iter().any(|r| name[PREFIX.len()..] == **r)
    };
    let first = without_digest(format!("{PREFIX}{key}"));
    if is_free(&first) {
        return first;
    }
    (2..)
        .map(|n| format!("{first}_{n}"))
        .find(is_free)
        .unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, option, prelude::*};

    fn txt(key: &str, value: Option<&[u8]>) -> Txt {
        Txt {
            key: key.into(),
            value: value.map(<[u8]>::to_vec),
        }
    }

    fn of(record: &[Txt]) -> Vec<(String, String)> {
        let short = |(name, value): (String, String)| (name[PREFIX.len()..].to_owned(), value);
        variables(record).into_iter().map(short).collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.into(), value.into())
    }

    #[test]
    fn keys_become_names_and_values_stay() {
        for (given, expected) in [
            (txt("path", Some(b"/live")), pair("PATH", "/live")),
            (txt("duplex", None), pair("DUPLEX", "true")),
            (txt("empty", Some(b"")), pair("EMPTY", "")),
            (txt("a.b-c d", Some(b"=x=")), pair("A_B_C_D", "=x=")),
            (
                txt("9caf\u{e9}", Some("\u{e9}\n".as_bytes())),
                pair("9CAF_", "\u{e9}\n"),
            ),
            (txt("raw", Some(&[0xff, 0])), pair("RAW_B64", "/wA=")),
        ] {
            assert_eq!(of(&[given]), [expected]);
        }
    }

    #[test]
    fn a_name_that_would_look_like_another_devices_ends_otherwise() {
        let record = [
            txt("addr_3b4293", Some(b"1")),
            txt("Addr-3B4293", Some(b"2")),
            txt("c0ffee", Some(b"3")),
        ];
        assert_eq!(
            of(&record),
            [
                pair("ADDR_3B4293_X", "1"),
                pair("ADDR_3B4293_X_2", "2"),
                pair("C0FFEE_X", "3"),
            ]
        );
    }

    #[test]
    fn nul_and_nameless_are_left_out() {
        assert_eq!(of(&[txt("a", Some(b"x\0y")), txt("", Some(b"x"))]), []);
    }

    #[test]
    fn names_that_meet_get_a_number() {
        let record = [
            txt("a-b", Some(b"1")),
            txt("a_b", Some(b"2")),
            txt("a.b", Some(b"3")),
            txt("port", Some(b"4")),
            txt("PORT_2", Some(b"5")),
            txt("raw_b64", Some(b"6")),
            txt("raw", Some(&[0xff])),
        ];
        assert_eq!(
            of(&record),
            [
                pair("A_B", "1"),
                pair("A_B_2", "2"),
                pair("A_B_3", "3"),
                pair("PORT_2", "4"),
                pair("PORT_2_2", "5"),
                pair("RAW_B64", "6"),
                pair("RAW_B64_2", "/w=="),
            ]
        );
    }

    #[test]
    fn a_value_too_large_does_not_push_out_those_after_it() {
        let huge = vec![b'x'; BYTES_MAX];
        assert_eq!(
            of(&[txt("huge", Some(&huge)), txt("a", Some(b"1"))]),
            [pair("A", "1")]
        );
    }

    fn record() -> impl Strategy<Value = Vec<Txt>> {
        let key = prop_oneof!["[a-c_.-]{0,3}", "(?i)kind|name|host|addr|port", "\\PC{0,9}"];
        let value = option::of(prop_oneof![
            vec(any::<u8>(), 0..20),
            vec(Just(b'x'), 0..20_000),
            "\\PC*".prop_map(String::into_bytes),
        ]);
        vec(
            (key, value).prop_map(|(key, value)| Txt { key, value }),
            0..100,
        )
    }

    proptest! {
        #[test]
        fn whatever_comes_the_environment_is_safe_and_bounded(record in record()) {
            let variables = variables(&record);
            prop_assert!(variables.len() <= KEYS_MAX);
            prop_assert!(variables.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>() <= BYTES_MAX);
            for (name, value) in &variables {
                let key = name.strip_prefix(PREFIX).unwrap();
                prop_assert!(key.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_'));
                prop_assert!(!key.is_empty() && !RESERVED.contains(&key));
                prop_assert!(!value.contains('\0'));
            }
        }

        #[test]
        fn below_the_limits_no_key_is_lost(keys in vec("[a-b.-]{1,3}", 0..KEYS_MAX)) {
            let record: Vec<Txt> = keys.iter().map(|k| txt(k, Some(b"v"))).collect();
            prop_assert_eq!(variables(&record).len(), record.len());
        }
    }
}
