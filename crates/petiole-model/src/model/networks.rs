//! Defines ranges of addresses, and decides which addresses of devices may get a name in the cluster. Pure.
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
    sync::LazyLock,
};

/// The addresses at which clouds and Kubernetes give credentials, names and time to every machine.
const CLOUD: [&str; 14] = [
    "169.254.169.254", // metadata of nearly all clouds
    "169.254.169.253", // AWS: DNS
    "169.254.170.2",   // AWS: credentials of ECS
    "169.254.170.23",  // AWS: credentials of EKS
    "169.254.20.10",   // Kubernetes: NodeLocal DNSCache
    "169.254.42.42",   // Scaleway: metadata
    "100.100.100.200", // Alibaba: metadata
    "168.63.129.16",   // Azure: agent and DNS
    "192.0.0.192",     // Oracle: metadata of its first cloud
    "fd00:ec2::/32",   // AWS: metadata, at ::254
    "fd00:c1::/32",    // Oracle: metadata, at ::a9fe:a9fe
    "fd20:ce::/32",    // Google: metadata, at ::254
    "fd00:42::42",     // Scaleway: metadata
    "fe80::a9fe:a9fe", // OpenStack: metadata
];
/// Networks of machines themselves, of links, of groups, and of IPv4 addresses in those of IPv6. No [`Range`] begins or ends with a
/// mapped address, and none of `hosts` of the handler `probe` is large enough to have them all.
const SPECIAL: [&str; 10] = [
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/3",
    "::/96",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "2002::/16",
    "fe80::/10",
    "ff00::/8",
];
static CLOUD_RANGES: LazyLock<Vec<Range>> = LazyLock::new(|| ranges(&CLOUD));

/// Addresses without a gap, all of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub first: IpAddr,
    pub last: IpAddr,
}

impl FromStr for Range {
    type Err = String;

    /// Reads `10.1.2.0/24`, `10.1.2.10-10.1.2.20` or `10.1.2.3`.
    fn from_str(text: &str) -> Result<Self, String> {
        let unfit = || {
            format!(
                "`{text}` must be an address, a network such as 10.1.2.0/24, or a range such as 10.1.2.10-10.1.2.20"
            )
        };
        let address = |text: &str| text.trim().parse().map_err(|_| unfit());
        let (first, last): (IpAddr, IpAddr) = match text.split_once('-') {
            Some((first, last)) => (address(first)?, address(last)?),
            None if text.contains('/') => {
                let net: ipnet::IpNet = text.trim().parse().map_err(|_| unfit())?;
                (net.network(), net.broadcast())
            }
            None => (address(text)?, address(text)?),
        };
        let is_range = first.is_ipv4() == last.is_ipv4() && first <= last;
        // As an address of IPv4 it may be special.
        let is_mapped = [first, last].iter().any(|ip| ip.to_canonical() != *ip);
        let is_fit = is_range && !is_mapped;
        is_fit.then_some(Self { first, last }).ok_or_else(unfit)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl Range {
    pub fn contains(self, address: IpAddr) -> bool {
        (self.first..=self.last).contains(&address)
    }

    pub fn is_within(self, other: Self) -> bool {
        other.contains(self.first) && other.contains(self.last)
    }

    /// Returns the number of addresses.
    pub fn count(self) -> u128 {
        (number(self.last) - number(self.first)).saturating_add(1)
    }

    pub fn addresses(self) -> impl Iterator<Item = IpAddr> {
        let first = number(self.first);
        (0..self.count()).map(move |n| match self.first {
            IpAddr::V4(_) => Ipv4Addr::from_bits((first + n) as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(first + n).into(),
        })
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Returns the networks in which no host is meant unless it is named, such as those of links and of clouds' services.
pub fn special() -> Vec<Range> {
    [ranges(&SPECIAL), CLOUD_RANGES.clone()].concat()
}

/// Returns whether an address is one of a cloud's services, which is never that of a device.
pub fn is_of_cloud(address: IpAddr) -> bool {
    let address = address.to_canonical();
    CLOUD_RANGES.iter().any(|range| range.contains(address))
}

fn ranges(texts: &[&str]) -> Vec<Range> {
    let parsed = texts.iter().map(|text| text.parse());
    parsed.collect::<Result<_, _>>().expect("they are networks")
}

/// The networks whose addresses may become endpoints of Services (`deviceService`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceNetworks {
    allowed: Vec<Range>,
    special: Vec<Range>,
    /// The networks of the Pods and Services of the cluster.
    cluster: Vec<Range>,
}

impl DeviceNetworks {
    pub fn new(allowed: Vec<Range>, cluster: Vec<Range>) -> Self {
        let special = special();
        Self {
            allowed,
            special,
            cluster,
        }
    }

    /// Returns whether no device may have a name.
    pub fn is_empty(&self) -> bool {
        self.allowed.is_empty()
    }

    /// Returns why an address gets no name, however wide the allowed networks are. `of_nodes` are those of the cluster's nodes.
    pub fn refusal<'a>(
        &self,
        address: IpAddr,
        mut of_nodes: impl Iterator<Item = &'a Range>,
    ) -> Option<&'static str> {
        let is_in = |ranges: &[Range]| ranges.iter().any(|range| range.contains(address));
        if !is_in(&self.allowed) {
            Some("is in no network that the administrator allows")
        } else if is_in(&self.special) {
            Some("is of a machine itself, of a link, of a group or of a cloud's services")
        } else if is_in(&self.cluster) {
            Some("is in a network of the cluster's Pods and Services")
        } else if of_nodes.any(|range| range.contains(address)) {
            Some("is one of a node or of its Pods")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_an_address_a_network_or_two_addresses() {
        let all = |text: &str| -> Vec<String> {
            let range: Range = text.parse().unwrap();
            range.addresses().map(|a| a.to_string()).collect()
        };
        assert_eq!(
            all("10.1.2.254-10.1.3.1"),
            ["10.1.2.254", "10.1.2.255", "10.1.3.0", "10.1.3.1"]
        );
        assert_eq!(all("10.1.2.3/31"), ["10.1.2.2", "10.1.2.3"]);
        assert_eq!(all("fd00::7"), ["fd00::7"]);
        for text in [
            "10.1.2.9-10.1.2.1",
            "10.1.2.9-fd00::",
            "10.1.2",
            "10.0.0.0/33",
            "::ffff:10.0.0.1",
            "::ffff:10.244.0.0/116",
            "",
        ] {
            assert!(text.parse::<Range>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_of_a_cloud_is_of_none_else_and_special() {
        for address in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "169.254.20.10",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd00:c1::a9fe:a9fe",
            "fd00:42::42",
            "fe80::a9fe:a9fe",
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert!(is_of_cloud(address), "{address}");
            let has = |range: &Range| range.contains(address.to_canonical());
            assert!(special().iter().any(has), "{address}");
        }
        for address in [
            "169.254.7.7",
            "10.0.0.1",
            "fe80::1",
            "fd00::1",
            "fd00:42::1",
        ] {
            assert!(!is_of_cloud(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn no_address_of_the_cluster_or_of_a_special_network_gets_a_name_however_wide_the_allowed_networks_are()
     {
        let cluster = ranges(&["10.244.0.0/16", "fd00:96::/112"]);
        let wide = DeviceNetworks::new(ranges(&["0.0.0.0/0", "::/0"]), cluster.clone());
        let nodes = ranges(&["192.168.1.2", "10.200.3.0/24"]);
        let refusal = |networks: &DeviceNetworks, address: &str| {
            networks.refusal(address.parse().unwrap(), nodes.iter())
        };
        for (address, why) in [
            ("192.168.1.3", None),
            ("2001:db8::1", None),
            ("192.168.1.2", Some("of a node")),
            ("10.200.3.7", Some("of a node")),
            ("10.244.1.2", Some("Pods and Services")),
            ("fd00:96::1", Some("Pods and Services")),
            ("127.0.0.1", Some("of a machine itself")),
            ("0.0.0.0", Some("of a machine itself")),
            ("169.254.169.254", Some("of a machine itself")),
            ("168.63.129.16", Some("of a machine itself")),
            ("224.0.0.251", Some("of a machine itself")),
            ("255.255.255.255", Some("of a machine itself")),
            ("::1", Some("of a machine itself")),
            ("::", Some("of a machine itself")),
            ("fe80::1", Some("of a machine itself")),
            ("ff02::fb", Some("of a machine itself")),
            ("fd00:ec2::254", Some("of a machine itself")),
            ("fd00:c1::a9fe:a9fe", Some("of a machine itself")),
            ("64:ff9b::a00:1", Some("of a machine itself")),
        ] {
            let said = refusal(&wide, address);
            assert_eq!(said.is_some(), why.is_some(), "{address}: {said:?}");
            let is_it = said.is_none_or(|said| said.contains(why.unwrap()));
            assert!(is_it, "{address}: {said:?}");
        }
        // An entry within them changes nothing.
        let named = ["127.0.0.1", "169.254.169.254", "10.244.1.2", "192.168.1.2"];
        let within = DeviceNetworks::new(ranges(&named), cluster);
        for address in named {
            assert!(refusal(&within, address).is_some(), "{address}");
        }
        assert!(
            refusal(&within, "192.168.1.3")
                .unwrap()
                .contains("no network")
        );
        assert!(DeviceNetworks::default().is_empty() && !within.is_empty());
    }
}
