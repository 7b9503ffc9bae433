//! Parses `discoveryDetails` of the probe handler: from YAML to checked [`Details`]. Pure.
use super::super::{
    fields::{Fields, Handler, matcher},
    matcher::{Budget, Matcher},
    only::Only,
};
use crate::model::{device::Scope, networks::Range};
use petiole_probe::{Http, Question};
use serde_json::Value;
use std::{collections::BTreeMap, fmt, net::IpAddr, time::Duration};

const HANDLER: Handler = Handler {
    name: "probe",
    example: "hosts: [10.1.2.0/24]",
};
const KEYS: &str =
    "hosts, port, ask, match, identity, identityScope, intervalSeconds, probesPerSecond, only";
const HTTP_KEYS: &str = "path, status, header, json";
const WAYS: &str = "tcp, tls, http, https, modbus, snmp, redfish, rtsp";
/// The most entries of `hosts`. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const HOSTS_MAX: usize = 256;
/// The most addresses of all `hosts` together, which are those of a /20; a name counts as one. Beyond it: the Configuration is not used
/// (`BadDiscoveryDetails`).
const ADDRESSES_MAX: u32 = 4096;
/// The longest host, path, header and pointer, in bytes: with its port a host is the id of a device. Beyond it: the Configuration is not used
/// (`BadDiscoveryDetails`).
const TEXT_MAX: usize = 250;
/// The highest `probesPerSecond`, and the rate of all Configurations together. Beyond it: the Configuration is not used
/// (`BadDiscoveryDetails`).
pub(super) const PER_SECOND_MAX: u64 = 1000;
const PER_SECOND: u64 = 100;
const INTERVAL_SECONDS: u64 = 60;
const INTERVAL_SECONDS_MIN: u64 = 5;
/// The longest `intervalSeconds`. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const INTERVAL_SECONDS_MAX: u64 = 86_400;

/// Whom to ask, and what they must be.
pub(super) struct Details {
    pub(super) hosts: Vec<Range>,
    pub(super) names: Vec<String>,
    pub(super) port: u16,
    pub(super) is_tls: bool,
    /// `None`: a connection is enough.
    pub(super) question: Option<Question>,
    pub(super) filters: BTreeMap<String, Matcher>,
    pub(super) identity: Identity,
    pub(super) only: Only,
    pub(super) scope: Scope,
    pub(super) interval: Duration,
    pub(super) per_second: u64,
}

/// The way to identify a host.
struct Way {
    is_tls: bool,
    /// 0 if there is none.
    usual_port: u16,
    question: Option<Question>,
}

/// The property by which a device is recognized as the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    /// The host as written, and the port.
    Address,
    Mac,
    /// The fact of this name.
    Fact(&'static str),
}

/// One host to ask.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Address(IpAddr),
    Name(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl Way {
    /// Returns the identities that it can have, the usual one first.
    fn identities(&self) -> Vec<(&'static str, Identity)> {
        let mut all = vec![("address", Identity::Address), ("mac", Identity::Mac)];
        match &self.question {
            None if self.is_tls => all = vec![CERTIFICATE, all[0], all[1], SERIAL],
            Some(Question::Redfish) => all.insert(0, ("uuid", Identity::Fact("UUID"))),
            Some(Question::Snmp(_)) => all.push(SERIAL),
            Some(Question::Http(http)) => {
                let header = http.header.as_ref().map(|_| "HEADER");
                let json = http.json.as_ref().map(|_| "JSON");
                all.extend(header.map(|fact| ("header", Identity::Fact(fact))));
                all.extend(json.map(|fact| ("json", Identity::Fact(fact))));
            }
            None | Some(Question::Modbus(_) | Question::Rtsp(_)) => {}
        }
        if self.is_tls && self.question.is_some() {
            all.extend([CERTIFICATE, SERIAL]);
        }
        all
    }
}

const CERTIFICATE: (&str, Identity) = ("certificate", Identity::Fact("CERTIFICATE_SHA256"));
const SERIAL: (&str, Identity) = ("serial", Identity::Fact("SERIAL_NUMBER"));

impl Details {
    /// `community` is for SNMP.
    pub(super) fn parse(yaml: &str, community: &str) -> Result<Self, String> {
        let mut fields = Fields::read(HANDLER, yaml)?.of(KEYS, &[])?;
        let (hosts, names) = hosts(fields.strings("hosts")?)?;
        let way = way(fields.take("ask"), community)?;
        let port = fields.number("port", way.usual_port.into(), 1..=65_535)? as u16;
        if port == 0 {
            return Err("`port` is missing: `ask: tcp` has no usual one".to_owned());
        }
        let seconds = INTERVAL_SECONDS_MIN..=INTERVAL_SECONDS_MAX;
        let interval = fields.number("intervalSeconds", INTERVAL_SECONDS, seconds)?;
        Ok(Self {
            hosts,
            names,
            port,
            filters: filters(fields.take("match"))?,
            identity: (fields.word("identity", &way.identities()))
                .map_err(|why| format!("{why} with this `ask`"))?,
            is_tls: way.is_tls,
            question: way.question,
            only: Only::take(&mut fields)?,
            scope: fields.scope()?,
            interval: Duration::from_secs(interval),
            per_second: fields.number("probesPerSecond", PER_SECOND, 1..=PER_SECOND_MAX)?,
        })
    }

    /// Returns all hosts to ask, each once.
    pub(super) fn targets(&self) -> impl Iterator<Item = Target> {
        let before =
            |n: usize, address: IpAddr| self.hosts[..n].iter().any(|range| range.contains(address));
        let addresses = self.hosts.iter().enumerate();
        let addresses = addresses.flat_map(move |(n, range)| {
            let new = range
                .addresses()
                .filter(move |address| !before(n, *address));
            new.map(Target::Address)
        });
        let all = addresses.chain(self.names.iter().cloned().map(Target::Name));
        // Others need not be asked to know that they do not count.
        all.filter(|target| self.identity != Identity::Address || self.only.takes(&self.id(target)))
    }

    /// Returns the identity of a host whose address is its identity.
    pub(super) fn id(&self, target: &Target) -> String {
        format!("{target}:{}", self.port)
    }

    /// Returns whether a host is named by itself, so that its absence is a problem.
    pub(super) fn is_named(&self, target: &Target) -> bool {
        match target {
            Target::Address(address) => self
                .hosts
                .iter()
                .any(|h| h.first == h.last && h.first == *address),
            Target::Name(_) => true,
        }
    }
}

fn hosts(texts: Vec<String>) -> Result<(Vec<Range>, Vec<String>), String> {
    if texts.is_empty() || texts.len() > HOSTS_MAX {
        return Err(format!(
            "`hosts` must have 1 to {HOSTS_MAX} entries: `{}`",
            HANDLER.example
        ));
    }
    let (mut ranges, mut names) = (vec![], vec![]);
    for text in texts {
        let is_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        let range = text.parse::<Range>();
        // An address that is written wrongly, and a name that is one of clouds' short forms of addresses, has no letter.
        let has_letter = text.contains(|c: char| c.is_ascii_alphabetic());
        match range {
            Ok(range) => ranges.push(hosts_of(&text, range)),
            Err(_) if has_letter && text.len() <= TEXT_MAX && text.chars().all(is_name) => {
                names.push(text.to_ascii_lowercase())
            }
            Err(why) => return Err(format!("`hosts`: {why}, or a name")),
        }
    }
    names.sort();
    names.dedup();
    let count = ranges
        .iter()
        .map(|range| range.count())
        .fold(names.len() as u128, u128::saturating_add);
    if count > ADDRESSES_MAX.into() {
        return Err(format!(
            "`hosts` has {count} addresses, and {ADDRESSES_MAX} are the most: name smaller networks, or make several Configurations"
        ));
    }
    Ok((ranges, names))
}

/// Returns the addresses of a network that hosts can have.
fn hosts_of(text: &str, range: Range) -> Range {
    match (range.first, range.last) {
        (IpAddr::V4(first), IpAddr::V4(last)) if text.contains('/') && range.count() > 2 => Range {
            first: IpAddr::V4((first.to_bits() + 1).into()),
            last: IpAddr::V4((last.to_bits() - 1).into()),
        },
        _ => range,
    }
}

fn way(value: Option<Value>, community: &str) -> Result<Way, String> {
    let unfit = || {
        format!("`ask` must be one of {WAYS}: `ask: modbus`, or `ask: {{http: {{path: /status}}}}`")
    };
    let map = match value {
        Some(Value::String(name)) => [(name, Value::Null)].into_iter().collect(),
        value => Fields::new(HANDLER, "ask", value.unwrap_or(Value::Null))?.into_map(),
    };
    let mut chosen = map.into_iter();
    let (Some((name, settings)), None) = (chosen.next(), chosen.next()) else {
        return Err(unfit());
    };
    let (path, keys, usual_port) = match name.as_str() {
        "tcp" => ("ask.tcp", "", 0),
        "tls" => ("ask.tls", "", 443),
        "http" => ("ask.http", HTTP_KEYS, 80),
        "https" => ("ask.https", HTTP_KEYS, 443),
        "modbus" => ("ask.modbus", "unit", 502),
        "snmp" => ("ask.snmp", "", 161),
        "redfish" => ("ask.redfish", "tls", 443),
        "rtsp" => ("ask.rtsp", "path", 554),
        _ => return Err(unfit()),
    };
    let mut fields = Fields::new(HANDLER, path, settings)?.of(keys, &[])?;
    let mut way = Way {
        is_tls: usual_port == 443,
        usual_port,
        question: None,
    };
    way.question = match path {
        "ask.http" | "ask.https" => Some(Question::Http(http(fields)?)),
        "ask.modbus" => {
            let unit = fields.number("unit", 1, 0..=255)?;
            Some(Question::Modbus(unit as u8))
        }
        "ask.snmp" => Some(Question::Snmp(community.to_owned())),
        "ask.redfish" => {
            if !fields.switch("tls", true)? {
                (way.is_tls, way.usual_port) = (false, 80);
            }
            Some(Question::Redfish)
        }
        "ask.rtsp" => {
            let path = text("path", &mut fields, is_path)?;
            Some(Question::Rtsp(path.unwrap_or_else(|| "/".to_owned())))
        }
        _ => None,
    };
    Ok(way)
}

fn http(mut fields: Fields) -> Result<Http, String> {
    let is_header = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let status = fields.number("status", 0, 100..=599)?;
    let path = text("path", &mut fields, is_path)?;
    Ok(Http {
        path: path.unwrap_or_else(|| "/".to_owned()),
        status: (status > 0).then_some(status as u16),
        header: text("header", &mut fields, is_header)?,
        json: text("json", &mut fields, is_pointer)?,
    })
}

fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.chars().all(|c| c.is_ascii_graphic())
}

fn is_pointer(text: &str) -> bool {
    text.starts_with('/') && !text.contains(char::is_control)
}

fn text(
    key: &str,
    fields: &mut Fields,
    is_fit: fn(&str) -> bool,
) -> Result<Option<String>, String> {
    let Some(text) = fields.text(key)? else {
        return Ok(None);
    };
    if (1..=TEXT_MAX).contains(&text.len()) && is_fit(&text) {
        Ok(Some(text))
    } else {
        let path = fields.path_of(key);
        Err(format!(
            "`{path}: {text}` cannot be used: a path and a pointer begin with a slash, and a header has letters, digits and hyphens; {TEXT_MAX} bytes at most"
        ))
    }
}

fn filters(value: Option<Value>) -> Result<BTreeMap<String, Matcher>, String> {
    let mut budget = Budget::default();
    let map = Fields::new(HANDLER, "match", value.unwrap_or(Value::Null))?.into_map();
    let filter = |(name, value): (String, Value)| {
        let path = format!("match.{name}");
        if !name.starts_with("PROBE_") {
            return Err(format!(
                "`{path}` must be the name of a variable that a container gets, such as PROBE_VENDOR"
            ));
        }
        Ok((name, matcher(&path, &value, &mut budget)?))
    };
    map.into_iter().map(filter).collect()
}

#[cfg(test)]
mod tests;
