//! Reads and writes the messages of WS-Discovery. Pure.
use crate::{
    scopes::is_onvif,
    xml::{self, Element},
};

/// The most scopes of a device. Beyond it: further ones are not known.
pub const SCOPES_MAX: usize = 64;
/// The most addresses of a device. Beyond it: further ones are not known.
pub const ADDRESSES_MAX: usize = 8;
/// The longest endpoint reference, scope or address, in bytes. Beyond it: it is left out.
pub const TEXT_MAX: usize = 256;
/// The most bytes of the scopes of a device together. Beyond it: further ones are not known.
const SCOPE_BYTES_MAX: usize = 4096;
/// The most devices in one message. Beyond it: further ones are ignored.
const MATCHES_MAX: usize = 16;

/// A way to write a probe. Real devices answer to some and not to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spelling {
    /// For `dn:NetworkVideoTransmitter`, as most clients write it; the id is a `urn:uuid:`.
    Transmitter,
    /// For `tds:Device`; the id is a `uuid:`, and each namespace is declared where it is used.
    Device,
    /// For any device, with empty lists of types and scopes.
    Any,
}

impl Spelling {
    pub(crate) const ALL: [Self; 3] = [Self::Transmitter, Self::Device, Self::Any];

    /// Writes a message id.
    pub(crate) fn id(self, uuid: &str) -> String {
        match self {
            Self::Transmitter | Self::Any => format!("urn:uuid:{uuid}"),
            Self::Device => format!("uuid:{uuid}"),
        }
    }

    /// Writes a probe with this id.
    pub fn probe(self, id: &str) -> Vec<u8> {
        let body = match self {
            Self::Transmitter => {
                r#"<d:Probe><d:Types xmlns:d="http://schemas.xmlsoap.org/ws/2005/04/discovery" xmlns:dn="http://www.onvif.org/ver10/network/wsdl">dn:NetworkVideoTransmitter</d:Types></d:Probe>"#
            }
            Self::Device => {
                r#"<d:Probe><d:Types xmlns:d="http://schemas.xmlsoap.org/ws/2005/04/discovery" xmlns:tds="http://www.onvif.org/ver10/device/wsdl">tds:Device</d:Types></d:Probe>"#
            }
            Self::Any => "<d:Probe><d:Types/><d:Scopes/></d:Probe>",
        };
        format!(
            r#"<?xml version="1.0" encoding="UTF-8"?><s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope" xmlns:a="http://schemas.xmlsoap.org/ws/2004/08/addressing" xmlns:d="http://schemas.xmlsoap.org/ws/2005/04/discovery"><s:Header><a:Action>http://schemas.xmlsoap.org/ws/2005/04/discovery/Probe</a:Action><a:MessageID>{}</a:MessageID><a:ReplyTo><a:Address>http://schemas.xmlsoap.org/ws/2004/08/addressing/role/anonymous</a:Address></a:ReplyTo><a:To>urn:schemas-xmlsoap-org:ws:2005:04:discovery</a:To></s:Header><s:Body>{body}</s:Body></s:Envelope>"#,
            xml::escaped(id)
        )
        .into_bytes()
    }
}

/// A message of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The id of the probe that is answered.
    pub relates_to: Option<String>,
    /// The place of the message among others of its sender.
    pub sequence: Option<Sequence>,
    /// What the sender tells.
    pub kind: Kind,
    /// The devices that it is about.
    pub endpoints: Vec<Endpoint>,
}

/// What a message tells about its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// They have come.
    Hello,
    /// They leave.
    Bye,
    /// They answer to a probe.
    Matches,
}

/// The place of a message among others of its sender. A larger instance means that the sender was restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence {
    /// The number of the sender's life.
    pub instance: u64,
    /// The number of the message.
    pub number: u64,
}

/// A device as it describes itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// The endpoint reference, such as `urn:uuid:…`, in lower case if it is one.
    pub address: String,
    /// True if the types or scopes are those of an ONVIF device.
    pub is_onvif: bool,
    /// The scopes.
    pub scopes: Vec<String>,
    /// The addresses of its service.
    pub xaddrs: Vec<String>,
    /// Grows when the description changes.
    pub metadata_version: Option<u64>,
}

impl Message {
    /// Reads a message. Returns `None` for any other message than those of devices.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let root = xml::read(bytes)?;
        let header = root.at(&["Header"]);
        let in_header = |name: &str| header.and_then(|header| header.at(&[name]));
        let sequence = in_header("AppSequence").and_then(|element| {
            let number = |name| element.attribute(name)?.trim().parse().ok();
            Some(Sequence {
                instance: number("InstanceId")?,
                number: number("MessageNumber")?,
            })
        });
        let mut found = Found::default();
        found.collect(&root, &mut vec![]);
        Some(Self {
            relates_to: in_header("RelatesTo").and_then(|element| token(element.trimmed())),
            sequence,
            kind: found.kind?,
            endpoints: found.endpoints,
        })
    }
}

/// The devices of a message. They are looked for at any depth: not every device wraps them as it should.
#[derive(Default)]
struct Found {
    kind: Option<Kind>,
    endpoints: Vec<Endpoint>,
}

impl Found {
    fn collect<'a>(&mut self, element: &'a Element, around: &mut Vec<&'a Element>) {
        let kind = match element.name.as_str() {
            "Hello" => Some(Kind::Hello),
            "Bye" => Some(Kind::Bye),
            "ProbeMatch" | "ResolveMatch" => Some(Kind::Matches),
            _ => None,
        };
        around.push(element);
        match kind {
            Some(kind) if *self.kind.get_or_insert(kind) == kind => {
                let endpoint = endpoint(element, around);
                let is_free = self.endpoints.len() < MATCHES_MAX;
                self.endpoints.extend(endpoint.filter(|_| is_free));
            }
            Some(_) => {}
            None => {
                for child in &element.children {
                    self.collect(child, around);
                }
            }
        }
        around.pop();
    }
}

fn endpoint(element: &Element, around: &[&Element]) -> Option<Endpoint> {
    let address = element.find("EndpointReference")?.find("Address")?;
    let mut endpoint = Endpoint {
        address: normalized(&token(address.trimmed())?),
        ..Endpoint::default()
    };
    let mut bytes = 0;
    for scope in element.at(&["Scopes"]).map(words).unwrap_or_default() {
        bytes += scope.len();
        if endpoint.scopes.len() == SCOPES_MAX || bytes > SCOPE_BYTES_MAX {
            break;
        }
        endpoint.scopes.push(scope);
    }
    endpoint.xaddrs = element.at(&["XAddrs"]).map(words).unwrap_or_default();
    endpoint.xaddrs.truncate(ADDRESSES_MAX);
    let version = element.at(&["MetadataVersion"]);
    endpoint.metadata_version = version.and_then(|version| version.trimmed().parse().ok());
    let is_type = |types: &Element| {
        let mut types_of = types.text.split_ascii_whitespace();
        types_of.any(|name| is_onvif_type(name, types, around))
    };
    endpoint.is_onvif = endpoint.scopes.iter().any(|scope| is_onvif(scope))
        || element.at(&["Types"]).is_some_and(is_type);
    Some(endpoint)
}

/// Returns whether a type is one of ONVIF. Other devices have types with the same local name, so that its namespace decides;
/// real devices forget to declare it.
fn is_onvif_type(name: &str, types: &Element, around: &[&Element]) -> bool {
    let (prefix, local) = name.split_once(':').unwrap_or(("", name));
    if local == "NetworkVideoTransmitter" {
        return true;
    }
    let mut scopes = [types].into_iter().chain(around.iter().rev().copied());
    let namespace = scopes.find_map(|element| {
        let declared = element.declared.iter().find(|(own, _)| own == prefix);
        declared.map(|(_, namespace)| namespace.as_str())
    });
    local == "Device" && namespace.is_some_and(|namespace| namespace.contains("www.onvif.org/"))
}

fn words(element: &Element) -> Vec<String> {
    element.text.split_whitespace().filter_map(token).collect()
}

/// Returns a text that may be kept.
fn token(text: &str) -> Option<String> {
    let is_plain =
        !text.is_empty() && text.len() <= TEXT_MAX && !text.chars().any(char::is_control);
    is_plain.then(|| text.to_owned())
}

/// Returns an endpoint reference in the form in which references are compared: the case of a UUID has no meaning.
fn normalized(address: &str) -> String {
    let lower = address.to_ascii_lowercase();
    if lower.starts_with("urn:uuid:") || lower.starts_with("uuid:") {
        return lower;
    }
    address.to_owned()
}

#[cfg(test)]
mod tests;
