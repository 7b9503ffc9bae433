//! Parses `discoveryDetails` of the mqtt handler: from YAML to checked [`Details`]. Pure.
use super::super::{
    fields::{Fields, Handler},
    only::Only,
};
use crate::model::device::Scope;
use petiole_mqtt::{Pattern, Protocol, Rule, Topics, is_topic, limits::STATE_MAX};
use serde_json::Value;
use std::fmt;

/// The name of this handler in messages, and an example.
const HANDLER: Handler = Handler {
    name: "mqtt",
    example: "broker: \"mqtt://10.1.2.3\"",
};
/// The longest host of a broker, in characters. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const HOST_MAX: usize = 253;

/// The broker, and which of its messages are devices.
#[derive(Debug, Clone)]
pub(super) struct Details {
    pub(super) broker: Broker,
    /// The version of the protocol. Without it, 5 and then 3.1.1.
    pub(super) protocol: Option<Protocol>,
    pub(super) rule: Rule,
    pub(super) only: Only,
    pub(super) scope: Scope,
}

/// The address of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broker {
    pub(super) is_tls: bool,
    /// A name, or an address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_tls, host, port } = self;
        let scheme = if *is_tls { "mqtts" } else { "mqtt" };
        if host.contains(':') {
            write!(f, "{scheme}://[{host}]:{port}")
        } else {
            write!(f, "{scheme}://{host}:{port}")
        }
    }
}

impl Details {
    pub(super) fn parse(yaml: &str) -> Result<Self, String> {
        const KEYS: &str = "broker, protocol, devices, identityScope, only";
        let mut fields = Fields::read(HANDLER, yaml)?.of(KEYS, &[])?;
        let broker = fields.text("broker")?;
        let broker = broker.ok_or_else(|| format!("`broker` is missing: `{}`", HANDLER.example))?;
        let protocol = match fields.text("protocol")?.as_deref() {
            None => None,
            Some("5") => Some(Protocol::V5),
            Some("3.1.1") => Some(Protocol::V3),
            Some(other) => return Err(format!("`protocol: {other}` must be 5 or 3.1.1")),
        };
        Ok(Self {
            broker: self::broker(&broker)?,
            protocol,
            rule: rule(fields.take("devices"))?,
            only: Only::take(&mut fields)?,
            scope: fields.scope()?,
        })
    }
}

fn broker(url: &str) -> Result<Broker, String> {
    if url.contains('@') {
        return Err("`broker` has an @: a user and a password are discoveryProperties".to_owned());
    }
    let unfit = || {
        format!(
            "`broker: {url}` must be mqtt://HOST or mqtts://HOST (with TLS), with :PORT if it is not 1883 or 8883"
        )
    };
    let (scheme, rest) = url.split_once("://").ok_or_else(unfit)?;
    let is_tls = match scheme {
        "mqtt" => false,
        "mqtts" => true,
        _ => return Err(unfit()),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or_else(unfit)?,
        None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => 1883 + 7000 * u16::from(is_tls),
        port => port.and_then(|port| port.parse().ok()).ok_or_else(unfit)?,
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
    if host.is_empty() || host.len() > HOST_MAX || port == 0 || !host.chars().all(is_host) {
        return Err(unfit());
    }
    Ok(Broker {
        is_tls,
        host: host.to_owned(),
        port,
    })
}

fn rule(value: Option<Value>) -> Result<Rule, String> {
    const KEYS: &str = "topics, homeAssistant, sparkplug";
    let fields = Fields::new(HANDLER, "devices", value.unwrap_or(Value::Null))?.of(KEYS, &[])?;
    let mut chosen = fields.into_map().into_iter();
    let (Some((key, settings)), None) = (chosen.next(), chosen.next()) else {
        return Err(format!(
            "`devices` must have one of {KEYS}: `devices: {{homeAssistant: {{}}}}`"
        ));
    };
    match key.as_str() {
        "topics" => topics(settings).map(Rule::Topics),
        "homeAssistant" => {
            let fields = Fields::new(HANDLER, "devices.homeAssistant", settings)?;
            let prefix = levels(fields.of("prefix", &[])?, "prefix")?;
            let prefix = prefix.unwrap_or_else(|| "homeassistant".to_owned());
            Ok(Rule::HomeAssistant { prefix })
        }
        _ => {
            let fields = Fields::new(HANDLER, "devices.sparkplug", settings)?;
            let group = levels(fields.of("group", &[])?, "group")?;
            if group.as_ref().is_some_and(|group| group.contains('/')) {
                return Err("`devices.sparkplug.group` has a slash, and is no group".to_owned());
            }
            Ok(Rule::Sparkplug { group })
        }
    }
}

fn topics(settings: Value) -> Result<Topics, String> {
    const PATH: &str = "devices.topics";
    const KEYS: &str = "pattern, payloadOnline, payloadOffline";
    let mut fields = Fields::new(HANDLER, PATH, settings)?.of(KEYS, &[])?;
    let example = "`pattern: zigbee2mqtt/{name}/availability`";
    let pattern = fields.text("pattern")?;
    let pattern = pattern.ok_or_else(|| format!("`{PATH}.pattern` is missing: {example}"))?;
    let pattern: Pattern =
        (pattern.parse()).map_err(|why| format!("`{PATH}.pattern: {pattern}` {why}: {example}"))?;
    let mut payload = |key| match fields.text(key)? {
        Some(payload) if payload.len() > STATE_MAX => Err(format!(
            "`{PATH}.{key}` has more than {STATE_MAX} bytes, of which no payload can be"
        )),
        payload => Ok(payload),
    };
    Ok(Topics {
        pattern,
        online: payload("payloadOnline")?,
        offline: payload("payloadOffline")?.unwrap_or_else(|| "offline".to_owned()),
    })
}

/// Reads the first levels of topics.
fn levels(mut fields: Fields, key: &str) -> Result<Option<String>, String> {
    let Some(text) = fields.text(key)? else {
        return Ok(None);
    };
    let levels = text.trim_end_matches('/');
    if is_topic(levels) {
        Ok(Some(levels.to_owned()))
    } else {
        let path = fields.path_of(key);
        Err(format!(
            "`{path}: {text}` must be levels of a topic, without wildcards, control characters and a $ at its beginning"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule_of(devices: &str) -> Rule {
        let yaml = format!("broker: mqtt://b\ndevices: {devices}");
        Details::parse(&yaml).unwrap().rule
    }

    #[test]
    fn a_broker_has_a_host_a_port_and_perhaps_tls() {
        for (url, shown) in [
            ("mqtt://plant", "mqtt://plant:1883"),
            ("mqtts://10.1.2.3/", "mqtts://10.1.2.3:8883"),
            ("mqtts://[fd00::7]", "mqtts://[fd00::7]:8883"),
            ("mqtt://[fd00::7]:99", "mqtt://[fd00::7]:99"),
        ] {
            assert_eq!(broker(url).unwrap().to_string(), shown);
        }
        for url in [
            "plant",
            "http://plant",
            "mqtt://",
            "mqtt://a:0",
            "mqtt://a:x",
            "mqtt://a/b",
            "mqtt://[::1",
        ] {
            assert!(broker(url).unwrap_err().contains(url), "{url}");
        }
        let refused = broker("mqtt://user:hunter2@plant").unwrap_err();
        assert!(!refused.contains("hunter2"), "{refused}");
    }

    #[test]
    fn devices_are_topics_discovery_messages_or_births() {
        let Rule::Topics(topics) = rule_of(
            "{topics: {pattern: \"tele/{name}/LWT\", payloadOnline: Online, payloadOffline: Offline}}",
        ) else {
            panic!("topics");
        };
        assert_eq!(
            (topics.online.as_deref(), topics.offline.as_str()),
            (Some("Online"), "Offline")
        );
        assert_eq!(topics.pattern.filter(), "tele/+/LWT");
        let prefix = "homeassistant".to_owned();
        for devices in ["{homeAssistant: {}}", "{homeAssistant: }"] {
            assert_eq!(
                rule_of(devices),
                Rule::HomeAssistant {
                    prefix: prefix.clone()
                }
            );
        }
        let prefix = "ha/x".to_owned();
        assert_eq!(
            rule_of("{homeAssistant: {prefix: ha/x/}}"),
            Rule::HomeAssistant { prefix }
        );
        let group = Some("plant".to_owned());
        assert_eq!(
            rule_of("{sparkplug: {group: plant}}"),
            Rule::Sparkplug { group }
        );
        assert_eq!(rule_of("{sparkplug: }"), Rule::Sparkplug { group: None });
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_place() {
        for (yaml, place) in [
            ("devices: {sparkplug: {}}", "`broker` is missing"),
            ("broker: mqtt://b", "`devices` must have one of"),
            (
                "{broker: mqtt://b, devices: {topics: {pattern: \"{name}\"}, sparkplug: {}}}",
                "`devices` must have one of",
            ),
            (
                "{broker: mqtt://b, device: {}}",
                "known here: broker, protocol, devices, identityScope, only",
            ),
            (
                "{broker: mqtt://b, protocol: 4, devices: {sparkplug: {}}}",
                "must be 5 or 3.1.1",
            ),
            (
                "{broker: mqtt://b, devices: {topics: {}}}",
                "`devices.topics.pattern` is missing",
            ),
            (
                "{broker: mqtt://b, devices: {topics: {pattern: a/b}}}",
                "must have the part {name} once",
            ),
            (
                "{broker: mqtt://b, devices: {homeAssistant: {prefix: \"#\"}}}",
                "`devices.homeAssistant.prefix: #`",
            ),
            (
                "{broker: mqtt://b, devices: {homeAssistant: {prefix: $share/g/ha}}}",
                "a $ at its beginning",
            ),
            (
                &format!(
                    "{{broker: mqtt://b, devices: {{topics: {{pattern: \"{{name}}\", payloadOnline: {}}}}}}}",
                    "x".repeat(65)
                ),
                "`devices.topics.payloadOnline` has more than 64 bytes",
            ),
            (
                "{broker: mqtt://b, devices: {sparkplug: {group: a/b}}}",
                "is no group",
            ),
        ] {
            let message = Details::parse(yaml).unwrap_err();
            assert!(message.contains(place), "{yaml}\n said {message}");
        }
    }
}
