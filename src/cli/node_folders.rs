//! Defines the flags that name the folders of a node without a cluster.
use clap::Args;
use petiole_kubelet::client::Client;
use std::path::PathBuf;

/// The root folder of `petiole kubelet` without a flag.
pub(super) const ROOT_DIR: &str = "/var/lib/petiole/kubelet";

#[derive(Debug, Args)]
pub(super) struct NodeFolders {
    /// Root folder of the running `petiole kubelet` of a node without a cluster [default: /var/lib/petiole/kubelet, or
    /// /var/lib/kubelet if one runs there]
    #[arg(long, env = "PETIOLE_ROOT_DIR", value_name = "DIR")]
    root_dir: Option<PathBuf>,
    /// State folder of its agent
    #[arg(
        long,
        env = "PETIOLE_STATE",
        value_name = "DIR",
        default_value = "/var/lib/akri"
    )]
    pub(super) state: PathBuf,
}

impl NodeFolders {
    /// Returns the root folder of the kubelet: that of the flag, or else where one runs by default or by its systemd unit.
    pub(super) fn root_dir(&self) -> PathBuf {
        let usual = [ROOT_DIR, "/var/lib/kubelet"].map(PathBuf::from);
        self.root_dir
            .clone()
            .unwrap_or_else(|| first_with_kubelet(usual))
    }
}

/// Returns the first folder with a kubelet, or the first one.
fn first_with_kubelet(folders: [PathBuf; 2]) -> PathBuf {
    let [first, second] = folders;
    let is_there = |folder: &PathBuf| Client::new(folder).is_there();
    if !is_there(&first) && is_there(&second) {
        second
    } else {
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelet_of_the_systemd_unit_is_found_without_a_flag() {
        let root = tempfile::tempdir().unwrap();
        let folders = ["usual", "unit"].map(|name| root.path().join(name));
        let [usual, unit] = &folders;
        assert_eq!(first_with_kubelet(folders.clone()), *usual);
        for (folder, expected) in [(unit, unit), (usual, usual)] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("kubelet-api.sock"), "").unwrap();
            assert_eq!(first_with_kubelet(folders.clone()), *expected);
        }
    }
}
