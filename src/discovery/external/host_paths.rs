//! The paths of the node that handlers in other processes, and the handler `paths`, may give to containers. Pure.
use crate::{discovery::glob::Glob, model::container_devices::is_plain};
use std::{str::FromStr, sync::Arc};

/// Prefixes of paths, whose parts may be globs, as in `/dev/ttyUSB*`. A handler that could give any path would be root on the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostPaths(Vec<AllowedPath>);

/// The paths that one handler may give.
#[derive(Debug, Clone)]
pub(super) struct HandlerPaths {
    pub(super) mounts: Arc<HostPaths>,
    pub(super) device_nodes: Arc<HostPaths>,
}

/// All devices of the node at once: no device is that.
const DEVICE_FOLDER: &str = "/dev";
/// These are no devices: they lead to files of whoever opens them, and to memory that other containers share. Only a prefix
/// that names them, or something in them, allows them.
const OWN_PREFIX_ONLY: [&str; 4] = ["/dev/fd", "/dev/shm", "/dev/mqueue", "/dev/core"];

/// One prefix: a folder with all that is in it, or one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedPath(String);

/// A path that is not absolute, or goes up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} must be an absolute path without `.`, `..` and `//`")]
pub struct BadPath(String);

impl HostPaths {
    /// Every path: for a user who is root of the machine.
    pub fn all() -> Self {
        Self(vec![AllowedPath(String::new())])
    }

    /// Returns the rule that allows no path: for a handler on another machine, or one in a network where any process may
    /// answer.
    pub(super) fn none() -> Self {
        Self(vec![])
    }

    pub(in crate::discovery) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(in crate::discovery) fn allow(&self, path: &str) -> bool {
        let (own, all) = (OWN_PREFIX_ONLY, DEVICE_FOLDER);
        let guarded = own.into_iter().find(|folder| is_at_or_below(path, folder));
        let allows = |AllowedPath(prefix): &AllowedPath| {
            is_at_or_below(path, prefix)
                && guarded.is_none_or(|folder| is_at_or_below(prefix, folder))
        };
        is_plain(path) && path != all && self.0.iter().any(allows)
    }

    /// The prefixes, for messages.
    pub(in crate::discovery) fn list(&self) -> String {
        let prefixes = self
            .0
            .iter()
            .map(|AllowedPath(prefix)| match prefix.as_str() {
                "" => "/",
                prefix => prefix,
            });
        prefixes.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(any(test, feature = "fuzzing"))]
impl From<HostPaths> for HandlerPaths {
    fn from(paths: HostPaths) -> Self {
        let paths = Arc::new(paths);
        Self {
            mounts: paths.clone(),
            device_nodes: paths,
        }
    }
}

impl FromIterator<AllowedPath> for HostPaths {
    fn from_iter<I: IntoIterator<Item = AllowedPath>>(paths: I) -> Self {
        Self(paths.into_iter().collect())
    }
}

impl AllowedPath {
    /// Returns the path without a slash at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AllowedPath {
    type Err = BadPath;

    fn from_str(path: &str) -> Result<Self, BadPath> {
        let prefix = path.strip_suffix('/').unwrap_or(path);
        if is_plain(path) || is_plain(prefix) || path == "/" {
            Ok(Self(prefix.to_owned()))
        } else {
            Err(BadPath(path.to_owned()))
        }
    }
}

fn is_at_or_below(path: &str, prefix: &str) -> bool {
    let mut parts = path.split('/');
    let takes = |own: &str, part: &str| {
        own == part || own.contains(['*', '?', '[']) && Glob::new(own).matches(part)
    };
    prefix
        .split('/')
        .all(|own| parts.next().is_some_and(|part| takes(own, part)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::container_devices::is_below_dev;

    fn paths(prefixes: &[&str]) -> HostPaths {
        prefixes.iter().map(|p| p.parse().unwrap()).collect()
    }

    #[test]
    fn a_path_below_a_prefix_is_allowed_and_one_that_only_begins_like_it_is_not() {
        let allowed = paths(&["/dev/", "/run/cameras.sock"]);
        for path in ["/dev/ttyUSB0", "/dev/serial/by-id/a", "/run/cameras.sock"] {
            assert!(allowed.allow(path), "{path}");
        }
        for path in [
            "",
            "dev/null",
            "/",
            "/device",
            "/dev/",
            "/dev//null",
            "/dev/../etc/shadow",
            "/dev/./null",
            "/dev/a\nb",
            "/dev/a\0",
            "/run",
            "/etc",
        ] {
            assert!(!allowed.allow(path), "{path:?}");
        }
        assert_eq!(allowed.list(), "/dev, /run/cameras.sock");
    }

    #[test]
    fn what_is_no_single_device_is_not_allowed_with_the_others() {
        let (folder, root) = (paths(&["/dev"]), paths(&["/"]));
        for path in [
            "/dev",
            "/dev/fd/0",
            "/dev/shm",
            "/dev/shm/a",
            "/dev/mqueue",
            "/dev/core",
        ] {
            assert!(!folder.allow(path) && !root.allow(path), "{path}");
            // Nor may anything be there in a container.
            assert!(!is_below_dev(path), "{path}");
        }
        assert!(folder.allow("/dev/fd0") && folder.allow("/dev/shmem"));
        let named = paths(&["/dev", "/dev/shm/cameras"]);
        assert!(named.allow("/dev/shm/cameras/1") && !named.allow("/dev/shm/a"));
    }

    #[test]
    fn a_glob_is_about_one_part_of_a_path() {
        let allowed = paths(&["/dev/ttyUSB*", "/dev/video[0-2]/", "/dev/*/by-id"]);
        for path in [
            "/dev/ttyUSB0",
            "/dev/ttyUSB",
            "/dev/video2",
            "/dev/serial/by-id/a",
        ] {
            assert!(allowed.allow(path), "{path}");
        }
        for path in [
            "/dev/ttyACM0",
            "/dev/mem",
            "/dev/video3",
            "/dev/a/b/by-id",
            "/dev/by-id",
            "/dev",
        ] {
            assert!(!allowed.allow(path), "{path}");
        }
        let all = paths(&["/dev/*", "/dev/s*"]);
        assert!(all.allow("/dev/mem") && !all.allow("/dev/shm/a") && !all.allow("/etc/passwd"));
        assert!(paths(&["/dev/a[b"]).allow("/dev/a[b"));
    }

    #[test]
    fn the_root_allows_all_plain_paths() {
        for all in [HostPaths::all(), paths(&["/"])] {
            assert!(all.allow("/etc/passwd") && !all.allow("/etc/../etc/passwd"));
            assert_eq!(all.list(), "/");
        }
        for bad in ["", "dev", "/dev/..", "/dev//", "//"] {
            assert!(bad.parse::<AllowedPath>().is_err(), "{bad:?}");
        }
    }
}
