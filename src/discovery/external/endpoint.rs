//! The address of a handler in another process. Pure.
use super::listing::shown;
use crate::model::container_devices::is_plain;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The longest URL of a handler, in bytes. Beyond it: its registration is refused.
const URL_MAX: usize = 255;
/// The longest path of a handler's socket, in bytes: the kernel takes no longer one. Beyond it: its registration is
/// refused.
const SOCKET_PATH_MAX: usize = 107;

/// The address at which a handler serves `v0.DiscoveryHandler`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Endpoint {
    /// The path of a socket.
    Unix(String),
    /// `http://<host>:<port>`.
    Network(String),
}

impl Endpoint {
    /// A path, also with `unix:` before it.
    pub(super) fn unix(text: &str) -> Result<Self, String> {
        let path = text.strip_prefix("unix:").unwrap_or(text);
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.len() > SOCKET_PATH_MAX || !is_plain(path) {
            return Err(format!(
                "endpoint: {} must be the absolute path of a socket, without `.` and `..`, of at most {SOCKET_PATH_MAX} bytes",
                shown(text)
            ));
        }
        Ok(Self::Unix(path.to_owned()))
    }

    /// `http://<host>:<port>`; the scheme may be missing, as the port may.
    pub(super) fn network(text: &str) -> Result<Self, String> {
        let host = text.strip_prefix("http://").unwrap_or(text);
        let host = host.trim_end_matches('/');
        let is_part = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
        let uri = format!("http://{host}");
        let is_host = !host.is_empty() && host.bytes().all(is_part) && uri.len() <= URL_MAX;
        if !is_host || address(&uri).is_none() {
            return Err(format!(
                "endpoint: {} must be http://<host>:<port>, in plain text and without a path",
                shown(text)
            ));
        }
        Ok(Self::Network(uri))
    }
}

/// The host, without brackets, and the port of a URI.
pub(super) fn address(uri: &str) -> Option<(String, u16)> {
    let authority: tonic::codegen::http::uri::Authority =
        uri.strip_prefix("http://")?.parse().ok()?;
    let host = authority
        .host()
        .trim_start_matches('[')
        .trim_end_matches(']');
    let has_port = authority
        .as_str()
        .rsplit_once(':')
        .is_some_and(|(before, _)| before == authority.host());
    let port = if has_port { authority.port_u16()? } else { 80 };
    Some((host.to_owned(), port))
}

impl FromStr for Endpoint {
    type Err = String;

    /// Parses an endpoint as a user writes it: `unix:///run/a.sock`, a path, or `http://host:port`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("unix:") || text.starts_with('/') {
            Self::unix(text)
        } else {
            Self::network(text)
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Unix(text) | Self::Network(text)) = self;
        f.write_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_url_is_a_host_without_brackets_and_a_port() {
        let of = |uri| address(uri).unwrap();
        assert_eq!(of("http://[fd00::1]:10000"), ("fd00::1".to_owned(), 10000));
        assert_eq!(of("http://onvif.akri"), ("onvif.akri".to_owned(), 80));
    }

    #[test]
    fn a_user_writes_a_socket_or_a_url() {
        let read = |text: &str| text.parse::<Endpoint>();
        let socket = Ok(Endpoint::Unix("/run/a.sock".to_owned()));
        assert_eq!(read("unix:///run/a.sock"), socket);
        assert_eq!(read("/run/a.sock"), socket);
        let url = Ok(Endpoint::Network("http://localhost:10000".to_owned()));
        assert_eq!(read("localhost:10000"), url);
        assert!(read("").is_err() && read("unix:a.sock").is_err());
    }
}
