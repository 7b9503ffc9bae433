//! The paths of the node that handlers in other processes may give to containers. Pure.
use std::str::FromStr;

/// Prefixes of paths. A handler that could give any path would be root on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPaths(Vec<AllowedPath>);

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

    pub(super) fn allow(&self, path: &str) -> bool {
        let is_in = |AllowedPath(prefix): &AllowedPath| {
            let rest = path.strip_prefix(prefix.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        is_plain(path) && self.0.iter().any(is_in)
    }

    /// The prefixes, for messages.
    pub(super) fn list(&self) -> String {
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

impl FromIterator<AllowedPath> for HostPaths {
    fn from_iter<I: IntoIterator<Item = AllowedPath>>(paths: I) -> Self {
        Self(paths.into_iter().collect())
    }
}

impl FromStr for AllowedPath {
    type Err = BadPath;

    fn from_str(path: &str) -> Result<Self, BadPath> {
        let prefix = path.strip_suffix('/').unwrap_or(path);
        match is_plain(path) || is_plain(prefix) || path == "/" {
            true => Ok(Self(prefix.to_owned())),
            false => Err(BadPath(path.to_owned())),
        }
    }
}

/// Whether a path names one place whatever is in the folders: it is absolute, and no part of it is empty, `.` or `..`.
pub(super) fn is_plain(path: &str) -> bool {
    let Some(parts) = path.strip_prefix('/') else {
        return false;
    };
    let is_name = |part: &str| !matches!(part, "" | "." | "..");
    parts.split('/').all(is_name) && !path.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(prefixes: &[&str]) -> HostPaths {
        prefixes.iter().map(|p| p.parse().unwrap()).collect()
    }

    #[test]
    fn a_path_below_a_prefix_is_allowed_and_one_that_only_begins_like_it_is_not() {
        let allowed = paths(&["/dev/", "/run/cameras.sock"]);
        for path in [
            "/dev",
            "/dev/ttyUSB0",
            "/dev/serial/by-id/a",
            "/run/cameras.sock",
        ] {
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
