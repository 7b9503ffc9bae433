use super::*;
use proptest::prelude::*;

/// An answer as a camera writes it.
pub(crate) fn matches(endpoint: &str, body: &str) -> String {
    format!(
        r#"<?xml version="1.0" encoding="UTF-8"?><SOAP-ENV:Envelope xmlns:SOAP-ENV="http://www.w3.org/2003/05/soap-envelope" xmlns:wsa="http://schemas.xmlsoap.org/ws/2004/08/addressing" xmlns:d="http://schemas.xmlsoap.org/ws/2005/04/discovery" xmlns:dn="http://www.onvif.org/ver10/network/wsdl" xmlns:tds="http://www.onvif.org/ver10/device/wsdl"><SOAP-ENV:Header><wsa:RelatesTo>uuid:1</wsa:RelatesTo><d:AppSequence InstanceId="7" MessageNumber="3"/></SOAP-ENV:Header><SOAP-ENV:Body><d:ProbeMatches><d:ProbeMatch><wsa:EndpointReference><wsa:Address>{endpoint}</wsa:Address></wsa:EndpointReference>{body}</d:ProbeMatch></d:ProbeMatches></SOAP-ENV:Body></SOAP-ENV:Envelope>"#
    )
}

const BODY: &str = "<d:Types>dn:NetworkVideoTransmitter tds:Device</d:Types><d:Scopes>onvif://www.onvif.org/name/A \n \
                    onvif://www.onvif.org/hardware/B</d:Scopes><d:XAddrs>http://10.0.0.7/onvif/device_service http://[fe80::1]/onvif/device_service</d:XAddrs>\
                    <d:MetadataVersion>10</d:MetadataVersion>";

fn only(text: &str) -> Endpoint {
    let mut message = Message::read(text.as_bytes()).unwrap();
    assert_eq!(message.endpoints.len(), 1);
    message.endpoints.remove(0)
}

#[test]
fn an_answer_of_a_camera_is_read() {
    let message = Message::read(matches("urn:uuid:ABC-1", BODY).as_bytes()).unwrap();
    assert_eq!(message.kind, Kind::Matches);
    assert_eq!(message.relates_to.as_deref(), Some("uuid:1"));
    assert_eq!(
        message.sequence,
        Some(Sequence {
            instance: 7,
            number: 3
        })
    );
    let endpoint = &message.endpoints[0];
    assert_eq!(endpoint.address, "urn:uuid:abc-1");
    assert!(endpoint.is_onvif);
    assert_eq!(endpoint.scopes.len(), 2);
    assert_eq!(endpoint.xaddrs[1], "http://[fe80::1]/onvif/device_service");
    assert_eq!(endpoint.metadata_version, Some(10));
}

#[test]
fn a_device_is_one_of_onvif_by_its_types_or_its_scopes() {
    for (body, expected) in [
        ("<d:Types>dn:NetworkVideoTransmitter</d:Types>", true),
        (
            "<d:Types>undeclared:NetworkVideoTransmitter</d:Types>",
            true,
        ),
        ("<d:Types>tds:Device</d:Types>", true),
        (
            r#"<d:Types xmlns:x="http://www.onvif.org/ver10/device/wsdl">x:Device</d:Types>"#,
            true,
        ),
        (
            "<d:Scopes>onvif://www.onvif.org/type/video_encoder</d:Scopes>",
            true,
        ),
        // A computer as wsdd announces it.
        (
            r#"<d:Types xmlns:wsdp="http://schemas.xmlsoap.org/ws/2006/02/devprof" xmlns:pub="http://schemas.microsoft.com/windows/pub/2005/07">wsdp:Device pub:Computer</d:Types>"#,
            false,
        ),
        ("<d:Types>undeclared:Device</d:Types>", false),
        ("", false),
    ] {
        assert_eq!(
            only(&matches("urn:uuid:1", body)).is_onvif,
            expected,
            "{body}"
        );
    }
}

#[test]
fn what_others_probe_and_nonsense_is_no_message_of_a_device() {
    for spelling in Spelling::ALL {
        assert_eq!(Message::read(&spelling.probe("urn:uuid:1")), None);
    }
    assert_eq!(Message::read(b"<a/>"), None);
    assert_eq!(Message::read(b"\x00\xff"), None);
}

#[test]
fn each_spelling_declares_its_prefixes_and_has_its_form_of_id() {
    for spelling in Spelling::ALL {
        let id = spelling.id("1-2");
        let bytes = spelling.probe(&id);
        let root = xml::read(&bytes).unwrap();
        assert_eq!(root.find("MessageID").unwrap().text, id);
        let types = root.find("Types").unwrap();
        let (prefix, _) = types.text.split_once(':').unwrap_or_default();
        let is_declared = types
            .declared
            .iter()
            .any(|(declared, _)| declared == prefix);
        assert_eq!(is_declared, spelling != Spelling::Any, "{spelling:?}");
        assert_eq!(id.starts_with("uuid:"), spelling == Spelling::Device);
    }
}

#[test]
fn an_answer_without_its_wrapping_and_with_a_fault_at_its_end_is_read() {
    let text = matches("urn:uuid:1", BODY).replace("d:ProbeMatches>", "x>");
    let cut = &text[..text.find("</d:MetadataVersion").unwrap()];
    let endpoint = only(cut);
    assert_eq!(endpoint.xaddrs.len(), 2);
}

#[test]
fn a_description_is_bounded() {
    let many = |text: &str, count: usize| vec![text; count].join(" ");
    let body = format!(
        "<d:Scopes>{} {}</d:Scopes><d:XAddrs>{}</d:XAddrs>",
        "x".repeat(TEXT_MAX + 1),
        many("onvif://www.onvif.org/name/abcdefgh", 500),
        many("http://10.0.0.7/", 50)
    );
    let endpoint = only(&matches("urn:uuid:1", &body));
    assert_eq!(endpoint.scopes.len(), SCOPES_MAX);
    assert_eq!(endpoint.xaddrs.len(), ADDRESSES_MAX);
    let long = matches(&"x".repeat(TEXT_MAX + 1), BODY);
    assert!(Message::read(long.as_bytes()).is_none_or(|m| m.endpoints.is_empty()));
    let one = "<d:ProbeMatch><a:EndpointReference><a:Address>u</a:Address></a:EndpointReference></d:ProbeMatch>";
    let message = Message::read(format!("<d:M>{}</d:M>", one.repeat(100)).as_bytes()).unwrap();
    assert_eq!(message.endpoints.len(), MATCHES_MAX);
}

proptest! {
    #[test]
    fn no_message_makes_it_panic_or_exceeds_its_bounds(at in 0usize..900, with in "\\PC{0,20}") {
        let mut text = matches("urn:uuid:1", BODY);
        let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.insert_str(at, &with);
        if let Some(message) = Message::read(text.as_bytes()) {
            for endpoint in message.endpoints {
                prop_assert!(endpoint.address.len() <= TEXT_MAX && endpoint.scopes.len() <= SCOPES_MAX);
            }
        }
    }
}
