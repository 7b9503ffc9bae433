//! The addresses that may be asked. Pure.
use super::super::allow_list::Entry;
use crate::model::networks::{Range, special};
use std::net::IpAddr;

/// Returns whether an entry names an address. Entries that are wider than a special network do not name its addresses.
pub(super) fn names(entries: &[Range], address: IpAddr, special: &[Range]) -> bool {
    let named = |entry: &Range| {
        let mut special = special.iter().filter(|special| special.contains(address));
        entry.contains(address) && special.all(|special| entry.is_within(*special))
    };
    entries.iter().any(named)
}

/// The networks that Configurations may have asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Networks {
    /// `None`: all of them, for a user who is root of the machine.
    allowed: Option<Vec<Range>>,
    /// The networks of the cluster, which an entry must lie within as in [`special`] ones.
    cluster: Vec<Range>,
}

/// An entry of the allow list.
pub type AllowedNetwork = Entry<Range>;

impl FromIterator<AllowedNetwork> for Networks {
    fn from_iter<T: IntoIterator<Item = AllowedNetwork>>(entries: T) -> Self {
        Self {
            allowed: entries.into_iter().map(Entry::named).collect(),
            cluster: vec![],
        }
    }
}

impl Networks {
    pub const ALL: Self = Self {
        allowed: None,
        cluster: vec![],
    };

    /// Adds the networks of the cluster.
    #[must_use]
    pub fn with_cluster(self, entries: impl IntoIterator<Item = AllowedNetwork>) -> Self {
        let cluster = entries.into_iter().filter_map(Entry::named).collect();
        Self { cluster, ..self }
    }

    /// Returns the networks that an entry must lie within to name an address in them.
    pub(super) fn special(&self) -> Vec<Range> {
        [special(), self.cluster.clone()].concat()
    }

    /// Returns an error if an entry of `hosts` is not within the allowed networks.
    pub(super) fn check(&self, hosts: &[Range]) -> Result<(), String> {
        const REMEDY: &str = "The administrator of the agents allows networks with --probe-networks (the chart's probe.enabled and probe.networks)";
        let Some(allowed) = &self.allowed else {
            return Ok(());
        };
        if allowed.is_empty() {
            return Err(format!("no host may be probed from this node. {REMEDY}"));
        }
        let is_outside = |host: &&Range| !allowed.iter().any(|network| host.is_within(*network));
        match hosts.iter().find(is_outside) {
            Some(host) => Err(format!(
                "`hosts: {host}` is outside the networks that may be probed from this node. {REMEDY}"
            )),
            None => Ok(()),
        }
    }

    /// Returns whether an address is allowed.
    pub(super) fn allow(&self, address: IpAddr, special: &[Range]) -> bool {
        (self.allowed.as_deref()).is_none_or(|allowed| names(allowed, address, special))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(texts: &[&str]) -> Vec<Range> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn has(entries: &[&str], address: &str) -> bool {
        names(
            &ranges(entries),
            address.parse().unwrap(),
            &Networks::ALL.special(),
        )
    }

    #[test]
    fn a_special_network_is_asked_only_if_an_entry_lies_within_it() {
        assert!(has(&["10.0.0.0/8"], "10.1.2.3") && !has(&["10.0.0.0/8"], "11.1.2.3"));
        for address in [
            "127.0.0.1",
            "169.254.1.1",
            "169.254.169.254",
            "224.0.0.251",
            "255.255.255.255",
            "168.63.129.16",
            "0.0.0.0",
        ] {
            assert!(!has(&["0.0.0.0/0"], address), "{address}");
        }
        for address in [
            "::1",
            "::",
            "fe80::1",
            "ff02::fb",
            "fd00:ec2::254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
        ] {
            assert!(!has(&["::/0"], address), "{address}");
        }
        assert!(has(&["127.0.0.0/8"], "127.0.0.1"));
        // The network of links does not name the metadata in it.
        assert!(
            has(&["169.254.0.0/16"], "169.254.1.1") && !has(&["169.254.0.0/16"], "169.254.169.254")
        );
        assert!(has(&["169.254.169.254"], "169.254.169.254"));
    }

    #[test]
    fn only_allowed_networks_are_asked_and_the_refusal_says_who_allows_them() {
        let of = |texts: &[&str]| -> Networks {
            texts
                .iter()
                .map(|text| text.parse::<AllowedNetwork>().unwrap())
                .collect()
        };
        assert_eq!(of(&["10.1.0.0/16", "*"]), Networks::ALL);
        let some = of(&["10.1.0.0/16", "127.0.0.1"]);
        assert!(some.check(&ranges(&["10.1.2.0/24", "127.0.0.1"])).is_ok());
        let refused = some
            .check(&ranges(&["10.1.2.0/24", "10.0.0.0/8"]))
            .unwrap_err();
        assert!(
            refused.contains("10.0.0.0-10.255.255.255") && refused.contains("--probe-networks"),
            "{refused}"
        );
        assert!(
            of(&[])
                .check(&[])
                .unwrap_err()
                .contains("no host may be probed")
        );
        let special = some.special();
        assert!(some.allow("127.0.0.1".parse().unwrap(), &special));
        assert!(!some.allow("127.0.0.2".parse().unwrap(), &special));
    }

    #[test]
    fn networks_of_the_cluster_are_special() {
        let cluster = ["10.244.0.0/16", "fd00:96::/112"].map(|text| text.parse().unwrap());
        let networks = Networks::ALL.with_cluster(cluster);
        let has = |entry: &str, address: &str| {
            let address = address.parse().unwrap();
            names(&ranges(&[entry]), address, &networks.special())
        };
        assert!(!has("10.0.0.0/8", "10.244.7.1") && has("10.244.7.0/24", "10.244.7.1"));
        assert!(!has("fd00::/8", "fd00:96::1") && has("10.0.0.0/8", "10.1.2.3"));
    }
}
