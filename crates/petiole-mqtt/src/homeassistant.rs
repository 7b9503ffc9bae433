//! Reads the discovery messages of Home Assistant: which device an entity belongs to, and when it is available. Pure.
use crate::{
    availability::{Availability, Mode, Watch},
    facts::Facts,
    topic::is_topic,
};
use serde_json::{Map, Value};

/// The most topics of one discovery message that say whether it is available. Beyond it: further ones are ignored.
pub const WATCHES_MAX: usize = 8;

/// What a discovery message says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// What identifies the device.
    pub(crate) device: String,
    pub(crate) facts: Facts,
    pub(crate) availability: Availability,
}

type Object = Map<String, Value>;

/// Returns the filters of all discovery messages.
pub(crate) fn filters(prefix: &str) -> Vec<String> {
    vec![
        format!("{prefix}/+/+/config"),
        format!("{prefix}/+/+/+/config"),
    ]
}

/// Returns the part of a topic that names the entity: `<component>/[<node>/]<object>`.
pub(crate) fn entity<'a>(prefix: &str, topic: &'a str) -> Option<&'a str> {
    let rest = topic.strip_prefix(prefix)?.strip_prefix('/')?;
    rest.strip_suffix("/config")
}

/// Reads a discovery message of an entity.
pub(crate) fn read(entity: &str, payload: &[u8]) -> Result<Config, &'static str> {
    let value: Value = serde_json::from_slice(payload).map_err(|_| "it is not JSON")?;
    let Value::Object(message) = value else {
        return Err("it is no JSON object");
    };
    let nothing = Object::new();
    let device = field(&message, "device", "dev").and_then(Value::as_object);
    let device = device.unwrap_or(&nothing);
    let own = text(&message, "unique_id", "uniq_id");
    let id = identity(device).or(own);
    let mut facts = Facts::default();
    let name = text(device, "name", "name").or_else(|| text(&message, "name", "name"));
    facts.add("NAME", name.as_deref());
    for (fact, long, short) in [
        ("MANUFACTURER", "manufacturer", "mf"),
        ("MODEL", "model", "mdl"),
        ("MODEL_ID", "model_id", "mdl_id"),
        ("SERIAL_NUMBER", "serial_number", "sn"),
        ("SW_VERSION", "sw_version", "sw"),
        ("HW_VERSION", "hw_version", "hw"),
        ("AREA", "suggested_area", "sa"),
        ("CONFIGURATION_URL", "configuration_url", "cu"),
    ] {
        facts.add(fact, text(device, long, short).as_deref());
    }
    let base = text(&message, "~", "~").unwrap_or_default();
    let topic = |long, short| text(&message, long, short).map(|topic| whole(&base, topic));
    facts.add("STATE_TOPIC", topic("state_topic", "stat_t").as_deref());
    facts.add("COMMAND_TOPIC", topic("command_topic", "cmd_t").as_deref());
    Ok(Config {
        device: id.unwrap_or_else(|| entity.to_owned()),
        facts,
        availability: availability(&message, &base),
    })
}

fn field<'a>(object: &'a Object, long: &str, short: &str) -> Option<&'a Value> {
    object.get(long).or_else(|| object.get(short))
}

/// Returns a text that is not empty. Some publishers write numbers.
fn text(object: &Object, long: &str, short: &str) -> Option<String> {
    plain(field(object, long, short)?)
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            None
        }
    }
}

/// Returns the first identifier in the order of the alphabet, or the first connection, such as `mac=00:11:22:aa:bb:cc`.
fn identity(device: &Object) -> Option<String> {
    let all = |value: &Value| match value.as_array() {
        Some(values) => values.iter().filter_map(plain).min(),
        None => plain(value),
    };
    let identifier = field(device, "identifiers", "ids").and_then(all);
    identifier.or_else(|| {
        let connections = field(device, "connections", "cns")?.as_array()?;
        let pair = |pair: &Value| Some(format!("{}={}", plain(&pair[0])?, plain(&pair[1])?));
        connections.iter().filter_map(pair).min()
    })
}

/// Replaces `~` at the beginning or the end of a topic.
fn whole(base: &str, topic: String) -> String {
    if base.is_empty() {
        return topic;
    }
    let topic = match topic.strip_prefix('~') {
        Some(rest) => format!("{base}{rest}"),
        None => topic,
    };
    match topic.strip_suffix('~') {
        Some(rest) => format!("{rest}{base}"),
        None => topic,
    }
}

/// Reads when an entity is available. Templates are not evaluated: of a JSON object the text `state` counts.
fn availability(message: &Object, base: &str) -> Availability {
    let watch = |object: &Object, long, short| {
        let topic = whole(base, text(object, long, short)?);
        is_topic(&topic).then(|| Watch {
            topic: topic.as_str().into(),
            online: text(object, "payload_available", "pl_avail").map(Into::into),
        })
    };
    let listed = match field(message, "availability", "avty") {
        Some(Value::Array(values)) => values.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    let listed = (listed.iter().filter_map(Value::as_object))
        .filter_map(|object| watch(object, "topic", "t"));
    let single = watch(message, "availability_topic", "avty_t");
    let mode = text(message, "availability_mode", "avty_mode");
    Availability {
        mode: match mode.as_deref() {
            Some("all") => Mode::All,
            Some("any") => Mode::Any,
            _ => Mode::Latest,
        },
        watches: listed.chain(single).take(WATCHES_MAX).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(payload: &str) -> Config {
        read("sensor/x/y", payload.as_bytes()).unwrap()
    }

    #[test]
    fn an_entity_of_zigbee2mqtt_names_its_device_and_two_topics_of_availability() {
        // As zigbee2mqtt 2 writes it, with fewer keys.
        let read = config(
            r#"{"availability":[{"topic":"zigbee2mqtt/bridge/state","value_template":"{{ value_json.state }}"},
            {"topic":"zigbee2mqtt/lamp/availability","value_template":"{{ value_json.state }}"}],"availability_mode":"all",
            "device":{"hw_version":1,"identifiers":["zigbee2mqtt_0x00158d0001"],"manufacturer":"IKEA","model":"LED1","name":"lamp","sw_version":"2.3.0"},
            "state_topic":"zigbee2mqtt/lamp","unique_id":"0x00158d0001_light"}"#,
        );
        assert_eq!(read.device, "zigbee2mqtt_0x00158d0001");
        let facts: Vec<_> = read.facts.iter().collect();
        let expected = [
            ("NAME", "lamp"),
            ("MANUFACTURER", "IKEA"),
            ("MODEL", "LED1"),
            ("SW_VERSION", "2.3.0"),
            ("HW_VERSION", "1"),
            ("STATE_TOPIC", "zigbee2mqtt/lamp"),
        ];
        assert_eq!(facts, expected);
        assert_eq!(read.availability.mode, Mode::All);
        let topics: Vec<_> = read
            .availability
            .watches
            .iter()
            .map(|w| &*w.topic)
            .collect();
        assert_eq!(
            topics,
            ["zigbee2mqtt/bridge/state", "zigbee2mqtt/lamp/availability"]
        );
    }

    #[test]
    fn abbreviations_and_the_base_topic_are_read() {
        let read = config(
            r#"{"~":"tele/plug","name":"P","stat_t":"~/STATE","cmd_t":"cmnd/~","avty_t":"~/LWT","pl_avail":"Online","pl_not_avail":"Offline",
            "uniq_id":"p1","dev":{"ids":"B4","mf":"Tasmota","mdl":"Plug","sn":12}}"#,
        );
        assert_eq!(read.device, "B4");
        let fact = |name| read.facts.iter().find(|(n, _)| *n == name).map(|(_, v)| v);
        assert_eq!(fact("STATE_TOPIC"), Some("tele/plug/STATE"));
        assert_eq!(fact("COMMAND_TOPIC"), Some("cmnd/tele/plug"));
        assert_eq!(
            (fact("NAME"), fact("SERIAL_NUMBER")),
            (Some("P"), Some("12"))
        );
        let watch = &read.availability.watches[0];
        assert_eq!(&*watch.topic, "tele/plug/LWT");
        assert_eq!(watch.online.as_deref(), Some("Online"));
    }

    #[test]
    fn a_device_is_known_by_its_connection_its_entity_or_its_topic_if_it_has_no_identifier() {
        let id = |payload| config(payload).device;
        assert_eq!(
            id(r#"{"device":{"connections":[["mac","02:5b"],["ip"]]}}"#),
            "mac=02:5b"
        );
        assert_eq!(id(r#"{"device":{"ids":["b","a"]},"unique_id":"u"}"#), "a");
        assert_eq!(id(r#"{"unique_id":"u"}"#), "u");
        assert_eq!(id("{}"), "sensor/x/y");
    }

    #[test]
    fn no_message_makes_us_subscribe_to_a_wildcard_or_to_more_than_a_few_topics() {
        for topic in [
            "#",
            "a/+/b",
            "",
            "a\\u0000",
            "a\\r\\n",
            "\\uFFFE",
            "$share/g/a",
        ] {
            let read = config(&format!(
                r#"{{"avty_t":"{topic}","avty":{{"t":"{topic}"}}}}"#
            ));
            assert!(read.availability.watches.is_empty(), "{topic}");
        }
        let many: Vec<String> = (0..40).map(|n| format!(r#"{{"t":"t{n}"}}"#)).collect();
        let read = config(&format!(r#"{{"avty":[{}]}}"#, many.join(",")));
        assert_eq!(read.availability.watches.len(), WATCHES_MAX);
    }

    #[test]
    fn the_entity_is_the_part_of_its_topic() {
        assert_eq!(
            entity("homeassistant", "homeassistant/light/0x1/light/config"),
            Some("light/0x1/light")
        );
        assert_eq!(entity("ha", "ha/sensor/y/config"), Some("sensor/y"));
        assert_eq!(entity("ha", "hass/sensor/y/config"), None);
        assert!(read("x", b"[1]").is_err() && read("x", b"no").is_err());
    }
}
