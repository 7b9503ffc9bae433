//! Names the sockets of a driver, as the kubelet looks for them.
use crate::digest::digest;
use petiole_kubelet_api::uds::PATH_LIMIT;
use std::path::{Path, PathBuf};

/// The longest name of a driver, in bytes, which is Kubernetes' own. Beyond it: the driver does not start.
const DRIVER_NAME_LIMIT: usize = 63;

/// The sockets of one process of a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sockets {
    /// The socket for Prepare, Unprepare and health.
    pub(crate) service: PathBuf,
    /// The socket in which the kubelet finds the driver.
    pub(crate) registration: PathBuf,
}

impl Sockets {
    /// Returns the sockets in the folders `plugins` and `plugins_registry` of the kubelet. Two processes of one driver have different
    /// sockets if each has the UID of its Pod, so that the next one is registered before this one ends. A name that makes a path too
    /// long for a socket is replaced by a digest.
    pub(crate) fn new(root: &Path, driver: &str, pod_uid: Option<&str>) -> Self {
        let of_pod = pod_uid.map(|uid| format!("-{uid}")).unwrap_or_default();
        let short = digest(&[driver, &of_pod]);
        let registry = root.join("plugins_registry");
        Self {
            service: fitting(
                &folder(root, driver),
                [format!("dra{of_pod}.sock"), format!("{}.sock", &short[..8])],
            ),
            registration: fitting(
                &registry,
                [
                    format!("{driver}{of_pod}-reg.sock"),
                    format!("dra-{short}-reg.sock"),
                ],
            ),
        }
    }
}

/// Returns the folder of a driver.
pub(crate) fn folder(root: &Path, driver: &str) -> PathBuf {
    root.join("plugins").join(driver)
}

/// Returns the first path that a socket may have, or the last one.
fn fitting(folder: &Path, names: [String; 2]) -> PathBuf {
    let [long, short] = names.map(|name| folder.join(name));
    if long.as_os_str().len() <= PATH_LIMIT {
        long
    } else {
        short
    }
}

/// Returns whether this can be the name of a driver: a DNS subdomain.
pub(crate) fn is_driver_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = label.as_bytes();
        let ends = [bytes.first(), bytes.last()];
        ends.iter()
            .all(|end| end.is_some_and(|b| is_alphanumeric(*b)))
            && bytes.iter().all(|b| is_alphanumeric(*b) || *b == b'-')
    };
    name.len() <= DRIVER_NAME_LIMIT && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "0a1b2c3d-0000-4000-8000-0123456789ab";

    #[test]
    fn the_sockets_are_where_the_kubelet_looks() {
        let of = |driver, pod| {
            let sockets = Sockets::new(Path::new("/k"), driver, pod);
            [sockets.service, sockets.registration].map(|p| p.to_str().unwrap().to_owned())
        };
        assert_eq!(
            of("a.example", None),
            [
                "/k/plugins/a.example/dra.sock",
                "/k/plugins_registry/a.example-reg.sock"
            ]
        );
        assert_eq!(
            of("a.example", Some(POD)),
            [
                format!("/k/plugins/a.example/dra-{POD}.sock"),
                format!("/k/plugins_registry/a.example-{POD}-reg.sock")
            ]
        );
    }

    #[test]
    fn a_path_that_is_too_long_has_a_digest_which_differs_by_pod() {
        let driver = "d".repeat(63);
        let root = Path::new("/var/lib/kubelet");
        let sockets = Sockets::new(root, &driver, Some(POD));
        for path in [&sockets.service, &sockets.registration] {
            assert!(path.as_os_str().len() <= PATH_LIMIT, "{}", path.display());
        }
        assert_ne!(sockets, Sockets::new(root, &driver, Some("other")));
        assert_eq!(sockets, Sockets::new(root, &driver, Some(POD)));
    }

    #[test]
    fn a_driver_is_named_by_a_subdomain() {
        for name in ["a", "gpu.example.com", "a-b.c"] {
            assert!(is_driver_name(name), "{name}");
        }
        let long = "a".repeat(64);
        for name in ["", "A", "a..b", "-a", "a-.b", "a/b", "..", &*long] {
            assert!(!is_driver_name(name), "{name}");
        }
    }
}
