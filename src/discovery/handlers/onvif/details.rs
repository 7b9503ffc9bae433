//! Parses `discoveryDetails` of the onvif handler, which are those of Akri's and a few more keys: from YAML to checked
//! [`Details`]. Pure.
use super::super::{
    fields::{Fields, Handler},
    filter::Filter,
    neighbours::normalized_mac,
    only::Only,
};
use ipnet::Ipv4Net;
use petiole_mdns::Interfaces;
use petiole_onvif::{Settings, limits::SUBNET_ADDRESSES_MAX};
use std::time::Duration;

const HANDLER: Handler = Handler {
    name: "onvif",
    example: "discoveryTimeoutSeconds: 1",
};
const KEYS: &str = "ipAddresses, macAddresses, scopes, uuids, discoveryTimeoutSeconds, identity, interfaces, subnets, \
                    probesPerSecond, streams, only";
/// The time that cameras have to answer the first probes, as in Akri.
const TIMEOUT_SECONDS: u64 = 1;
/// The longest `discoveryTimeoutSeconds`, in seconds. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const TIMEOUT_SECONDS_MAX: u64 = 60;
const PROBES_PER_SECOND: u64 = 50;
/// The most `probesPerSecond`. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const PROBES_PER_SECOND_MAX: u64 = 200;

/// The cameras that a Configuration selects, and the way to look for them.
#[derive(Debug, Clone)]
pub(super) struct Details {
    pub(super) ip_addresses: Filter,
    pub(super) mac_addresses: Filter,
    pub(super) scopes: Filter,
    pub(super) uuids: Filter,
    pub(super) identity: Identity,
    pub(super) interfaces: Interfaces,
    pub(super) streams: bool,
    pub(super) only: Only,
    pub(super) probing: Settings,
}

/// The property by which a camera is recognized as the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    /// The address of its service and its UUID, as in Akri.
    Url,
    /// The UUID, which is its endpoint reference.
    Endpoint,
    Mac,
    Serial,
}

/// The identities by their names, the usual one first.
const IDENTITIES: [(&str, Identity); 4] = [
    ("url", Identity::Url),
    ("endpoint", Identity::Endpoint),
    ("mac", Identity::Mac),
    ("serial", Identity::Serial),
];

impl Details {
    pub(super) fn parse(yaml: &str) -> Result<Self, String> {
        let mut fields = Fields::read(HANDLER, yaml)?.of(KEYS, &[])?;
        let mut filter = |key, item: fn(&str) -> String| Filter::take(&mut fields, key, item);
        let ip_addresses = filter("ipAddresses", str::to_owned)?;
        let mac_addresses = filter("macAddresses", normalized_mac)?;
        let scopes = filter("scopes", str::to_owned)?;
        let uuids = filter("uuids", |uuid| {
            let uuid = uuid.to_ascii_lowercase();
            uuid.trim_start_matches("urn:")
                .trim_start_matches("uuid:")
                .to_owned()
        })?;
        let seconds = 1..=TIMEOUT_SECONDS_MAX;
        let window = fields.number("discoveryTimeoutSeconds", TIMEOUT_SECONDS, seconds)?;
        let rates = 1..=PROBES_PER_SECOND_MAX;
        let per_second = fields.number("probesPerSecond", PROBES_PER_SECOND, rates)?;
        Ok(Self {
            ip_addresses,
            mac_addresses,
            scopes,
            uuids,
            identity: fields.word("identity", &IDENTITIES)?,
            interfaces: fields.interfaces()?,
            streams: fields.switch("streams", false)?,
            only: Only::take(&mut fields)?,
            probing: Settings {
                window: Duration::from_secs(window),
                subnets: subnets(fields.strings("subnets")?)?,
                per_second: u32::try_from(per_second).unwrap_or(u32::MAX),
            },
        })
    }
}

fn subnets(texts: Vec<String>) -> Result<Vec<Ipv4Net>, String> {
    let parse = |text: String| {
        let network = text.parse::<Ipv4Net>().map(|network| network.trunc());
        network.map_err(|_| format!("`subnets: {text}` is no IPv4 network such as 10.1.0.0/24"))
    };
    let networks = texts.into_iter().map(parse);
    let networks = networks.collect::<Result<Vec<_>, _>>()?;
    let size = |network: &Ipv4Net| 1_u64 << (32 - network.prefix_len());
    let addresses: u64 = networks.iter().map(size).sum();
    if addresses > SUBNET_ADDRESSES_MAX {
        return Err(format!(
            "`subnets` has {addresses} addresses; {SUBNET_ADDRESSES_MAX} are the most, which is a /20"
        ));
    }
    let is_public = |network: &&Ipv4Net| {
        let first = network.network();
        first.is_multicast() || first.is_unspecified() || first.is_loopback()
    };
    match networks.iter().find(is_public) {
        Some(network) => Err(format!("`subnets: {network}` is no network of hosts")),
        None => Ok(networks),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn akris_details_are_read_as_they_are() {
        let text = "ipAddresses:\n  action: Exclude\n  items: []\nmacAddresses:\n  action: Exclude\n  items: []\nscopes:\n  \
                    action: Include\n  items:\n  - onvif://www.onvif.org/name/GreatONVIFCamera\nuuids:\n  action: Exclude\n  \
                    items: []\ndiscoveryTimeoutSeconds: 2\n";
        let details = Details::parse(text).unwrap();
        assert_eq!(details.identity, Identity::Url);
        assert_eq!(details.probing.window, Duration::from_secs(2));
        assert!(details.ip_addresses.is_empty() && details.uuids.takes(["a"]));
        assert!(
            details
                .scopes
                .takes(["x", "onvif://www.onvif.org/name/GreatONVIFCamera2"])
        );
        assert!(!details.scopes.takes(["onvif://www.onvif.org/name/Other"]));
        let plain = Details::parse("").unwrap();
        assert_eq!(plain.probing.window, Duration::from_secs(1));
        assert!(plain.scopes.takes([]) && !plain.streams);
    }

    #[test]
    fn a_filter_includes_or_excludes() {
        let takes = |yaml: &str, address: &str| {
            let details = Details::parse(&format!("ipAddresses: {yaml}")).unwrap();
            details
                .ip_addresses
                .takes_address(address.parse::<IpAddr>().unwrap())
        };
        for (yaml, address, expected) in [
            ("{items: [10.0.0.1]}", "10.0.0.1", true),
            ("{items: [10.0.0.1]}", "10.0.0.10", false),
            ("{items: [10.0.0.0/24]}", "10.0.0.10", true),
            ("{items: ['10.0.']}", "10.0.9.9", true),
            (
                "{action: Exclude, items: [10.0.0.0/24]}",
                "10.0.0.10",
                false,
            ),
            ("{action: Exclude, items: [10.0.0.0/24]}", "10.0.1.10", true),
            ("{action: Exclude}", "10.0.1.10", true),
        ] {
            assert_eq!(takes(yaml, address), expected, "{yaml} {address}");
        }
        let details = Details::parse(
            "macAddresses: {items: [00-11-22-AA-BB-CC]}\nuuids: {items: ['urn:uuid:ABC']}",
        );
        let details = details.unwrap();
        assert!(details.mac_addresses.takes(["00:11:22:aa:bb:cc"]));
        assert!(details.uuids.takes(["abc"]));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_place() {
        for (yaml, message) in [
            ("ipAddress: {}", "`ipAddress` is no key of onvif"),
            ("scopes: {action: include, items: [a]}", "`scopes.action"),
            ("scopes: {items: []}", "`scopes` includes nothing"),
            ("scopes: {items: ['']}", "an empty item"),
            ("discoveryTimeoutSeconds: 0", "must be 1 to 60"),
            ("probesPerSecond: 201", "must be 1 to 200"),
            ("identity: path", "one of url, endpoint, mac, serial"),
            ("subnets: [10.0.0.0/19]", "8192 addresses"),
            ("subnets: ['fe80::/64']", "no IPv4 network"),
            ("subnets: [239.0.0.0/24]", "no network of hosts"),
            ("streams: 1", "`streams: 1` must be true or false"),
        ] {
            let refused = Details::parse(yaml).unwrap_err();
            assert!(refused.contains(message), "{yaml}: {refused}");
        }
    }
}
