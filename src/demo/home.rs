//! Creates the folders of a demo, and the settings of its kubelet, agent and store.
use crate::{
    agent, api, node_view,
    store::folder::{self, FolderStore},
    yaml,
};
use anyhow::Context as _;
use petiole_people::live::Source;
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process,
    sync::Arc,
    time::Duration,
};
use tempfile::{Builder, TempDir};

/// The name of the demo's node.
const NODE: &str = "laptop";
/// The endpoint grace of the demo's kubelet. Other kubelets wait 5 min before they drop the resource of a disconnected
/// plugin.
const ENDPOINT_GRACE: Duration = Duration::from_secs(5);
const GRACE_PERIOD_SECONDS: i64 = 5;
/// The interval between two checks for free slots; the usual one is 10 s. An Instance is deleted once its broker's slot
/// is free, which takes two checks.
const FREE_SLOT_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The Configurations of the demo: files of `examples/`.
const CONFIGURATIONS: [(&str, &str); 2] = [
    (
        "zeroconf-http.yaml",
        include_str!("../../examples/zeroconf-http.yaml"),
    ),
    (
        "zeroconf-rtsp.yaml",
        include_str!("../../examples/zeroconf-rtsp.yaml"),
    ),
];

/// Creates a new folder for a demo. It is private, because the kubelet runs the manifests in it.
pub(super) fn folder() -> anyhow::Result<TempDir> {
    let folder = Builder::new()
        .prefix(&format!("petiole-demo-{}-", process::id()))
        .permissions(Permissions::from_mode(0o700))
        .tempdir();
    folder.context("cannot create a folder for temporary files")
}

/// The folders of a demo.
#[derive(Debug, Clone)]
pub(super) struct Home {
    root: PathBuf,
}

impl Home {
    /// Fills an empty folder with the Configurations, with a short grace period.
    pub(super) fn create(root: &Path) -> anyhow::Result<Self> {
        let home = Self {
            root: root.to_owned(),
        };
        for folder in [&home.configurations(), &home.manifests()] {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        for (name, text) in CONFIGURATIONS {
            let text = with_short_grace(text).with_context(|| name.to_owned())?;
            let path = home.configurations().join(name);
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        Ok(home)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    fn configurations(&self) -> PathBuf {
        self.root.join("configurations")
    }

    fn manifests(&self) -> PathBuf {
        self.root.join("manifests")
    }

    pub(super) fn plugins(&self) -> PathBuf {
        self.root.join("device-plugins")
    }

    fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    /// Returns the demo's node as a place that the live view shows.
    pub(super) fn source(&self) -> Source {
        node_view::source(self.root.clone(), self.state())
    }

    pub(super) fn kubelet(&self) -> petiole_kubelet::Settings {
        petiole_kubelet::Settings {
            endpoint_grace: ENDPOINT_GRACE,
            ..petiole_kubelet::Settings::new(&self.root, self.manifests(), NODE)
        }
    }

    pub(super) fn agent(&self) -> agent::Settings {
        agent::Settings {
            node_name: NODE.into(),
            resource_prefixes: (api::names::GROUP.parse()).expect("the API group is a prefix"),
            nodes: None,
            node_labels: false,
            property_sources: None,
            plugin_folder: self.plugins(),
            pod_resources_socket: self.root.join("pod-resources/kubelet.sock"),
            own_pod: None,
            kubelet_startup_grace: agent::KUBELET_STARTUP_GRACE,
            resource_name_hold: agent::RESOURCE_NAME_HOLD,
            look_interval: FREE_SLOT_CHECK_INTERVAL,
            max_configurations: 100,
            max_instances: 100,
            containers: crate::model::container_devices::ContainerRules::default(),
            claims: None,
            render_brokers: Some(self.manifests()),
            http_address: None,
            metrics_address: None,
        }
    }

    pub(super) fn store(&self) -> anyhow::Result<Arc<FolderStore>> {
        let store = FolderStore::open(folder::Settings {
            node_name: NODE.into(),
            configurations: self.configurations(),
            state: self.state(),
        })?;
        Ok(Arc::new(store))
    }
}

/// Shortens the grace period of a Configuration, so that a user sees the Instance of a lost device being deleted.
fn with_short_grace(text: &str) -> anyhow::Result<String> {
    let mut document = yaml::from_str(text)?;
    document["spec"]["gracePeriodSeconds"] = GRACE_PERIOD_SECONDS.into();
    Ok(yaml::to_string(&document)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_a_demo_of_this_process_id_has_left_is_in_nobodys_way() {
        let (left, new) = (folder().unwrap(), folder().unwrap());
        assert_ne!(left.path(), new.path());
        let mode = fs::metadata(new.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
