//! Turns a resolved service into a device: filters it, and chooses its address and its variables. Pure.
use super::{
    address::{Reach, pinned_network, reach, text},
    details::Details,
    environment::{self, PREFIX, RESERVED, Txt},
};
use crate::model::{device::Device, pin::Pin};
use petiole_mdns::Address;
use std::{collections::BTreeSet, net::IpAddr};

/// The longest full name of a service, in bytes. It becomes an annotation of an Instance. Beyond it: the service is
/// no device.
const FULLNAME_MAX: usize = 255;

/// A service as far as mDNS has resolved it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Service {
    /// The full name, not escaped: a dot in it may be part of the service's own name.
    pub(super) fullname: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// The addresses. The one that has been known for longest comes first.
    pub(super) addresses: Vec<Address>,
    pub(super) txt: Vec<Txt>,
    /// The address of the host that announced it.
    pub(super) source: IpAddr,
    /// The full name of another service whose host has the same name and is a different machine; `fullname` if a machine on another
    /// interface has that.
    pub(super) twin: Option<String>,
}

impl Service {
    /// Returns the use of its best address; `None` without an address.
    pub(super) fn reach(&self) -> Option<Reach> {
        self.addresses.iter().map(reach).min()
    }
}

/// Returns the device of `service` if `details` select it and it can be reached. `earlier` is the device of the same
/// service before: its address is kept while it is as good as any other, so that the order of answers does not replace
/// brokers.
pub(super) fn device_from_service(
    details: &Details,
    service: &Service,
    earlier: Option<&Device>,
) -> Option<Device> {
    let name = service_name(&service.fullname, details.kind.service_type())?;
    let host = service.host.trim_end_matches('.');
    // Variables and annotations cannot hold a NUL.
    if service.fullname.len() > FULLNAME_MAX
        || service.fullname.contains('\0')
        || host.contains('\0')
    {
        return None;
    }
    if !wanted(details, service, name, host) {
        return None;
    }
    let earlier = earlier.and_then(|d| d.properties.get(&named("ADDR")));
    let address = preferred(details, &service.addresses, earlier.map(String::as_str))?;
    let mut device = Device::new(service.fullname.as_str());
    device.properties = environment::variables(&service.txt);
    device
        .properties
        .insert("AKRI_ZEROCONF".into(), "zeroconf".into());
    for (key, value) in [
        ("KIND", details.kind.service_type().to_owned()),
        ("NAME", name.to_owned()),
        ("HOST", host.to_owned()),
        ("ADDR", address),
        ("PORT", service.port.to_string()),
    ] {
        device.properties.insert(named(key), value);
    }
    device.connection = BTreeSet::from([named("ADDR"), named("PORT")]);
    device.pin = details.pin.then(|| {
        let usable = service.addresses.iter();
        let usable = usable.filter(|address| details.addresses.take(address));
        Pin::new(host, usable.filter_map(pinned_network))
    });
    Some(device)
}

/// Returns the device with the TXT record of an earlier device, which fits; without an earlier device it has no record.
pub(super) fn with_record_of(mut device: Device, earlier: Option<&Device>) -> Device {
    let own = |key: &String| {
        let name = key.strip_prefix(PREFIX);
        name.is_none_or(|name| RESERVED.contains(&name))
    };
    device.properties.retain(|key, _| own(key));
    let record = earlier.into_iter().flat_map(|earlier| &earlier.properties);
    let record = record.filter(|(key, _)| !own(key));
    (device.properties).extend(record.map(|(key, value)| (key.clone(), value.clone())));
    device
}

fn named(key: &str) -> String {
    format!("{PREFIX}{key}")
}

/// Returns the service's own name: the full name without its type and domain. It may contain dots.
fn service_name<'a>(fullname: &'a str, service_type: &str) -> Option<&'a str> {
    let suffix = format!(".{service_type}.local.");
    let at = fullname.len().checked_sub(suffix.len())?;
    let (name, end) = fullname.split_at_checked(at)?;
    (!name.is_empty() && end.eq_ignore_ascii_case(&suffix)).then_some(name)
}

fn wanted(details: &Details, service: &Service, name: &str, host: &str) -> bool {
    let port = service.port.to_string();
    // A service at port 0 is absent (RFC 2782).
    service.port != 0
        && details.only.takes(&service.fullname)
        && details.name.as_ref().is_none_or(|m| m.matches(name))
        && details.host.as_ref().is_none_or(|m| m.matches_host(host))
        && details.port.as_ref().is_none_or(|m| m.matches(&port))
        && details.txt.iter().all(|(key, matcher)| {
            // Of several equal keys the first counts (RFC 6763 6.4).
            let found = service.txt.iter().find(|t| t.key.to_lowercase() == *key);
            found
                .and_then(Txt::text)
                .is_some_and(|t| matcher.matches(t))
        })
}

fn preferred(details: &Details, addresses: &[Address], earlier: Option<&str>) -> Option<String> {
    let usable: Vec<&Address> = addresses
        .iter()
        .filter(|address| details.addresses.take(address))
        .collect();
    let best = usable.iter().map(|a| reach(a)).min()?;
    let texts: Vec<String> = usable
        .iter()
        .filter(|a| reach(a) == best)
        .map(|a| text(a))
        .collect();
    let kept = texts.iter().find(|t| Some(t.as_str()) == earlier);
    kept.or(texts.first()).cloned()
}

#[cfg(test)]
mod tests {
    use super::{super::address::is_same, *};
    use proptest::prelude::*;

    const FULLNAME: &str = "Door v1.2 caf\u{e9}._http._tcp.local.";

    fn details(yaml: &str) -> Details {
        Details::parse(&format!("kind: _http._tcp\n{yaml}")).unwrap()
    }

    fn address(text: &str) -> Address {
        let (ip, interface) = text.split_once('%').unwrap_or((text, "eth0"));
        Address {
            ip: ip.parse().unwrap(),
            interface: interface.into(),
            network: None,
            is_on_link: true,
        }
    }

    fn service(addresses: &[&str]) -> Service {
        Service {
            fullname: FULLNAME.into(),
            host: "Door.local.".into(),
            port: 80,
            addresses: addresses.iter().map(|a| address(a)).collect(),
            txt: vec![Txt {
                key: "Path".into(),
                value: Some(b"/live".to_vec()),
            }],
            source: [10, 0, 0, 1].into(),
            twin: None,
        }
    }

    fn addr(service: &Service, earlier: Option<&Device>) -> String {
        let device = device_from_service(&details(""), service, earlier).unwrap();
        device.properties["AKRI_ZEROCONF_DEVICE_ADDR"].clone()
    }

    #[test]
    fn a_service_with_dots_and_utf8_in_its_name_becomes_a_device() {
        let device = device_from_service(&details(""), &service(&["10.0.0.7"]), None).unwrap();
        assert_eq!(device.id.as_str(), FULLNAME);
        let expected = [
            ("AKRI_ZEROCONF", "zeroconf"),
            ("AKRI_ZEROCONF_DEVICE_ADDR", "10.0.0.7"),
            ("AKRI_ZEROCONF_DEVICE_HOST", "Door.local"),
            ("AKRI_ZEROCONF_DEVICE_KIND", "_http._tcp"),
            ("AKRI_ZEROCONF_DEVICE_NAME", "Door v1.2 caf\u{e9}"),
            ("AKRI_ZEROCONF_DEVICE_PATH", "/live"),
            ("AKRI_ZEROCONF_DEVICE_PORT", "80"),
        ];
        let properties: Vec<(&str, &str)> = device
            .properties
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(properties, expected);
        assert_eq!(
            device.connection.iter().collect::<Vec<_>>(),
            ["AKRI_ZEROCONF_DEVICE_ADDR", "AKRI_ZEROCONF_DEVICE_PORT"]
        );
    }

    #[test]
    fn a_txt_key_cannot_take_the_place_of_what_the_handler_says() {
        let mut service = service(&["10.0.0.7"]);
        for key in ["port", "ADDR", "Kind", "name", "host"] {
            let value = Some(b"evil".to_vec());
            service.txt.push(Txt {
                key: key.into(),
                value,
            });
        }
        let device = device_from_service(&details(""), &service, None).unwrap();
        assert_eq!(device.properties["AKRI_ZEROCONF_DEVICE_PORT"], "80");
        assert_eq!(device.properties["AKRI_ZEROCONF_DEVICE_PORT_2"], "evil");
        assert_eq!(device.properties["AKRI_ZEROCONF_DEVICE_ADDR"], "10.0.0.7");
    }

    #[test]
    fn the_best_reachable_address_is_taken() {
        for (addresses, expected) in [
            (&["fe80::1%eth0", "10.0.0.7", "2001:db8::1"][..], "10.0.0.7"),
            (
                &["fe80::1%eth0", "2001:db8::1", "fd00::1"][..],
                "2001:db8::1",
            ),
            (&["169.254.1.1", "fd00::1"][..], "fd00::1"),
            (&["127.0.0.1", "10.0.0.7"][..], "10.0.0.7"),
            (&["127.0.0.1", "::1", "fe80::1%eth0"][..], "127.0.0.1"),
            (&["fe80::1%eth1", "fe80::1%eth0"][..], "fe80::1%eth1"),
            (&["10.0.0.9", "10.0.0.10"][..], "10.0.0.9"),
        ] {
            assert_eq!(addr(&service(addresses), None), expected, "{addresses:?}");
        }
    }

    #[test]
    fn an_address_is_kept_while_it_is_there_and_as_good_as_any() {
        let earlier = device_from_service(&details(""), &service(&["10.0.0.9"]), None).unwrap();
        let kept = addr(&service(&["10.0.0.1", "10.0.0.9"]), Some(&earlier));
        assert_eq!(kept, "10.0.0.9");
        assert_eq!(addr(&service(&["10.0.0.1"]), Some(&earlier)), "10.0.0.1");
        let local = device_from_service(&details(""), &service(&["fe80::1%eth0"]), None).unwrap();
        let better = addr(&service(&["fe80::1%eth0", "10.0.0.1"]), Some(&local));
        assert_eq!(better, "10.0.0.1");
    }

    #[test]
    fn a_scope_counts_only_where_an_address_needs_it() {
        let is_same = |one, other| is_same(&address(one), &address(other));
        assert!(is_same("10.0.0.1%eth0", "10.0.0.1%eth1"));
        assert!(is_same("2001:db8::1%eth0", "2001:db8::1%eth1"));
        assert!(!is_same("fe80::1%eth0", "fe80::1%eth1"));
        assert!(!is_same("10.0.0.1", "10.0.0.2"));
    }

    #[test]
    fn filters_take_or_leave_a_service() {
        for (filter, taken) in [
            ("name: Door v1.2 caf\u{e9}", true),
            ("name: Door v1", false),
            ("name: [Window, Gate]", false),
            ("name: {regex: 'Door .*'}", true),
            ("name: {regex: 'Door'}", false),
            ("host: door.LOCAL.", true),
            ("host: window.local", false),
            ("port: [8080, 80]", true),
            ("port: 8080", false),
            ("port: {regex: '8.*'}", true),
            ("txt: {path: /live}", true),
            ("txt: {PATH: [/a, /live]}", true),
            ("txt: {path: /Live}", false),
            ("txtRecords: {path: /live, other: x}", false),
            ("addresses: [10.0.0.0/8]", true),
            ("addresses: 192.168.0.0/16", false),
        ] {
            let details = details(filter);
            let device = device_from_service(&details, &service(&["10.0.0.7"]), None);
            assert_eq!(device.is_some(), taken, "{filter}");
        }
    }

    #[test]
    fn an_address_outside_the_wanted_range_is_never_used() {
        let service = service(&["10.0.0.7", "192.168.1.7"]);
        let details = details("addresses: [192.168.0.0/16]");
        let device = device_from_service(&details, &service, None).unwrap();
        assert_eq!(
            device.properties["AKRI_ZEROCONF_DEVICE_ADDR"],
            "192.168.1.7"
        );
    }

    #[test]
    fn an_address_off_the_link_is_used_only_where_the_user_says_so() {
        let mut service = service(&["10.0.0.7", "192.168.1.7"]);
        service.addresses[0].is_on_link = false;
        for (addresses, expected) in [
            ("", Some("192.168.1.7")),
            ("addresses: any", Some("10.0.0.7")),
            ("addresses: [10.0.0.0/8]", Some("10.0.0.7")),
            ("addresses: [172.16.0.0/12]", None),
        ] {
            let device = device_from_service(&details(addresses), &service, None);
            let address = device.map(|d| d.properties["AKRI_ZEROCONF_DEVICE_ADDR"].clone());
            assert_eq!(address.as_deref(), expected, "{addresses}");
        }
        service.addresses[1].is_on_link = false;
        assert_eq!(device_from_service(&details(""), &service, None), None);
    }

    #[test]
    fn a_pin_is_the_host_and_the_networks_of_its_usable_addresses() {
        let mut service = service(&["10.0.0.7", "2001:db8::7", "fe80::7%eth0", "192.0.2.7"]);
        let networks = ["10.0.0.0/16", "2001:db8::/48", "fe80::/64"];
        for (address, network) in service.addresses.iter_mut().zip(networks) {
            address.network = Some(network.parse().unwrap());
        }
        service.addresses[3].is_on_link = false;
        for (yaml, expected) in [
            ("", None),
            ("pin: false", None),
            ("pin: true", Some("10.0.0.0/16,2001:db8::/48 Door.local")),
            (
                "{kind: _http._tcp, pin: true, addresses: [192.0.2.0/26]}",
                Some("192.0.2.0/24 Door.local"),
            ),
        ] {
            let details = if yaml.starts_with('{') {
                Details::parse(yaml).unwrap()
            } else {
                details(yaml)
            };
            let device = device_from_service(&details, &service, None).unwrap();
            let pin = device.pin.map(|pin| pin.to_string());
            assert_eq!(pin.as_deref(), expected, "{yaml}");
        }
    }

    #[test]
    fn what_cannot_be_reached_or_named_is_no_device() {
        let none = |service: &Service| device_from_service(&details(""), service, None).is_none();
        assert!(none(&service(&[])), "no address yet");
        let ok = service(&["10.0.0.7"]);
        assert!(none(&Service {
            port: 0,
            ..ok.clone()
        }));
        for fullname in [
            "_http._tcp.local.",
            "._http._tcp.local.",
            "a._rtsp._tcp.local.",
            "a\0b._http._tcp.local.",
            "",
            "\u{e9}",
        ] {
            let fullname = fullname.to_owned();
            assert!(
                none(&Service {
                    fullname: fullname.clone(),
                    ..ok.clone()
                }),
                "{fullname}"
            );
        }
        assert!(none(&Service {
            fullname: format!("{}._http._tcp.local.", "x".repeat(255)),
            ..ok
        }));
    }

    #[test]
    fn a_service_found_by_subtype_is_named_by_its_type() {
        let details = Details::parse("kind: _cam._sub._http._tcp").unwrap();
        let device = device_from_service(&details, &service(&["10.0.0.7"]), None).unwrap();
        assert_eq!(device.properties["AKRI_ZEROCONF_DEVICE_KIND"], "_http._tcp");
        assert_eq!(
            device.properties["AKRI_ZEROCONF_DEVICE_NAME"],
            "Door v1.2 caf\u{e9}"
        );
    }

    proptest! {
        #[test]
        fn every_name_comes_back_whole(name in "\\PC{1,60}") {
            let fullname = format!("{name}._HTTP._tcp.local.");
            prop_assert_eq!(service_name(&fullname, "_http._tcp"), Some(name.as_str()));
        }

        #[test]
        fn no_full_name_makes_it_panic(fullname in "\\PC*", suffix in "(\\._http\\._tcp\\.local\\.)?") {
            let fullname = fullname + &suffix;
            let _ = device_from_service(&details(""), &Service { fullname, ..service(&["10.0.0.7"]) }, None);
        }
    }
}
