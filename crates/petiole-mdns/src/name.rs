//! Represents domain names as labels. Pure.
//!
//! A label may hold any byte, even a dot, so a name is never joined to text and split again. Names compare without
//! ASCII case (RFC 6762 16) and keep the case in which they were received.
use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

/// The longest label, in bytes (RFC 1035 2.3.4). Beyond it: the record is ignored.
const LABEL_MAX: usize = 63;
/// The longest name, in bytes. With its last, empty label it has 255. Beyond it: the record is ignored.
const NAME_MAX: usize = 254;

/// A name in wire format without its last, empty label: each label is preceded by its length.
#[derive(Clone)]
pub struct Name(Arc<[u8]>);

impl Name {
    /// Joins labels. Returns `None` if a label is empty or too long, or if the name is too long.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let mut wire = Vec::new();
        for label in labels {
            if label.is_empty() || label.len() > LABEL_MAX {
                return None;
            }
            wire.push(u8::try_from(label.len()).ok()?);
            wire.extend_from_slice(label);
        }
        (wire.len() <= NAME_MAX).then(|| Self(wire.into()))
    }

    /// Parses a name whose labels contain no dot, such as `_http._tcp.local.`
    pub fn from_dotted(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        Self::from_labels(text.split('.').map(str::as_bytes))
    }

    /// Returns the labels, from the first to the top of the tree.
    pub fn labels(&self) -> Labels<'_> {
        Labels(&self.0)
    }

    /// Returns the length on the wire without compression, including the last label.
    pub fn wire_len(&self) -> usize {
        self.0.len() + 1
    }

    /// Returns whether the name is `parent` with labels before it. The name of a service is one label. Some responders
    /// split it at its dots, and their services must be found too.
    pub fn is_below(&self, parent: &Self) -> bool {
        let above = self.0.len().checked_sub(parent.0.len());
        let Some(above) = above.filter(|above| self.0[*above..].eq_ignore_ascii_case(&parent.0))
        else {
            return false;
        };
        // What ends with the bytes of `parent` must also have the end of a label there.
        let mut labels = self.labels();
        while labels.0.len() > parent.0.len() && labels.next().is_some() {}
        above > 0 && labels.0.len() == parent.0.len()
    }

    /// Returns the labels with a dot after each and without escapes: the name as a person reads it. Returns `None` if a label is not
    /// UTF-8.
    pub fn text(&self) -> Option<String> {
        let mut text = String::with_capacity(self.0.len() + 1);
        for label in self.labels() {
            text.push_str(std::str::from_utf8(label).ok()?);
            text.push('.');
        }
        Some(text)
    }
}

/// Iterates over the labels of a name.
#[derive(Debug, Clone)]
pub struct Labels<'a>(&'a [u8]);

impl<'a> Labels<'a> {
    /// Returns the remaining labels in wire format.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Labels<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<Self::Item> {
        let (length, rest) = self.0.split_first()?;
        let (label, rest) = rest.split_at_checked(usize::from(*length))?;
        self.0 = rest;
        Some(label)
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.0 == other.0 {
            return Ordering::Equal;
        }
        for (a, b) in self.0.iter().zip(&*other.0) {
            if a != b {
                // The length of a label is below every letter, so it is not changed.
                let (a, b) = (a.to_ascii_lowercase(), b.to_ascii_lowercase());
                if a != b {
                    return a.cmp(&b);
                }
            }
        }
        self.0.len().cmp(&other.0.len())
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for byte in &*self.0 {
            state.write_u8(byte.to_ascii_lowercase());
        }
    }
}

/// Writes the name as RFC 6763 4.3 defines it: `Front\032Door` stays readable as `Front Door`; dots and backslashes
/// within a label are escaped, and so are unprintable bytes.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, label) in self.labels().enumerate() {
            if n > 0 {
                f.write_str(".")?;
            }
            for chunk in label.utf8_chunks() {
                for c in chunk.valid().chars() {
                    match c {
                        '.' | '\\' => write!(f, "\\{c}")?,
                        c if c.is_control() => escape(f, c.encode_utf8(&mut [0; 4]).as_bytes())?,
                        c => write!(f, "{c}")?,
                    }
                }
                escape(f, chunk.invalid())?;
            }
        }
        Ok(())
    }
}

fn escape(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\{byte:03}"))
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn name(labels: &[&[u8]]) -> Name {
        Name::from_labels(labels.iter().copied()).unwrap()
    }

    #[test]
    fn a_dot_in_a_label_does_not_part_it() {
        let dotted = name(&[b"Front Door v1.2", b"_rtsp", b"_tcp", b"local"]);
        assert_eq!(dotted.labels().count(), 4);
        assert_eq!(dotted.text().unwrap(), "Front Door v1.2._rtsp._tcp.local.");
        assert_eq!(dotted.to_string(), r"Front Door v1\.2._rtsp._tcp.local");
        assert!(dotted.is_below(&Name::from_dotted("_rtsp._tcp.local.").unwrap()));
        assert_ne!(
            dotted,
            Name::from_dotted("Front Door v1.2._rtsp._tcp.local").unwrap()
        );
    }

    #[test]
    fn a_name_is_below_its_type_also_where_a_responder_split_it_at_a_dot() {
        let kind = Name::from_dotted("_rtsp._tcp.local").unwrap();
        for (text, is_below) in [
            ("Front Door._RTSP._tcp.local", true),
            ("Front Door v1.2._rtsp._tcp.local", true),
            ("_rtsp._tcp.local", false),
            ("Front Door._http._tcp.local", false),
            ("x_rtsp._tcp.local", false),
        ] {
            let name = Name::from_dotted(text).unwrap();
            assert_eq!(name.is_below(&kind), is_below, "{text}");
        }
    }

    #[test]
    fn case_means_nothing_and_is_kept() {
        let (upper, lower) = (name(&[b"_CASE", b"_TCP"]), name(&[b"_case", b"_tcp"]));
        assert_eq!(upper, lower);
        assert_eq!(upper.cmp(&lower), Ordering::Equal);
        assert_eq!(upper.text().unwrap(), "_CASE._TCP.");
        // Only ASCII letters are folded (RFC 6762 16).
        assert_ne!(name(&["\u{c4}".as_bytes()]), name(&["\u{e4}".as_bytes()]));
    }

    #[test]
    fn what_does_not_print_is_escaped() {
        let strange = name(&[b"a\\b\n\xff\x00"]);
        assert_eq!(strange.to_string(), r"a\\b\010\255\000");
        assert_eq!(strange.text(), None);
    }

    #[test]
    fn lengths_are_bounded() {
        assert!(Name::from_labels([&[b'x'; 63][..]]).is_some());
        assert!(Name::from_labels([&[b'x'; 64][..]]).is_none());
        assert!(Name::from_labels([&b""[..]]).is_none());
        assert!(Name::from_labels(vec![&[b'x'; 63][..]; 4]).is_none());
    }

    proptest! {
        #[test]
        fn the_labels_of_a_name_are_those_it_was_made_of(labels in vec(vec(any::<u8>(), 1..20), 1..8)) {
            let name = Name::from_labels(labels.iter().map(Vec::as_slice)).unwrap();
            prop_assert_eq!(name.labels().map(<[u8]>::to_vec).collect::<Vec<_>>(), labels);
        }

        #[test]
        fn equal_names_have_equal_order(a in "[aAbB]{1,3}", b in "[aAbB]{1,3}") {
            let (a, b) = (Name::from_dotted(&a).unwrap(), Name::from_dotted(&b).unwrap());
            prop_assert_eq!(a == b, a.cmp(&b) == Ordering::Equal);
        }
    }
}
