//! Reads the addresses of OPC UA servers, `opc.tcp://host:port/path`. Pure.
use std::{fmt, net::IpAddr, str::FromStr};

/// The longest address of a server, in bytes. Beyond it: the address is refused.
pub const URL_MAX: usize = 1024;
/// The port where an address names none (OPC 10000-6, 7.2).
const PORT: u16 = 4840;
const SCHEME: &str = "opc.tcp://";

/// The address of an OPC UA server. It is shown as it was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointUrl {
    text: String,
    host: String,
    port: u16,
    path: String,
}

/// The reason why a text is no address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAnEndpoint(String);

impl fmt::Display for NotAnEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotAnEndpoint {}

impl EndpointUrl {
    /// Returns the host: a name, or an address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns what follows the host and the port, with its slash; it may be empty.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the address as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the address of a host, a port and a path.
    pub fn new(host: &str, port: u16, path: &str) -> Result<Self, NotAnEndpoint> {
        let authority = if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
        format!("{SCHEME}{authority}{path}").parse()
    }

    /// Returns whether the host is this machine, whichever machine asks.
    pub fn is_loopback(&self) -> bool {
        let is_name = self.host.eq_ignore_ascii_case("localhost");
        is_name || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

impl fmt::Display for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for EndpointUrl {
    type Err = NotAnEndpoint;

    fn from_str(text: &str) -> Result<Self, NotAnEndpoint> {
        let wrong = |why: &str| Err(NotAnEndpoint(why.to_owned()));
        if text.len() > URL_MAX {
            return wrong(&format!("has {} bytes; {URL_MAX} are the most", text.len()));
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return wrong("must have no spaces and no control characters");
        }
        let scheme = text.get(..SCHEME.len());
        if !scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME)) {
            return wrong("must begin with opc.tcp://");
        }
        let rest = &text[SCHEME.len()..];
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((host, port)) if host.parse::<std::net::Ipv6Addr>().is_ok() => (host, port),
                _ => return wrong("has no IPv6 address in its brackets"),
            },
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        let is_sound = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        if host.is_empty() || host.len() > 255 || !host.chars().all(is_sound) {
            return wrong("must name a host of letters, digits, hyphens and dots, or an address");
        }
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => Some(PORT),
            None => None,
            Some(port) => port.parse().ok().filter(|port| *port > 0),
        };
        let Some(port) = port else {
            return wrong("must have a port of 1 to 65535 after its host");
        };
        Ok(Self {
            host: host.to_owned(),
            port,
            path: path.to_owned(),
            text: text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_a_port_and_a_path_and_stays_as_it_was_written() {
        for (text, host, port, path) in [
            ("opc.tcp://10.1.2.3:4840/", "10.1.2.3", 4840, "/"),
            ("opc.tcp://plc-1", "plc-1", 4840, ""),
            (
                "OPC.TCP://Line_2.local:53530/UA/a?b",
                "Line_2.local",
                53530,
                "/UA/a?b",
            ),
            ("opc.tcp://[fd00::1]:4841", "fd00::1", 4841, ""),
            ("opc.tcp://[fd00::1]/x", "fd00::1", 4840, "/x"),
        ] {
            let url: EndpointUrl = text.parse().unwrap();
            assert_eq!((url.host(), url.port(), url.path()), (host, port, path));
            assert_eq!(url.to_string(), text);
            let again = EndpointUrl::new(host, port, path).unwrap();
            assert_eq!(
                (again.host(), again.port(), again.path()),
                (host, port, path)
            );
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        let long = format!("opc.tcp://a/{}", "x".repeat(URL_MAX));
        for (text, why) in [
            ("http://plc:4840", "opc.tcp://"),
            ("opc.tc", "opc.tcp://"),
            ("opc.tcp://", "host"),
            ("opc.tcp://user@plc:1", "host"),
            ("opc.tcp://plc:0/", "port"),
            ("opc.tcp://plc:70000/", "port"),
            ("opc.tcp://plc:/", "port"),
            ("opc.tcp://[::1:4840", "brackets"),
            ("opc.tcp://[plc]:4840", "brackets"),
            ("opc.tcp://[::1]4840", "port"),
            ("opc.tcp://plc/a b", "spaces"),
            ("opc.tcp://plc/\0", "control"),
            (&long, "1024"),
        ] {
            let error = text.parse::<EndpointUrl>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn loopback_is_known_by_name_and_by_address() {
        let is_loopback = |text: &str| text.parse::<EndpointUrl>().unwrap().is_loopback();
        assert!(is_loopback("opc.tcp://LocalHost:1") && is_loopback("opc.tcp://127.1.2.3:1"));
        assert!(is_loopback("opc.tcp://[::1]:1") && !is_loopback("opc.tcp://10.0.0.1:1"));
    }
}
