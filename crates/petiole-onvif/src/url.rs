//! Parses the addresses (XAddrs) of devices, and orders those to try. Pure.
use std::{
    fmt,
    net::{IpAddr, SocketAddr, SocketAddrV6},
};

/// The most addresses of one device that are tried. Beyond it: further ones are not.
const CANDIDATES_MAX: usize = 8;
/// The path of the device service where a device does not say one (ONVIF Core 5.1.1).
const USUAL_PATH: &str = "/onvif/device_service";
/// The longest address, in bytes. Beyond it: it is left out.
const URL_MAX: usize = 256;

/// An address of a service by HTTP.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Url {
    /// An address or a name, without brackets.
    pub host: String,
    /// The port; 80 where none is said.
    pub port: u16,
    /// The path with its query. It begins with a slash.
    pub path: String,
    /// True for `https`.
    pub is_tls: bool,
    /// The text as it was received.
    pub(crate) text: String,
}

impl Url {
    /// Parses `http://HOST[:PORT][/PATH]`, and the same with `https`.
    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = |c: char| c.is_ascii_graphic() && !"\"<>\\^`{|}".contains(c);
        if text.len() > URL_MAX || !text.chars().all(is_plain) {
            return None;
        }
        let (scheme, rest) = text.split_once("://")?;
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let path = path.split('#').next().unwrap_or_default();
        let (host, port) = match authority.strip_prefix('[') {
            Some(v6) => {
                let (host, port) = v6.split_once(']')?;
                let port = match port {
                    "" => None,
                    port => Some(port.strip_prefix(':')?),
                };
                (host, port)
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let usual = if is_tls { 443 } else { 80 };
        let port = port.map_or(Some(usual), |port| port.parse().ok())?;
        if host.is_empty() || host.contains('@') || port == 0 {
            return None;
        }
        Some(Self {
            host: host.replace("%25", "%"),
            port,
            path: if path.starts_with('/') {
                path.to_owned()
            } else {
                format!("/{path}")
            },
            is_tls,
            text: text.to_owned(),
        })
    }

    /// Returns the host if it is an address.
    pub fn ip(&self) -> Option<IpAddr> {
        let host = self.host.split('%').next().unwrap_or_default();
        host.parse().ok()
    }

    /// Returns the address to connect to, if the host is one.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        let scope = self.host.split_once('%').map(|(_, scope)| scope);
        Some(match self.ip()? {
            IpAddr::V4(ip) => (ip, self.port).into(),
            IpAddr::V6(ip) => {
                let scope = scope.map_or(Some(0), |scope| scope.parse().ok())?;
                SocketAddrV6::new(ip, self.port, 0, scope).into()
            }
        })
    }

    /// Returns `HOST:PORT` as the header `Host` has it.
    pub fn authority(&self) -> String {
        // A scope is of no meaning to others.
        let host = self.host.split('%').next().unwrap_or_default();
        if host.contains(':') {
            return format!("[{host}]:{}", self.port);
        }
        format!("{host}:{}", self.port)
    }

    /// Returns the same service at another address.
    fn at(&self, source: &SocketAddr) -> Self {
        let host = match source {
            SocketAddr::V4(v4) => v4.ip().to_string(),
            SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
            SocketAddr::V6(v6) => v6.ip().to_string(),
        };
        let shown = match source {
            SocketAddr::V4(v4) => v4.ip().to_string(),
            SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
        };
        let port = match self.port {
            80 => String::new(),
            port => format!(":{port}"),
        };
        Self {
            text: format!("http://{shown}{port}{}", self.path),
            host,
            port: self.port,
            path: self.path.clone(),
            is_tls: self.is_tls,
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the addresses at which to look for the device service, the best first: what the device says, then the addresses from
/// which it answered, because what a device says may be wrong. Addresses that are neither near nor those from which it answered
/// are left out, and so are names: anyone on a LAN may say anything, and a request is sent there.
pub fn candidates(
    addresses: &[String],
    sources: &[SocketAddr],
    is_near: impl Fn(IpAddr) -> bool,
) -> Vec<Url> {
    let said: Vec<Url> = (addresses.iter())
        .filter_map(|text| Url::parse(text))
        .filter(|url| !url.is_tls)
        .collect();
    let rank = |url: &Url| {
        let ip = url.ip()?;
        let is_own = sources.iter().any(|source| source.ip() == ip);
        let needs_scope = matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let is_fit = (is_own || is_near(ip)) && !needs_scope;
        is_fit.then_some(ip.is_ipv6())
    };
    let mut ranked: Vec<(bool, Url)> = said
        .iter()
        .filter_map(|url| Some((rank(url)?, url.clone())))
        .collect();
    // Devices do not always say their addresses in the same order.
    ranked.sort();
    let usual = Url {
        host: String::new(),
        port: 80,
        path: USUAL_PATH.to_owned(),
        is_tls: false,
        text: String::new(),
    };
    let services = if said.is_empty() { vec![usual] } else { said };
    let by_source = sources
        .iter()
        .flat_map(|source| services.iter().map(|url| url.at(source)));
    let mut all: Vec<Url> = vec![];
    for url in ranked.into_iter().map(|(_, url)| url).chain(by_source) {
        let is_new = |other: &Url| {
            (&other.host, other.port, &other.path) != (&url.host, url.port, &url.path)
        };
        if all.len() < CANDIDATES_MAX && all.iter().all(is_new) {
            all.push(url);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_of_devices_are_parsed() {
        for (text, host, port, path) in [
            (
                "http://10.0.0.7/onvif/device_service",
                "10.0.0.7",
                80,
                "/onvif/device_service",
            ),
            ("HTTP://cam:8080", "cam", 8080, "/"),
            (
                "http://[fe80::1%25eth0]:81/a?b=c#d",
                "fe80::1%eth0",
                81,
                "/a?b=c",
            ),
            ("https://10.0.0.7/x", "10.0.0.7", 443, "/x"),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!(
                (url.host.as_str(), url.port, url.path.as_str()),
                (host, port, path)
            );
            assert_eq!(url.to_string(), text);
        }
        for text in [
            "",
            "10.0.0.7",
            "ftp://a/",
            "http://",
            "http://a:0/",
            "http://a:99999/",
            "http://u:p@a/",
            "http://a b/",
            "http://a/\n",
            "soap.udp://a",
            "http://[::1",
            "http://[::1]x/",
        ] {
            assert_eq!(Url::parse(text), None, "{text}");
        }
    }

    fn tried(addresses: &[&str], sources: &[&str]) -> Vec<String> {
        let addresses: Vec<String> = addresses.iter().map(|a| (*a).to_owned()).collect();
        let sources: Vec<SocketAddr> = sources.iter().map(|s| s.parse().unwrap()).collect();
        let is_near = |ip: IpAddr| ip.to_string().starts_with("10.0.0.");
        let all = candidates(&addresses, &sources, is_near);
        all.iter().map(Url::to_string).collect()
    }

    #[test]
    fn near_addresses_come_first_and_the_source_last() {
        let said = [
            "http://169.254.1.1/d",
            "http://192.168.9.9:8080/d",
            "http://10.0.0.7/d",
            "http://0.0.0.0/d",
        ];
        assert_eq!(
            tried(&said, &["10.0.0.8:3702"]),
            [
                "http://10.0.0.7/d",
                "http://10.0.0.8/d",
                "http://10.0.0.8:8080/d"
            ]
        );
        assert_eq!(
            tried(&[], &["10.0.0.8:3702"]),
            ["http://10.0.0.8/onvif/device_service"]
        );
        assert_eq!(tried(&["https://10.0.0.7/d", "nonsense"], &[]), [""; 0]);
        assert_eq!(
            tried(&["http://10.0.0.7/d"], &["10.0.0.7:3702"]),
            ["http://10.0.0.7/d"]
        );
    }

    #[test]
    fn the_order_in_which_a_device_says_its_addresses_is_of_no_meaning() {
        let (a, b) = ("http://10.0.0.7/d", "http://10.0.0.9/d");
        assert_eq!(tried(&[a, b], &[]), tried(&[b, a], &[]));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(http://)?\\PC{0,40}") {
            if let Some(url) = Url::parse(&text) {
                prop_assert!(url.path.starts_with('/') && url.port != 0 && !url.authority().is_empty());
            }
        }
    }
}
