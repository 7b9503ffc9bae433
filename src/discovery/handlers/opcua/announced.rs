//! Reads the addresses of servers that announce themselves by multicast DNS (OPC 10000-12, Annex C). Pure.
use crate::model::networks::is_of_cloud;
use petiole_mdns::{Found, Interfaces, Name, Service, Wanted};
use petiole_opcua::{EndpointUrl, limits::SERVERS_MAX};
use std::{collections::BTreeSet, net::IpAddr};

/// The type of the services of OPC UA over TCP.
const KIND: &str = "_opcua-tcp._tcp.local";

/// Returns the request for the querier. Nothing is confirmed by multicast, because each server is asked itself.
pub(super) fn wanted(interfaces: Interfaces) -> Wanted {
    let kind = Name::from_dotted(KIND).expect("it is a name");
    Wanted {
        browsed: kind.clone(),
        base: kind,
        interfaces,
        verify: None,
    }
}

/// Returns the addresses of the services: as many as are asked, and one more, so that the survey says that there are more. Those of the
/// round before come first.
pub(super) fn urls(found: &Found, before: &[EndpointUrl]) -> Vec<EndpointUrl> {
    let urls = found.services.values().filter_map(|service| url(service));
    let urls: BTreeSet<EndpointUrl> = urls.collect();
    let before: Vec<&EndpointUrl> = before.iter().filter(|url| urls.contains(*url)).collect();
    let new = urls.iter().filter(|url| !before.contains(url));
    let all = before.iter().copied().chain(new);
    all.take(SERVERS_MAX + 1).cloned().collect()
}

/// Returns the address of a service: its first address of a network of the interface that received it and of no cloud, so that nobody
/// on a LAN has a node connect to somewhere else. Its host has a name of multicast DNS, which brokers seldom can look up.
fn url(service: &Service) -> Option<EndpointUrl> {
    let ips = service
        .addresses
        .iter()
        .filter(|address| address.is_on_link && !is_of_cloud(address.ip));
    let mut ips: Vec<IpAddr> = ips.map(|address| address.ip).filter(is_whole).collect();
    ips.sort_unstable();
    let host = ips.first()?.to_string();
    let path = service.txt_value("path");
    let path = path.and_then(|value| std::str::from_utf8(value).ok());
    let path = path.unwrap_or_default().trim_start_matches('/');
    EndpointUrl::new(&host, service.port, &format!("/{path}")).ok()
}

/// Returns whether an address says all by itself: a link-local one of IPv6 needs the interface, too.
fn is_whole(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => true,
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petiole_mdns::Address;
    use std::sync::Arc;

    fn service(ips: &[(&str, bool)], txt: &[u8]) -> Service {
        let address = |(ip, is_on_link): &(&str, bool)| Address {
            ip: ip.parse().unwrap(),
            interface: "eth0".into(),
            network: None,
            is_on_link: *is_on_link,
        };
        Service {
            name: Name::from_dotted("Press._opcua-tcp._tcp.local").unwrap(),
            host: Name::from_dotted("press.local").unwrap(),
            port: 4841,
            addresses: ips.iter().map(address).collect(),
            txt: Arc::from(txt),
            source: [10, 0, 0, 1].into(),
            twin: None,
        }
    }

    #[test]
    fn a_server_that_is_known_stays_however_many_others_are_announced_and_that_there_are_more_shows()
     {
        let at = |n: u32| {
            let ip = std::net::Ipv4Addr::from(0x0a00_0000 + n).to_string();
            let name = Name::from_dotted(&format!("s{n}._opcua-tcp._tcp.local")).unwrap();
            (name, Arc::new(service(&[(&ip, true)], b"")))
        };
        let found = |first: u32| Found {
            services: (first..500).map(at).chain([at(900)]).collect(),
            ..Found::default()
        };
        let press = urls(&found(500), &[]);
        assert_eq!(press.len(), 1);
        let all = urls(&found(0), &press);
        assert_eq!((all.len(), &all[..1]), (SERVERS_MAX + 1, &press[..]));
        assert_eq!(urls(&found(0), &all), all);
    }

    #[test]
    fn an_announced_server_is_asked_at_an_address_of_the_link_and_its_path() {
        let url_of =
            |ips: &[(&str, bool)], txt: &[u8]| url(&service(ips, txt)).map(|url| url.to_string());
        let both = [("fd00::7", true), ("10.0.0.7", true), ("10.0.0.3", false)];
        let expected = "opc.tcp://10.0.0.7:4841/UA/Press";
        assert_eq!(
            url_of(&both, b"\x0epath=/UA/Press\x05caps=").unwrap(),
            expected
        );
        assert_eq!(url_of(&both, b"\x0dPATH=UA/Press").unwrap(), expected);
        assert_eq!(url_of(&both, b"").unwrap(), "opc.tcp://10.0.0.7:4841/");
        assert_eq!(url_of(&[("fe80::1", true), ("10.9.9.9", false)], b""), None);
        let of_clouds = ["169.254.169.254", "168.63.129.16", "fd00:c1::a9fe:a9fe"];
        assert_eq!(url_of(&of_clouds.map(|ip| (ip, true)), b""), None);
        assert_eq!(
            url_of(&[("fd00::7", true)], b"").unwrap(),
            "opc.tcp://[fd00::7]:4841/"
        );
        assert_eq!(url_of(&both, b"\x07path=a "), None, "no path has a space");
    }
}
