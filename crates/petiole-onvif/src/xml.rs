//! Reads an XML document into a tree of bounded size. Document types and entities are refused. Pure.
use quick_xml::{
    Reader,
    escape::{escape, resolve_xml_entity},
    events::{BytesRef, BytesStart, Event},
};

/// The most bytes of a document. Beyond it: the message is ignored.
pub const DOCUMENT_MAX: usize = 64 * 1024;
/// The deepest element of a document. Beyond it: the rest of the message is ignored.
pub const DEPTH_MAX: usize = 32;
/// The most elements of a document. Beyond it: the rest of the message is ignored.
const ELEMENTS_MAX: usize = 2048;
/// The most namespaces that an element declares. Beyond it: further ones are not known.
const DECLARED_MAX: usize = 64;

/// An element with its local name: prefixes are the choice of the sender.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) attributes: Vec<(String, String)>,
    /// The declared prefixes, each with its namespace.
    pub(crate) declared: Vec<(String, String)>,
    pub(crate) children: Vec<Element>,
}

impl Element {
    pub(crate) fn children<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Self> {
        let name = name.to_owned();
        self.children.iter().filter(move |child| child.name == name)
    }

    /// Returns the first element at this path below this one.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Self> {
        let Some((first, rest)) = path.split_first() else {
            return Some(self);
        };
        let mut fit = self.children.iter().filter(|child| child.name == *first);
        fit.find_map(|child| child.at(rest))
    }

    /// Returns the first element with this name, at any depth.
    pub(crate) fn find(&self, name: &str) -> Option<&Self> {
        if self.name == name {
            return Some(self);
        }
        self.children.iter().find_map(|child| child.find(name))
    }

    /// Returns the elements with one of these names, at any depth.
    pub(crate) fn all(&self, names: &[&str]) -> Vec<&Self> {
        let own = names.contains(&self.name.as_str()).then_some(self);
        let below = self.children.iter().flat_map(|child| child.all(names));
        own.into_iter().chain(below).collect()
    }

    /// Returns the text without white space around it.
    pub(crate) fn trimmed(&self) -> &str {
        self.text.trim()
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Reads a document. Of a malformed one, as some devices send them, it returns the elements before the fault. Returns `None`
/// for a document that is too large, has a document type, or has no element.
pub(crate) fn read(bytes: &[u8]) -> Option<Element> {
    if bytes.len() > DOCUMENT_MAX {
        return None;
    }
    // Some devices write names in another encoding than they say. Those are for people.
    let text = String::from_utf8_lossy(bytes);
    let mut reader = Reader::from_str(&text);
    let config = reader.config_mut();
    // Real devices close elements that they did not open.
    config.check_end_names = false;
    config.allow_unmatched_ends = true;
    let mut open: Vec<Element> = vec![];
    let mut root = None;
    let mut elements = 0;
    while root.is_none() {
        let Ok(event) = reader.read_event() else {
            break;
        };
        match event {
            Event::Start(start) => {
                elements += 1;
                if open.len() == DEPTH_MAX || elements > ELEMENTS_MAX {
                    break;
                }
                open.push(element(&start));
            }
            Event::Empty(start) => {
                elements += 1;
                if elements > ELEMENTS_MAX {
                    break;
                }
                close(element(&start), &mut open, &mut root);
            }
            Event::End(_) => {
                if let Some(ended) = open.pop() {
                    close(ended, &mut open, &mut root);
                }
            }
            Event::Text(text) => add(&mut open, &text),
            Event::CData(data) => add(&mut open, &data),
            Event::GeneralRef(reference) => add(&mut open, &resolved(&reference)?),
            Event::DocType(_) => return None,
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            Event::Eof => break,
        }
    }
    while let Some(ended) = open.pop() {
        close(ended, &mut open, &mut root);
    }
    root
}

fn add(open: &mut [Element], text: &str) {
    if let Some(last) = open.last_mut() {
        last.text.push_str(text);
    }
}

fn close(ended: Element, open: &mut [Element], root: &mut Option<Element>) {
    match open.last_mut() {
        Some(parent) => parent.children.push(ended),
        None => *root = Some(ended),
    }
}

/// Returns the text of a reference to a character. There are five names besides numbers; any other would be an entity.
fn resolved(reference: &BytesRef<'_>) -> Option<String> {
    if let Ok(Some(character)) = reference.resolve_char_ref() {
        return Some(character.to_string());
    }
    resolve_xml_entity(reference).map(str::to_owned)
}

fn element(start: &BytesStart<'_>) -> Element {
    let mut element = Element {
        name: start.local_name().as_ref().to_owned(),
        ..Element::default()
    };
    for attribute in start.attributes().with_checks(false).flatten() {
        let key: String = attribute.key.as_ref().to_owned();
        let value = attribute.value.into_owned();
        let prefix = match key.split_once(':') {
            Some(("xmlns", prefix)) => prefix,
            None if key == "xmlns" => "",
            Some((_, name)) => {
                element.attributes.push((name.to_owned(), value));
                continue;
            }
            None => {
                element.attributes.push((key, value));
                continue;
            }
        };
        if element.declared.len() < DECLARED_MAX {
            element.declared.push((prefix.to_owned(), value));
        }
    }
    element
}

/// Writes a text for the content of an element or of an attribute.
pub(crate) fn escaped(text: &str) -> String {
    // XML has no other control characters.
    let is_written = |c: &char| !c.is_control() || "\t\n\r".contains(*c);
    escape(text.chars().filter(is_written).collect::<String>()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_document_is_a_tree_of_local_names() {
        let text = "<?xml version='1.0'?><s:A xmlns:s='urn:s' s:b='1'><s:B> x &amp; &#65;<![CDATA[<y>]]></s:B><C/></s:A>";
        let root = read(text.as_bytes()).unwrap();
        assert_eq!(root.name, "A");
        assert_eq!(root.attribute("b"), Some("1"));
        assert_eq!(root.declared, [("s".to_owned(), "urn:s".to_owned())]);
        assert_eq!(root.at(&["B"]).unwrap().trimmed(), "x & A<y>");
        assert!(root.find("C").is_some() && root.find("D").is_none());
    }

    #[test]
    fn document_types_and_entities_are_refused() {
        for text in [
            "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
            "<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a/>",
            "<a>&b;</a>",
            "<a>&#xFFFFFFFF;</a>",
        ] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_document_is_bounded_in_bytes_depth_and_elements() {
        let large = format!("<a>{}</a>", "x".repeat(DOCUMENT_MAX));
        assert_eq!(read(large.as_bytes()), None);
        let deep = "<a>".repeat(1000);
        let mut depth = 0;
        let mut element = read(deep.as_bytes()).as_ref().cloned();
        while let Some(inner) = element {
            depth += 1;
            element = inner.children.into_iter().next();
        }
        assert_eq!(depth, DEPTH_MAX);
        let wide = format!("<a>{}</a>", "<b/>".repeat(5000));
        assert_eq!(
            read(wide.as_bytes()).unwrap().children.len(),
            ELEMENTS_MAX - 1
        );
    }

    #[test]
    fn a_malformed_document_has_the_elements_before_its_fault() {
        let root = read(b"<a><b>x</b><c>y</a><").unwrap();
        assert_eq!(root.at(&["b"]).unwrap().text, "x");
        assert_eq!(read(b""), None);
        assert_eq!(read(b"no xml"), None);
    }

    proptest! {
        #[test]
        fn every_text_that_is_written_is_read_again(text in "[^\\p{Cc}]{0,40}") {
            let document = format!("<a b=\"1\">{}</a>", escaped(&text));
            prop_assert_eq!(read(document.as_bytes()).unwrap().text, text);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            read(&bytes);
        }
    }
}
