//! Tests of valid details, and of the errors for invalid ones.
use super::*;
use proptest::prelude::*;

fn details(yaml: &str) -> Details {
    Details::parse(yaml).unwrap()
}

#[test]
fn a_kind_alone_takes_everything_of_it() {
    let details = details("kind: _http._tcp");
    assert_eq!(details.kind.browsed.text().unwrap(), "_http._tcp.local.");
    assert_eq!(details.kind.service_type(), "_http._tcp");
    assert_eq!(details.scope, Scope::Shared);
    assert_eq!(details.verify, Some(VERIFY_INTERVAL));
    assert!(details.name.is_none() && details.txt.is_empty());
    assert_eq!(details.addresses, Addresses::OnLink);
}

#[test]
fn a_kind_may_name_its_subtype_and_its_only_domain() {
    for (kind, browsed, service_type) in [
        ("_ipp._tcp.local.", "_ipp._tcp.local.", "_ipp._tcp"),
        ("_coap._udp.local", "_coap._udp.local.", "_coap._udp"),
        (
            "_color._sub._ipp._tcp",
            "_color._sub._ipp._tcp.local.",
            "_ipp._tcp",
        ),
        ("_LOW._TCP", "_LOW._TCP.local.", "_LOW._TCP"),
    ] {
        let details = details(&format!("kind: {kind}"));
        assert_eq!(details.kind.browsed.text().unwrap(), browsed);
        assert_eq!(details.kind.service_type(), service_type);
    }
}

#[test]
fn every_field_is_read() {
    let details = details(
        "{kind: _http._tcp, name: [a, b], host: cam.local, port: 554, txtRecords: {Path: {regex: '/l.*'}, n: 1, b: true},
          addresses: [10.0.0.0/8, 'fd00::1'], interfaces: {allow: [lo]}, identityScope: node, verify: {intervalSeconds: 5}, domain: local}",
    );
    assert!(details.name.unwrap().matches("b"));
    assert!(details.host.unwrap().matches("cam.local"));
    assert!(details.port.unwrap().matches("554"));
    assert_eq!(
        details.txt.keys().collect::<Vec<_>>(),
        ["b", "n", "path"],
        "keys are compared without case"
    );
    assert!(details.txt["b"].matches("true") && details.txt["n"].matches("1"));
    let networks = ["10.0.0.0/8", "fd00::1/128"].map(|net| net.parse().unwrap());
    assert_eq!(details.addresses, Addresses::Within(networks.to_vec()));
    assert!(details.interfaces.uses("lo") && !details.interfaces.uses("eth0"));
    assert_eq!(details.scope, Scope::Node);
    assert_eq!(details.verify, Some(Duration::from_secs(5)));
    for off in ["off", "false", "'off'"] {
        let yaml = format!("{{kind: _http._tcp, verify: {off}}}");
        assert_eq!(self::details(&yaml).verify, None);
    }
}

fn refuses(yaml: &str, place: &str) {
    let message = Details::parse(yaml).unwrap_err();
    assert!(message.contains(place), "{yaml}\n said {message}");
}

#[test]
fn what_cannot_work_is_refused_with_its_place() {
    for (yaml, place) in [
        ("", "`kind` is missing"),
        ("just text", "must be keys and values"),
        ("kind: [", "not YAML"),
        ("name: x", "`kind` is missing"),
        ("knid: _http._tcp", "`knid` is no key of zeroconf"),
        ("{kind: 3, nmae: x}", "`nmae` is no key of zeroconf"),
        (
            "{kind: _a._tcp, interfaces: {alow: a, deny: {}}}",
            "`interfaces.alow` is no key",
        ),
        ("kind: 3", "`kind` must be one service type"),
        ("kind: http", "`kind: http`"),
        ("kind: _http._sctp", "._tcp or ._udp"),
        ("kind: _http._tcp.example.com", "no domain but local"),
        ("kind: http._tcp", "underscore"),
        ("kind: _services._dns-sd._udp", "must look like"),
        ("kind: _dns-sd._udp", "lists service types"),
        (
            "{kind: _a._tcp, domain: example.com}",
            "`domain: example.com` can never match",
        ),
        ("{kind: _a._tcp, nmae: x}", "`nmae` is no key"),
        ("{kind: _a._tcp, name: []}", "`name` is an empty list"),
        ("{kind: _a._tcp, name: {regx: x}}", "`name` must be a value"),
        ("{kind: _a._tcp, name: {regex: '('}}", "`name.regex: (`"),
        (
            "{kind: _a._tcp, txt: {v: 1.10}}",
            "`txt.v: 1.1`: put the number in quotes",
        ),
        ("{kind: _a._tcp, txt: {v: [[1]]}}", "`txt.v` must be text"),
        ("{kind: _a._tcp, txt: {v: 1, V: 2}}", "is there twice"),
        ("{kind: _a._tcp, txt: [a]}", "`txt` must be keys and values"),
        (
            "{kind: _a._tcp, txt: {}, txtRecords: {}}",
            "two names of one field",
        ),
        (
            "{kind: _a._tcp, port: 70000}",
            "`port: 70000` is not a port",
        ),
        (
            "{kind: _a._tcp, port: [80, http]}",
            "`port: http` is not a port",
        ),
    ] {
        refuses(yaml, place);
    }
}

#[test]
fn addresses_interfaces_and_modes_that_cannot_work_are_refused_with_their_place() {
    for (yaml, place) in [
        (
            "{kind: _a._tcp, addresses: [10.0.0.0/99]}",
            "`addresses: 10.0.0.0/99`",
        ),
        (
            "{kind: _a._tcp, addresses: [any, 10.0.0.0/8]}",
            "`any` stands alone",
        ),
        (
            "{kind: _a._tcp, interfaces: {alow: [lo]}}",
            "`interfaces.alow` is no key",
        ),
        (
            "{kind: _a._tcp, identityScope: host}",
            "`identityScope: \"host\"`",
        ),
        ("{kind: _a._tcp, pin: yes please}", "`pin: \"yes please\"`"),
        ("{kind: _a._tcp, verify: 20}", "`verify: 20`"),
        (
            "{kind: _a._tcp, verify: {intervalSeconds: 1}}",
            "`verify.intervalSeconds: 1`",
        ),
        (
            "{kind: _a._tcp, verify: {interval: 1}}",
            "`verify.interval` is no key",
        ),
    ] {
        refuses(yaml, place);
    }
}

#[test]
fn filters_are_bounded_in_number_and_in_memory() {
    let keys = |count: usize| {
        let keys: Vec<_> = (0..count).map(|n| format!("k{n}: v")).collect();
        format!("{{kind: _a._tcp, txt: {{{}}}}}", keys.join(", "))
    };
    assert!(Details::parse(&keys(32)).is_ok());
    refuses(&keys(33), "32 filters at most");
    refuses(
        r"{kind: _a._tcp, name: {regex: '\w{9000}'}}",
        r"`name.regex: \w{9000}` is not a usable regular expression: ",
    );
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC*", name in "\\PC*") {
        drop(Details::parse(&text));
        drop(Details::parse(&format!("kind: {name}\nname: {text}")));
        drop(Details::parse(&format!("kind: _a._tcp\ntxt: {text}")));
    }
}
