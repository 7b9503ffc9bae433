//! Parses `discoveryDetails` of the zeroconf handler: from YAML to checked [`Details`]. Pure.
//!
//! Every error of a user is rejected here, with the path of the key, before anything is started.
use super::super::{
    fields::{Fields, Handler, matcher, strings},
    matcher::{Budget, Matcher},
    only::Only,
};
use crate::model::device::Scope;
use ipnet::IpNet;
use petiole_mdns::{Address, Interfaces, Name, Wanted};
use serde_json::Value;
use std::{collections::BTreeMap, net::IpAddr, time::Duration};

/// The name of this handler in messages, and an example.
const HANDLER: Handler = Handler {
    name: "zeroconf",
    example: "kind: _http._tcp",
};
/// The keys, without an old name.
const KEYS: &str =
    "kind, name, host, port, txt, addresses, interfaces, identityScope, verify, pin, domain, only";
/// The default interval of confirmations. A device that died without a goodbye disappears within 20 s, including the
/// time for its answer.
const VERIFY_INTERVAL: Duration = Duration::from_secs(10);
/// The shortest interval. With a shorter one the questions about one service would overlap.
const VERIFY_INTERVAL_MIN: u64 = 5;
/// The longest `verify.intervalSeconds`, in seconds. Beyond it: the Configuration is not used
/// (`BadDiscoveryDetails`).
const VERIFY_INTERVAL_MAX: u64 = 3600;

/// The most steps of a turn in which changes of services are taken over. A turn takes up to 4 ms, with 17 ns a step.
const TURN_STEPS: usize = 250_000;
/// The steps that a service takes without filters.
const SERVICE_STEPS: usize = 2_500;

/// The services that a Configuration selects, and the way to browse for them.
#[derive(Debug, Clone)]
pub(super) struct Details {
    pub(super) kind: Kind,
    pub(super) name: Option<Matcher>,
    pub(super) host: Option<Matcher>,
    pub(super) port: Option<Matcher>,
    /// The filters of TXT values by lower-case key. The case of a key is insignificant (RFC 6763 6.4).
    pub(super) txt: BTreeMap<String, Matcher>,
    /// The most steps that all filters take on a service.
    pub(super) steps: usize,
    pub(super) addresses: Addresses,
    pub(super) interfaces: Interfaces,
    pub(super) only: Only,
    pub(super) scope: Scope,
    /// The interval at which each service is confirmed; `None` if only its TTL decides.
    pub(super) verify: Option<Duration>,
    /// True if the host and the networks of a device are recorded when it is first found, and compared from then on.
    pub(super) pin: bool,
}

/// The addresses of a service that are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Addresses {
    /// Uses only addresses in a network of the interface that received them.
    OnLink,
    Any,
    /// Uses only addresses inside one of these networks.
    Within(Vec<IpNet>),
}

impl Addresses {
    pub(super) fn take(&self, address: &Address) -> bool {
        match self {
            Self::OnLink => address.is_on_link,
            Self::Any => true,
            Self::Within(networks) => networks.iter().any(|net| net.contains(&address.ip)),
        }
    }
}

/// A service type, such as `_http._tcp`, or a subtype of one, `_printer._sub._http._tcp`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kind {
    browsed: Name,
    base: Name,
    service_type: String,
}

impl Kind {
    /// Returns the type without a subtype and a domain: `_http._tcp`. Every full name of a service ends with it and the
    /// domain.
    pub(super) fn service_type(&self) -> &str {
        &self.service_type
    }
}

impl Details {
    /// Returns the most changes of services that a turn takes over.
    pub(super) fn changes_at_once(&self) -> usize {
        (TURN_STEPS / (SERVICE_STEPS + self.steps)).max(1)
    }

    /// Returns the request for the querier.
    pub(super) fn wanted(&self) -> Wanted {
        Wanted {
            browsed: self.kind.browsed.clone(),
            base: self.kind.base.clone(),
            interfaces: self.interfaces.clone(),
            verify: self.verify,
        }
    }

    pub(super) fn parse(yaml: &str) -> Result<Self, String> {
        let mut fields = Fields::read(HANDLER, yaml)?.of(KEYS, &["txtRecords"])?;
        let kind = match fields.take("kind") {
            Some(value) => kind(&value)?,
            None => return Err("`kind` is missing: a service type such as _http._tcp".into()),
        };
        domain(fields.take("domain"))?;
        let mut budget = Budget::default();
        let txt = match (fields.take("txt"), fields.take("txtRecords")) {
            (Some(_), Some(_)) => {
                return Err("`txt` and `txtRecords` are two names of one field: keep `txt`".into());
            }
            (Some(value), None) => txt("txt", value, &mut budget)?,
            (None, Some(value)) => txt("txtRecords", value, &mut budget)?,
            (None, None) => BTreeMap::new(),
        };
        let details = Self {
            kind,
            name: fields.matcher("name", &mut budget)?,
            host: fields.matcher("host", &mut budget)?,
            port: port(fields.matcher("port", &mut budget)?)?,
            txt,
            addresses: addresses(fields.take("addresses"))?,
            interfaces: fields.interfaces()?,
            only: Only::take(&mut fields)?,
            scope: fields.scope()?,
            verify: verify(fields.take("verify"))?,
            pin: fields.switch("pin", false)?,
            steps: budget.steps(),
        };
        Ok(details)
    }
}

fn kind(value: &Value) -> Result<Kind, String> {
    let text = value.as_str().ok_or_else(|| {
        format!("`kind` must be one service type such as _http._tcp, not {value}")
    })?;
    let wrong = |why: &str| Err(format!("`kind: {text}`: {why}"));
    let browsed = text.strip_suffix('.').unwrap_or(text);
    let browsed = browsed.strip_suffix(".local").unwrap_or(browsed);
    let labels: Vec<&str> = browsed.split('.').collect();
    let (subtype, service) = match labels.as_slice() {
        [service, protocol] => (None, [*service, *protocol]),
        [subtype, "_sub", service, protocol] => (Some(*subtype), [*service, *protocol]),
        _ => {
            return wrong(
                "must look like _http._tcp or _printer._sub._http._tcp; mDNS has no domain but local",
            );
        }
    };
    // Names compare without case (RFC 6762 16).
    if !["_tcp", "_udp"].contains(&service[1].to_ascii_lowercase().as_str()) {
        return wrong("must end with ._tcp or ._udp");
    }
    if service[0] == "_dns-sd" || service[0] == "_services" {
        return wrong("lists service types, not services; name one type");
    }
    let name = service[0].strip_prefix('_').unwrap_or_default();
    // RFC 6763 allows 15 characters at most. Real devices exceed that, and only the 63 bytes of a label are a hard
    // limit.
    let service_is_sound = !name.is_empty()
        && name.len() < 63
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if !service_is_sound {
        return wrong("the type is an underscore, then letters, digits and hyphens: _http");
    }
    if subtype.is_some_and(|label| label.is_empty() || label.len() > 63) {
        return wrong("a subtype has 1 to 63 bytes");
    }
    let service_type = service.join(".");
    let names = [browsed, service_type.as_str()].map(|n| Name::from_dotted(&format!("{n}.local")));
    match names {
        [Some(browsed), Some(base)] => Ok(Kind {
            browsed,
            base,
            service_type,
        }),
        _ => wrong("is not a DNS name"),
    }
}

fn domain(value: Option<Value>) -> Result<(), String> {
    match value {
        None => Ok(()),
        Some(Value::String(domain)) if matches!(domain.as_str(), "local" | "local." | ".local") => {
            Ok(())
        }
        Some(other) => Err(format!(
            "`domain: {}` can never match: mDNS knows only the domain local; leave `domain` out",
            other
                .as_str()
                .map_or_else(|| other.to_string(), str::to_owned)
        )),
    }
}

fn port(matcher: Option<Matcher>) -> Result<Option<Matcher>, String> {
    for text in matcher.iter().flat_map(Matcher::alternatives) {
        if !text.parse::<u16>().is_ok_and(|p| p > 0) {
            return Err(format!("`port: {text}` is not a port: 1 to 65535"));
        }
    }
    Ok(matcher)
}

fn txt(
    path: &'static str,
    value: Value,
    budget: &mut Budget,
) -> Result<BTreeMap<String, Matcher>, String> {
    let mut matchers = BTreeMap::new();
    for (key, value) in Fields::new(HANDLER, path, value)?.into_map() {
        let matcher = matcher(&format!("{path}.{key}"), &value, budget)?;
        if matchers.insert(key.to_lowercase(), matcher).is_some() {
            return Err(format!(
                "`{path}.{key}` is there twice: the case of a TXT key means nothing"
            ));
        }
    }
    Ok(matchers)
}

fn addresses(value: Option<Value>) -> Result<Addresses, String> {
    if value.as_ref().and_then(Value::as_str) == Some("any") {
        return Ok(Addresses::Any);
    }
    let parse = |text: String| {
        let net = text.parse::<IpNet>();
        net.or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
            .map_err(|_| {
                format!(
                    "`addresses: {text}` is neither an address nor a range such as 10.0.0.0/8; `any` stands alone"
                )
            })
    };
    let networks = strings("addresses", value)?.into_iter().map(parse);
    let networks = networks.collect::<Result<Vec<_>, _>>()?;
    Ok(if networks.is_empty() {
        Addresses::OnLink
    } else {
        Addresses::Within(networks)
    })
}

fn verify(value: Option<Value>) -> Result<Option<Duration>, String> {
    let value = match value {
        None | Some(Value::Bool(true)) => return Ok(Some(VERIFY_INTERVAL)),
        Some(Value::Bool(false)) => return Ok(None),
        // `off` is false in YAML 1.1, and text in YAML 1.2.
        Some(Value::String(text)) if text == "off" => return Ok(None),
        Some(Value::String(text)) if text == "on" => return Ok(Some(VERIFY_INTERVAL)),
        Some(value @ Value::Object(_)) => value,
        Some(value) => {
            return Err(format!(
                "`verify: {value}` must be off or {{intervalSeconds: 10}}"
            ));
        }
    };
    let mut fields = Fields::new(HANDLER, "verify", value)?.of("intervalSeconds", &[])?;
    let range = VERIFY_INTERVAL_MIN..=VERIFY_INTERVAL_MAX;
    let seconds = fields.number("intervalSeconds", VERIFY_INTERVAL.as_secs(), range)?;
    Ok(Some(Duration::from_secs(seconds)))
}

#[cfg(test)]
mod tests;
