//! Decides which names a browser may use for this server. Pure.
//!
//! A page of another site can make its own name resolve to the address of this server, and then read what the server answers
//! (DNS rebinding). The browser sends that name as `Host`. So the server answers to no name but its own: `localhost`, those of
//! the flag `--host`, and addresses, which no site can make its own.
use std::net::{IpAddr, SocketAddr};

/// The names of a server.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// The address on which it listens.
    pub(super) address: SocketAddr,
    pub(super) names: Vec<String>,
}

impl Names {
    /// Returns whether a request with this `Host` header is answered.
    pub(super) fn allow(&self, host: Option<&str>) -> bool {
        let Some(host) = host else { return false };
        let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((name, _)) => name,
            None => host.split_once(':').map_or(host, |(name, _)| name),
        };
        let is_reached = |ip: IpAddr| ip.is_loopback() || !self.address.ip().is_loopback();
        let own = self.names.iter().map(String::as_str);
        name.parse().is_ok_and(is_reached)
            || own
                .chain(["localhost"])
                .any(|own| name.eq_ignore_ascii_case(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(address: &str, names: &[&str]) -> Names {
        Names {
            address: address.parse().unwrap(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn a_local_server_answers_to_local_names_alone() {
        let local = server("127.0.0.1:8030", &[]);
        for host in ["localhost:8030", "LOCALHOST", "127.0.0.1:9", "[::1]:8030"] {
            assert!(local.allow(Some(host)), "{host}");
        }
        for host in [
            "evil.example:8030",
            "localhost.evil.example",
            "10.0.0.1:8030",
            "",
        ] {
            assert!(!local.allow(Some(host)), "{host}");
        }
        assert!(!local.allow(None));
    }

    #[test]
    fn a_server_that_others_can_reach_answers_to_addresses_and_to_the_names_it_was_given() {
        let shared = server("0.0.0.0:8030", &["devices.example"]);
        for host in [
            "10.0.0.1:8030",
            "[fd00::1]",
            "Devices.Example:80",
            "localhost",
        ] {
            assert!(shared.allow(Some(host)), "{host}");
        }
        for host in ["evil.example", "devices.example.evil.example", ""] {
            assert!(!shared.allow(Some(host)), "{host}");
        }
        assert!(!shared.allow(None));
    }
}
