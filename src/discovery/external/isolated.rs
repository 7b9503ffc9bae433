//! The folders in which built-in handlers run as processes without rights.
//!
//! Such a process cannot register, because only root can. It need not: the agent knows the place of its socket and connects to
//! it. Each process has a folder of its own, so that none can answer for another one. The folder's group may write there, and
//! is the group of the process. The owner of the folder, and of the folder that contains it, must be root or the agent's
//! user.
use crate::files;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// The interval of the checks that folders and sockets are as they must be.
pub(super) const CHECK: Duration = Duration::from_secs(30);
/// The mode of a folder that is created.
const CREATED: u32 = 0o755;
/// The bits of a mode that let the group serve in the folder.
const BY_GROUP: u32 = 0o070;
/// The bits that let users write whom the agent does not trust: in the folder of a handler, and in the folder that contains
/// it or the socket of the agent.
const BY_ALL: u32 = 0o002;
pub(super) const BY_OTHERS: u32 = 0o022;

/// The isolated handlers of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Isolated {
    /// The folder with a folder for each handler.
    pub folder: PathBuf,
    pub names: BTreeSet<String>,
}

impl Isolated {
    /// Returns the path of a handler's socket.
    pub(super) fn socket(&self, name: &str) -> String {
        let socket = socket_in(&self.folder.join(name), name);
        socket.to_string_lossy().into_owned()
    }

    /// Keeps the folders as they must be. Each problem is logged once.
    pub(super) async fn keep_folders(&self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut reported = BTreeMap::new();
        while !self.names.is_empty() && !shutdown.is_cancelled() {
            for name in &self.names {
                let problem = prepare(&self.folder.join(name)).err();
                let problem = problem.map(|e| e.to_string());
                if reported.get(name) != Some(&problem) {
                    if let Some(why) = &problem {
                        warn!("the isolated handler {name} cannot be used: {why}");
                    }
                    reported.insert(name, problem);
                }
            }
            shutdown.run_until_cancelled(sleep(CHECK)).await;
        }
        Ok(())
    }
}

/// Returns the path of the socket of the handler with this name.
pub(super) fn socket_in(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.sock"))
}

/// Returns an error if users whom the agent does not trust could serve at this place.
pub(super) fn check_place(socket: &Path) -> io::Result<()> {
    socket.parent().map_or(Ok(0), check_folders).map(drop)
}

/// Creates the folder of a handler if it is not there, and lets its group write.
fn prepare(folder: &Path) -> io::Result<()> {
    let at = |e: io::Error| files::at(folder, &e);
    let mut builder = fs::DirBuilder::new();
    let builder = builder.recursive(true).mode(CREATED);
    builder.create(folder).map_err(at)?;
    let mode = check_folders(folder)?;
    if mode & BY_GROUP != BY_GROUP {
        fs::set_permissions(folder, fs::Permissions::from_mode(mode | BY_GROUP)).map_err(at)?;
    }
    Ok(())
}

/// Checks the folder of a handler, and the folder that contains it, in which it could be replaced. Returns the mode of the
/// first.
fn check_folders(folder: &Path) -> io::Result<u32> {
    if let Some(around) = folder.parent() {
        check(around, BY_OTHERS, "go-w")?;
    }
    check(folder, BY_ALL, "o-w")
}

/// Returns the mode of a folder, or an error if its owner is not trusted or it has one of the bits `refused`.
pub(super) fn check(folder: &Path, refused: u32, change: &str) -> io::Result<u32> {
    let at = |e: io::Error| files::at(folder, &e);
    files::check_owner(folder).map_err(at)?;
    let mode = fs::metadata(folder).map_err(at)?.permissions().mode() & 0o7777;
    if mode & refused == 0 {
        return Ok(mode);
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "{0}: its mode is {mode:o}, and other users may write there: chmod {change} {0}",
            folder.display()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_the_folder_may_serve_there_and_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let around = dir.path().join("isolated");
        let folder = around.join("zeroconf");
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        prepare(&folder).unwrap();
        assert_eq!(mode(&folder) & 0o772, 0o770, "{:o}", mode(&folder));
        assert_eq!(mode(&around) & 0o022, 0, "{:o}", mode(&around));
        // As the kubelet creates it for the Pod of the handlers.
        set(&folder, 0o755);
        prepare(&folder).unwrap();
        assert_eq!(mode(&folder), 0o775);
        check_place(&socket_in(&folder, "zeroconf")).unwrap();
        for (path, bad, change) in [
            (&folder, 0o777, "chmod o-w"),
            (&folder, 0o1777, "chmod o-w"),
            (&around, 0o775, "chmod go-w"),
            (&around, 0o757, "chmod go-w"),
        ] {
            let good = mode(path);
            set(path, bad);
            let place = socket_in(&folder, "zeroconf");
            for refused in [prepare(&folder), check_place(&place)] {
                let refused = refused.unwrap_err().to_string();
                assert!(refused.contains(change), "{refused}");
                assert!(refused.contains(&path.display().to_string()), "{refused}");
            }
            set(path, good);
        }
    }

    #[test]
    fn each_handler_has_a_folder_of_its_own() {
        let isolated = Isolated {
            folder: "/state/isolated".into(),
            names: BTreeSet::new(),
        };
        let sockets = ["zeroconf", "udev"].map(|name| isolated.socket(name));
        assert_eq!(sockets[0], "/state/isolated/zeroconf/zeroconf.sock");
        assert_eq!(sockets[1], "/state/isolated/udev/udev.sock");
    }
}
