//! The folder in which built-in handlers run as processes without rights.
//!
//! Such a process cannot register, because only root can. It need not: the agent knows the place of its socket and connects to
//! it. The folder's group may write, and is the group of these processes; the folder's owner must be root or the agent's user.
use super::server::CHECK;
use crate::files;
use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// The bits of a mode that let the group serve in the folder, and those that let everybody.
const BY_GROUP: u32 = 0o070;
const BY_ALL: u32 = 0o002;

/// The isolated handlers of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Isolated {
    pub folder: PathBuf,
    pub names: BTreeSet<String>,
}

impl Isolated {
    /// Returns the path of a handler's socket.
    pub(super) fn socket(&self, name: &str) -> String {
        socket_in(&self.folder, name).to_string_lossy().into_owned()
    }

    /// Keeps the folder as it must be. What is wrong with it is logged once.
    pub(super) async fn keep_folder(&self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut reported = None;
        while !self.names.is_empty() && !shutdown.is_cancelled() {
            let problem = prepare(&self.folder).err().map(|e| e.to_string());
            if let Some(why) = problem.as_ref().filter(|_| problem != reported) {
                warn!("isolated discovery handlers cannot serve: {why}");
            }
            reported = problem;
            shutdown.run_until_cancelled(sleep(CHECK)).await;
        }
        Ok(())
    }
}

/// Returns the path of the socket of the handler with this name.
pub(super) fn socket_in(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.sock"))
}

/// Creates the folder if it is not there, and lets its group write. Other users must not be able to: the agent would believe
/// whoever has a socket there.
fn prepare(folder: &Path) -> io::Result<()> {
    let at = |e: io::Error| files::at(folder, &e);
    fs::create_dir_all(folder).map_err(at)?;
    files::check_owner(folder)?;
    let mode = fs::metadata(folder).map_err(at)?.permissions().mode() & 0o7777;
    if mode & BY_ALL != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{0}: its mode is {mode:o}, and all users may write there: chmod o-w {0}",
                folder.display()
            ),
        ));
    }
    if mode & BY_GROUP != BY_GROUP {
        fs::set_permissions(folder, fs::Permissions::from_mode(mode | BY_GROUP)).map_err(at)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_the_folder_may_serve_there_and_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("isolated");
        let mode = || fs::metadata(&folder).unwrap().permissions().mode() & 0o7777;
        prepare(&folder).unwrap();
        assert_eq!(mode() & 0o772, 0o770, "{:o}", mode());
        // As the kubelet creates it for the Pod of the handlers.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        prepare(&folder).unwrap();
        assert_eq!(mode(), 0o775);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let refused = prepare(&folder).unwrap_err().to_string();
        assert!(refused.contains("chmod o-w"), "{refused}");
    }
}
