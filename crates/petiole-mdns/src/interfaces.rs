//! Selects the network interfaces to browse on. Pure.

/// Interfaces of containers, virtual machines and tunnels. No other host announces itself there, and browsing them
/// would find the services of this machine a second time.
const DENIED_BY_DEFAULT: [&str; 16] = [
    "veth*",
    "cali*",
    "cni*",
    "flannel*",
    "docker*",
    "br-*",
    "lxc*",
    "lxd*",
    "tunl*",
    "wg*",
    "kube-*",
    "virbr*",
    "vnet*",
    "cilium*",
    "nodelocaldns*",
    "podman*",
];

/// The network interfaces to browse on, as globs over their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interfaces {
    /// The globs of allowed interfaces; empty to allow any.
    allow: Vec<String>,
    deny: Vec<String>,
}

impl Default for Interfaces {
    fn default() -> Self {
        Self::new(vec![], None)
    }
}

impl Interfaces {
    /// Returns whether no interface is named. Then all interfaces are used except virtual ones and those of containers.
    pub fn are_all(&self) -> bool {
        self.allow.is_empty()
    }

    /// Makes a set of two lists of globs, such as `eth*`. Without `deny`, interfaces of containers, virtual machines and
    /// tunnels are left out if `allow` is empty, and none if it is not.
    pub fn new(allow: Vec<String>, deny: Option<Vec<String>>) -> Self {
        let deny = match deny {
            Some(deny) => deny,
            None if allow.is_empty() => DENIED_BY_DEFAULT.map(str::to_owned).to_vec(),
            None => vec![],
        };
        Self { allow, deny }
    }

    /// Returns whether an interface is browsed on, by its name such as `eth0`.
    pub fn uses(&self, interface: &str) -> bool {
        let any = |globs: &[String]| globs.iter().any(|glob| glob_matches(glob, interface));
        (self.allow.is_empty() || any(&self.allow)) && !any(&self.deny)
    }
}

/// Returns whether a glob matches. `*` is any text, including none; every other character matches itself.
fn glob_matches(glob: &str, text: &str) -> bool {
    let mut parts = glob.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use regex_lite::Regex;

    #[test]
    fn container_interfaces_are_left_out_unless_named() {
        let default = Interfaces::default();
        for used in ["lo", "eth0", "enp3s0", "wlan0", "br0", "bond0.12"] {
            assert!(default.uses(used), "{used}");
        }
        for left_out in [
            "veth1a",
            "cali9",
            "cni0",
            "flannel.1",
            "docker0",
            "br-1f",
            "wg0",
            "virbr0",
        ] {
            assert!(!default.uses(left_out), "{left_out}");
        }
        let named = Interfaces::new(vec!["docker0".into(), "eth*".into()], None);
        assert!(named.uses("docker0") && named.uses("eth1") && !named.uses("lo"));
        let denied = Interfaces::new(vec![], Some(vec!["lo".into()]));
        assert!(denied.uses("veth0") && !denied.uses("lo"));
        let both = Interfaces::new(vec!["eth*".into()], Some(vec!["eth1".into()]));
        assert!(both.uses("eth0") && !both.uses("eth1"));
    }

    #[test]
    fn globs_match_whole_names() {
        for (glob, text, matches) in [
            ("eth0", "eth0", true),
            ("eth0", "eth01", false),
            ("eth*", "eth", true),
            ("*", "", true),
            ("e*0", "eth0", true),
            ("e*0", "eth1", false),
            ("a*a", "a", false),
            ("*.*", "eth0.12", true),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "a-c-b", false),
        ] {
            assert_eq!(glob_matches(glob, text), matches, "{glob} on {text}");
        }
    }

    proptest! {
        #[test]
        fn a_glob_agrees_with_the_same_regex(glob in "[ab*]{0,6}", text in "[ab]{0,8}") {
            let regex = Regex::new(&format!("^{}$", glob.replace('*', ".*"))).unwrap();
            prop_assert_eq!(glob_matches(&glob, &text), regex.is_match(&text));
        }
    }
}
