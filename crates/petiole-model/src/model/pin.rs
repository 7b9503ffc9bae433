//! Defines the identity of a device that a Configuration pins: the name of its host and its networks. Pure.
use ipnet::IpNet;
use std::{collections::BTreeSet, fmt, str::FromStr};

/// The most networks of a pin. Beyond it: further ones are left out.
const NETWORKS_MAX: usize = 8;

/// The host and the networks where a device was first found. The text form is `10.0.0.0/24,fd00::/64 porch.local`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    pub host: String,
    pub networks: BTreeSet<IpNet>,
}

impl Pin {
    pub fn new(host: impl Into<String>, networks: impl IntoIterator<Item = IpNet>) -> Self {
        let networks = networks.into_iter().map(|net| net.trunc());
        Self {
            host: host.into(),
            networks: networks
                .collect::<BTreeSet<_>>()
                .into_iter()
                .take(NETWORKS_MAX)
                .collect(),
        }
    }

    /// Returns whether both identify one device: the same host, and a common network if both have networks.
    pub fn is_same(&self, other: &Self) -> bool {
        let is_anywhere = self.networks.is_empty() || other.networks.is_empty();
        self.host.eq_ignore_ascii_case(&other.host)
            && (is_anywhere || !self.networks.is_disjoint(&other.networks))
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, network) in self.networks.iter().enumerate() {
            f.write_str(if n > 0 { "," } else { "" })?;
            write!(f, "{network}")?;
        }
        write!(f, " {}", self.host)
    }
}

/// The text is not of the form `NETWORK,… HOST`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be networks, a space and a host, such as 10.0.0.0/24 porch.local")]
pub struct NotAPin;

impl FromStr for Pin {
    type Err = NotAPin;

    fn from_str(text: &str) -> Result<Self, NotAPin> {
        let (networks, host) = text.split_once(' ').ok_or(NotAPin)?;
        let networks = networks.split(',').filter(|net| !net.is_empty());
        let networks: Result<Vec<IpNet>, _> = networks.map(str::parse).collect();
        Ok(Self::new(host, networks.map_err(|_| NotAPin)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(text: &str) -> Pin {
        text.parse().unwrap()
    }

    #[test]
    fn a_pin_is_read_as_it_is_written() {
        for text in [
            "10.0.0.0/24 porch.local",
            "10.0.0.0/24,fd00::/64 Front Porch.local",
            " porch.local",
        ] {
            assert_eq!(pin(text).to_string(), text);
        }
        for text in ["", "porch.local", "10.0.0/24 porch.local"] {
            assert_eq!(text.parse::<Pin>(), Err(NotAPin), "{text}");
        }
    }

    #[test]
    fn a_device_is_the_same_on_its_host_in_one_of_its_networks() {
        let first = pin("10.0.0.0/24,fd00::/64 porch.local");
        for (other, is_same) in [
            ("10.0.0.0/24 PORCH.local", true),
            ("10.0.1.0/24,fd00::/64 porch.local", true),
            (" porch.local", true),
            ("10.0.0.0/24 gate.local", false),
            ("10.0.1.0/24 porch.local", false),
        ] {
            assert_eq!(first.is_same(&pin(other)), is_same, "{other}");
        }
    }

    #[test]
    fn networks_are_bounded_and_without_host_bits() {
        let many = (0..20).map(|n| format!("10.0.{n}.7/24").parse().unwrap());
        let pin = Pin::new("h", many);
        assert_eq!(pin.networks.len(), NETWORKS_MAX);
        assert!(pin.to_string().starts_with("10.0.0.0/24,"));
    }
}
