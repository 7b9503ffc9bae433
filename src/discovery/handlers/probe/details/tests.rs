use super::*;

fn parse(yaml: &str) -> Details {
    Details::parse(yaml, "public").unwrap()
}

#[test]
fn hosts_are_networks_ranges_addresses_and_names_and_each_is_asked_once() {
    let details = parse(
        "{hosts: [10.1.2.0/30, 10.1.2.2-10.1.2.4, fd00::7, PLC-4.plant, plc-4.plant], ask: modbus}",
    );
    let targets: Vec<_> = details.targets().map(|t| t.to_string()).collect();
    assert_eq!(
        targets,
        [
            "10.1.2.1",
            "10.1.2.2",
            "10.1.2.3",
            "10.1.2.4",
            "[fd00::7]",
            "plc-4.plant"
        ]
    );
    let targets = |yaml: &str| parse(yaml).targets().count();
    let two = "only: ['10.1.2.2:502', 'plc:502', '10.1.2.9:502']";
    assert_eq!(
        targets(&format!(
            "{{hosts: [10.1.2.0/29, plc], ask: modbus, {two}}}"
        )),
        2
    );
    let by_mac = format!("{{hosts: [10.1.2.0/29, plc], ask: modbus, identity: mac, {two}}}");
    assert_eq!(targets(&by_mac), 7, "their identities are not known before");
    let named = |text: &str| details.is_named(&Target::Address(text.parse().unwrap()));
    assert!(named("fd00::7") && !named("10.1.2.1"));
    assert_eq!(
        parse("{hosts: 10.0.0.0/20, ask: tls}").targets().count(),
        4094
    );
}

#[test]
fn each_way_has_its_port_and_its_identity() {
    for (ask, port, identity) in [
        ("tls", 443, Identity::Fact("CERTIFICATE_SHA256")),
        ("{http: {json: /serial}}", 80, Identity::Address),
        ("https", 443, Identity::Address),
        ("{modbus: {unit: 255}}", 502, Identity::Address),
        ("snmp", 161, Identity::Address),
        ("{redfish: {tls: false}}", 80, Identity::Fact("UUID")),
        ("redfish", 443, Identity::Fact("UUID")),
        ("{rtsp: {path: /live}}", 554, Identity::Address),
    ] {
        let details = parse(&format!("{{hosts: a, ask: {ask}}}"));
        assert_eq!((details.port, details.identity), (port, identity), "{ask}");
    }
    let details = parse("{hosts: a, ask: {http: {json: /serial}}, identity: json, port: 8080}");
    assert_eq!(
        (details.port, details.identity),
        (8080, Identity::Fact("JSON"))
    );
    assert_eq!(
        parse("{hosts: a, ask: tcp, port: 9, identity: mac}").identity,
        Identity::Mac
    );
}

/// Details that cannot work, each with a part of what is said.
const REFUSED: &[(&str, &str)] = &[
    ("ask: tls", "`hosts` must have 1 to 256 entries"),
    ("{hosts: a, host: b}", "known here: hosts, port"),
    ("{hosts: 10.1.2, ask: tls}", "`10.1.2` must be an address"),
    ("{hosts: a b, ask: tls}", "or a name"),
    (
        "{hosts: 10.0.0.0/19, ask: tls}",
        "`hosts` has 8190 addresses",
    ),
    ("{hosts: [\"::/0\", \"::/0\"], ask: tls}", "are the most"),
    ("{hosts: a}", "`ask` must be one of tcp"),
    ("{hosts: a, ask: ftp}", "`ask` must be one of tcp"),
    (
        "{hosts: a, ask: {tls: {}, tcp: {}}}",
        "`ask` must be one of tcp",
    ),
    ("{hosts: a, ask: tcp}", "`port` is missing"),
    (
        "{hosts: a, ask: tls, port: 0}",
        "`port: 0` must be 1 to 65535",
    ),
    (
        "{hosts: a, ask: {http: {path: status}}}",
        "`ask.http.path: status`",
    ),
    (
        "{hosts: a, ask: {http: {path: \"/a b\"}}}",
        "`ask.http.path: /a b`",
    ),
    (
        "{hosts: a, ask: {http: {header: \"a: b\"}}}",
        "`ask.http.header: a: b`",
    ),
    (
        "{hosts: a, ask: {http: {json: a.b}}}",
        "`ask.http.json: a.b`",
    ),
    (
        "{hosts: a, ask: {http: {json: \"/a\\nb\"}}}",
        "`ask.http.json: /a",
    ),
    (
        "{hosts: a, ask: tls, identity: uuid}",
        "must be one of certificate, address, mac, serial with",
    ),
    ("{hosts: a, ask: {modbus: {unit: 256}}}", "must be 0 to 255"),
    (
        "{hosts: a, ask: {redfish: {tls: maybe}}}",
        "`ask.redfish.tls: \"maybe\"`",
    ),
    (
        "{hosts: a, ask: modbus, identity: uuid}",
        "must be one of address, mac with",
    ),
    ("{hosts: a, ask: tls, match: {VENDOR: a}}", "`match.VENDOR`"),
    (
        "{hosts: a, ask: tls, match: {PROBE_VENDOR: []}}",
        "is an empty list",
    ),
    (
        "{hosts: a, ask: tls, intervalSeconds: 1}",
        "must be 5 to 86400",
    ),
    (
        "{hosts: a, ask: tls, probesPerSecond: 1001}",
        "must be 1 to 1000",
    ),
];

#[test]
fn what_cannot_work_is_refused_with_its_place() {
    for (yaml, place) in REFUSED {
        let message = Details::parse(yaml, "public").err().unwrap().to_string();
        assert!(message.contains(place), "{yaml}\n said {message}");
    }
}
