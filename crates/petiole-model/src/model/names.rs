//! Defines object keys, and the digests in names. Pure.
use blake2::{
    Blake2b, Digest as _,
    digest::consts::{U3, U4, U5, U16},
};
use std::fmt::{self, Write as _};

/// The key of a namespaced object. The type of its name says of which kind the object is, so that the key of an Instance
/// does not compile where that of a Configuration is expected.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<Name> {
    pub namespace: String,
    pub name: Name,
}

/// The key of an object of any kind.
pub type ObjectKey = Key<String>;

impl<Name> Key<Name> {
    pub fn new(namespace: impl Into<String>, name: impl Into<Name>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl ObjectKey {
    /// Returns the key for the kind whose names are `Name`.
    pub fn typed<Name: From<String>>(self) -> Key<Name> {
        Key::new(self.namespace, self.name)
    }
}

impl<Name: AsRef<str>> Key<Name> {
    /// Returns the key without its kind.
    pub fn untyped(&self) -> ObjectKey {
        Key::new(&self.namespace, self.name.as_ref())
    }
}

impl<Name: fmt::Display> fmt::Display for Key<Name> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Returns 6 lower-case hex digits: the digest in an Instance's name.
pub(super) fn digest_6(text: &str) -> String {
    hex(&Blake2b::<U3>::digest(text))
}

/// Returns 10 lower-case hex digits: the digest of a device whose shorter digest is taken.
pub(super) fn digest_10(text: &str) -> String {
    hex(&Blake2b::<U5>::digest(text))
}

/// Returns 32 lower-case hex digits: enough for equal digests to mean equal texts.
pub fn digest_32(text: &str) -> String {
    hex(&Blake2b::<U16>::digest(text))
}

/// Returns `name` if it has at most `limit` bytes; otherwise its beginning and 8 hex digits of its digest, `limit`
/// bytes together.
///
/// # Panics
/// Panics if `limit` is below 10 and leaves no space for the digest.
pub fn shortened(name: &str, limit: usize) -> String {
    const DIGEST: usize = 8;
    assert!(
        limit > DIGEST + 1,
        "{limit} bytes leave no space for a digest"
    );
    if name.len() <= limit {
        return name.to_owned();
    }
    let kept = name.floor_char_boundary(limit - DIGEST - 1);
    // The kept part must not end with a separator, because one follows before the digest.
    let kept = name[..kept].trim_end_matches(['-', '.', '_']);
    format!("{kept}-{}", hex(&Blake2b::<U4>::digest(name)))
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a String takes all that is written to it");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_shortened_name_fits_and_keeps_its_beginning(name in "[a-z0-9é.-]{0,120}", limit in 10_usize..80) {
            let short = shortened(&name, limit);
            prop_assert!(short.len() <= limit);
            if name.len() <= limit {
                prop_assert_eq!(short, name);
            } else {
                let (kept, digest) = short.rsplit_once('-').unwrap();
                prop_assert!(name.starts_with(kept));
                prop_assert_eq!(digest.len(), 8);
            }
        }

        #[test]
        fn two_long_names_with_one_beginning_stay_two(a in "[a-z]{1,9}", b in "[a-z]{1,9}") {
            let long = "x".repeat(70);
            let (a, b) = (format!("{long}{a}"), format!("{long}{b}"));
            prop_assert_eq!(shortened(&a, 63) == shortened(&b, 63), a == b);
        }
    }
}
