//! Decides which names a browser may use for this server. Pure.
//!
//! A page of another site can make its own name resolve to 127.0.0.1, and then read what a local server answers (DNS
//! rebinding). The browser sends that name as `Host`, so a server that only this machine can reach answers to local names
//! alone.
use std::net::{IpAddr, SocketAddr};

/// Returns whether a request with this `Host` header is answered by a server that listens on `address`.
pub(super) fn is_allowed(host: Option<&str>, address: SocketAddr) -> bool {
    !address.ip().is_loopback() || host.is_some_and(is_local)
}

fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, _)) => name,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let is_loopback = |address: IpAddr| address.is_loopback();
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_server_answers_to_local_names_alone() {
        let local = "127.0.0.1:8030".parse().unwrap();
        for host in ["localhost:8030", "LOCALHOST", "127.0.0.1:9", "[::1]:8030"] {
            assert!(is_allowed(Some(host), local), "{host}");
        }
        for host in [
            "evil.example:8030",
            "localhost.evil.example",
            "10.0.0.1:8030",
            "",
        ] {
            assert!(!is_allowed(Some(host), local), "{host}");
        }
        assert!(!is_allowed(None, local));
    }

    #[test]
    fn a_server_that_others_can_reach_answers_to_every_name() {
        assert!(is_allowed(
            Some("devices.example"),
            "0.0.0.0:8030".parse().unwrap()
        ));
    }
}
