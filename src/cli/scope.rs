//! Defines the flags for the scope of a process in a cluster: namespaces and resource prefixes.
use crate::api::names;
use clap::Args;

/// The longest prefix of a resource name, in bytes. With `requests.` before it, it must still be a DNS subdomain.
const LIMIT: usize = 244;

#[derive(Debug, Args)]
pub(super) struct ScopeFlags {
    /// Namespaces whose Configurations and Instances are used [default: all]
    #[arg(
        long,
        env = "PETIOLE_WATCH_NAMESPACES",
        value_name = "NAMESPACE,...",
        value_delimiter = ','
    )]
    watch_namespaces: Vec<String>,
    /// Resource prefixes that Petiole may register, publish and remove; new resources get the first one
    #[arg(
        long,
        env = "PETIOLE_RESOURCE_PREFIXES",
        value_name = "PREFIX,...",
        value_delimiter = ',',
        default_value = names::GROUP,
        value_parser = prefix
    )]
    pub(super) resource_prefixes: Vec<String>,
}

impl ScopeFlags {
    /// Returns the namespaces. A variable with an empty value names none.
    pub(super) fn namespaces(&self) -> Vec<String> {
        let named = self.watch_namespaces.iter().filter(|name| !name.is_empty());
        named.cloned().collect()
    }
}

/// Parses one prefix of an extended resource.
fn prefix(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        (1..=63).contains(&label.len())
            && label.chars().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if text.len() > LIMIT {
        return Err(format!(
            "has {} characters, {LIMIT} are allowed",
            text.len()
        ));
    }
    if !text.split('.').all(is_label) {
        return Err(
            "is no DNS subdomain: write lower-case letters, digits, `-` and `.`, such as akri.sh"
                .into(),
        );
    }
    // The kubelet rejects both of these from a device plugin.
    if text.ends_with("kubernetes.io") || text.starts_with("requests.") {
        return Err("is Kubernetes' own: the kubelet takes no device plugin with it".into());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_dns_subdomains_that_the_kubelet_takes() {
        for text in ["akri.sh", "x", "a-b.example.com", "1.io"] {
            assert_eq!(prefix(text), Ok(text.to_owned()));
        }
        let long = "a.".repeat(122) + "b";
        for text in [
            "",
            "Akri.sh",
            "akri.sh/",
            "-a.sh",
            "a-.sh",
            "a..sh",
            ".sh",
            "a_b.sh",
            "kubernetes.io",
            "x.kubernetes.io",
            "requests.akri.sh",
            &long,
        ] {
            assert!(prefix(text).is_err(), "{text}");
        }
    }
}
