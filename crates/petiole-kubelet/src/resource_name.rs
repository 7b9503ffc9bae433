//! Checks resource names and object names by the kubelet's rules (`IsExtendedResourceName`). Pure.

/// The longest prefix of a plugin's resource, in bytes. A quota uses the name with `requests.` before it, whose
/// prefix must not exceed 253 bytes. Beyond it: the registration is refused.
const PREFIX_LIMIT: usize = 253 - "requests.".len();
/// The longest part of a plugin's resource after the slash, in bytes. Beyond it: the registration is refused.
const NAME_LIMIT: usize = 63;

pub(crate) fn is_extended(resource: &str) -> bool {
    let Some((prefix, name)) = resource.split_once('/') else {
        return false;
    };
    !resource.contains("kubernetes.io/")
        && !resource.starts_with("requests.")
        && prefix.len() <= PREFIX_LIMIT
        && is_dns_subdomain(prefix)
        && name.len() <= NAME_LIMIT
        && begins_and_ends_alphanumeric(name)
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// Returns whether `name` is a DNS-1123 subdomain, the rule for names of most Kubernetes objects.
pub(crate) fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= 253
        && name.split('.').all(|label| {
            begins_and_ends_alphanumeric(label)
                && label
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        })
}

/// Returns whether `name` is a DNS-1123 label, the rule for names of containers.
pub(crate) fn is_dns_label(name: &str) -> bool {
    name.len() <= NAME_LIMIT && !name.contains('.') && is_dns_subdomain(name)
}

fn begins_and_ends_alphanumeric(name: &str) -> bool {
    let ends = name.bytes().next().zip(name.bytes().last());
    ends.is_some_and(|(first, last)| first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_and_refused_as_the_kubelet_does() {
        let longest = format!("{}.b/x", "a".repeat(242));
        for name in ["akri.sh/x", "akri.sh/X_y.z", longest.as_str()] {
            assert!(is_extended(name), "{name}");
        }
        let name_too_long = format!("akri.sh/{}", "x".repeat(64));
        let prefix_too_long = format!("{}.b/x", "a".repeat(243));
        for name in [
            "x",
            "",
            "/",
            "akri.sh/",
            "akri.sh/-x",
            "AKRI.sh/x",
            "akri.sh/a/b",
            "akri..sh/x",
            "kubernetes.io/x",
            "mykubernetes.io/x",
            "requests.akri.sh/x",
            &name_too_long,
            &prefix_too_long,
        ] {
            assert!(!is_extended(name), "{name}");
        }
    }
}
