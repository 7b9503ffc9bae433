//! Asks by HTTP/1.1 for a status, a header or a value in JSON; Redfish is one such question. Redirects are not followed. Pure.
use crate::{facts::Facts, failure::Failure, message::Message};
use serde_json::Value;

pub(crate) const PROTOCOL: &str = "HTTP/1.";

/// What to ask for, and what to expect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Http {
    /// The path and query, such as `/status`.
    pub path: String,
    /// The expected status. Without it, any from 200 to 299.
    pub status: Option<u16>,
    /// The name of a header that the answer must have.
    pub header: Option<String>,
    /// A pointer (RFC 6901) to a value that the body must have, such as `/device/serial`.
    pub json: Option<String>,
}

pub(crate) fn request(path: &str, authority: &str) -> Vec<u8> {
    let lines = [
        format!("GET {path} HTTP/1.1"),
        format!("Host: {authority}"),
        "User-Agent: petiole".to_owned(),
        "Accept: application/json, */*".to_owned(),
        "Connection: close\r\n\r\n".to_owned(),
    ];
    lines.join("\r\n").into_bytes()
}

impl Http {
    /// Reads a whole answer.
    pub(crate) fn answer(&self, message: &Message) -> Result<Facts, Failure> {
        let is_expected = match self.status {
            Some(status) => message.status == status,
            None => (200..300).contains(&message.status),
        };
        if !is_expected {
            return Err(Failure::Status(message.status));
        }
        let mut facts = Facts::default();
        facts.set("STATUS", &message.status.to_string());
        facts.set("SERVER", message.header("server").unwrap_or_default());
        if let Some(name) = &self.header {
            let value = message.header(name).filter(|value| !value.is_empty());
            let value = value.ok_or_else(|| Failure::Missing(format!("header {name}")))?;
            facts.set("HEADER", value);
        }
        if let Some(pointer) = &self.json {
            let document = document(message)?;
            let value = document.pointer(pointer).and_then(text);
            let value = value.ok_or_else(|| Failure::Missing(format!("value at {pointer}")))?;
            facts.set("JSON", &value);
        }
        Ok(facts)
    }
}

/// The path of the service root of Redfish (DSP0266 6.3).
pub(crate) const REDFISH_PATH: &str = "/redfish/v1/";

/// Reads a service root of Redfish.
pub(crate) fn redfish(message: &Message) -> Result<Facts, Failure> {
    let mut facts = Http::default().answer(message)?;
    let root = document(message)?;
    for (key, name) in [
        ("RedfishVersion", "VERSION"),
        ("UUID", "UUID"),
        ("Vendor", "VENDOR"),
        ("Product", "MODEL"),
        ("Name", "NAME"),
    ] {
        facts.set(name, root[key].as_str().unwrap_or_default());
    }
    match facts.get("VERSION") {
        Some(_) => Ok(facts),
        None => Err(Failure::Missing("RedfishVersion".to_owned())),
    }
}

fn document(message: &Message) -> Result<Value, Failure> {
    serde_json::from_slice(&message.body).map_err(|_| Failure::Missing("JSON".to_owned()))
}

/// Returns a value that is no list and no object as text.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(status: u16, body: &str) -> Message {
        let mut message = Message::new(PROTOCOL, true);
        let head = format!(
            "HTTP/1.1 {status} X\r\nServer: acme/1\r\nX-Serial: 7\r\nContent-Length: {}",
            body.len()
        );
        assert_eq!(
            message.receive(format!("{head}\r\n\r\n{body}").as_bytes()),
            Ok(true)
        );
        message
    }

    #[test]
    fn a_host_is_identified_by_status_header_and_json() {
        let body = r#"{"device": {"serial": 17, "list": []}}"#;
        let mut http = Http {
            header: Some("x-serial".to_owned()),
            json: Some("/device/serial".to_owned()),
            ..Http::default()
        };
        let facts = http.answer(&message(200, body)).unwrap();
        let facts: Vec<_> = facts.iter().collect();
        assert_eq!(
            facts,
            [
                ("HEADER", "7"),
                ("JSON", "17"),
                ("SERVER", "acme/1"),
                ("STATUS", "200")
            ]
        );
        assert_eq!(http.answer(&message(302, body)), Err(Failure::Status(302)));
        http.status = Some(401);
        assert!(http.answer(&message(401, body)).is_ok());
        assert_eq!(http.answer(&message(200, body)), Err(Failure::Status(200)));
        for (pointer, body, missing) in [
            ("/device/list", body, "value at /device/list"),
            ("/other", body, "value at /other"),
            ("/device/serial", "<html>", "JSON"),
        ] {
            http.json = Some(pointer.to_owned());
            let missing = Failure::Missing(missing.to_owned());
            assert_eq!(http.answer(&message(401, body)), Err(missing));
        }
    }

    #[test]
    fn a_service_root_of_redfish_has_a_version() {
        let root = r#"{"RedfishVersion": "1.15.0", "UUID": "92384634-2938-2342-8820-489239905423", "Product": "BMC 4", "Vendor": null}"#;
        let facts = redfish(&message(200, root)).unwrap();
        assert_eq!(
            facts.get("UUID"),
            Some("92384634-2938-2342-8820-489239905423")
        );
        assert_eq!(
            (facts.get("MODEL"), facts.get("VENDOR")),
            (Some("BMC 4"), None)
        );
        let missing = |what: &str| Err(Failure::Missing(what.to_owned()));
        assert_eq!(redfish(&message(200, "{}")), missing("RedfishVersion"));
        assert_eq!(redfish(&message(200, "[]")), missing("RedfishVersion"));
    }
}
