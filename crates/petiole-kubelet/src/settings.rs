//! Holds the settings of a kubelet: its folders, its name and its time limits.
use std::{path::PathBuf, time::Duration};

/// The settings of one kubelet.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The folder that contains `device-plugins`, `plugins_registry`, `pod-resources`, `logs`, `containers`,
    /// `kubelet-api.sock` and `kubelet.lock`. One kubelet at a time uses it. The path must be short: those of the sockets
    /// in it have 107 bytes at most.
    pub root_dir: PathBuf,
    /// The folder of static Pods: each file in it, YAML or JSON, is one. It is read again at each change.
    pub manifests: PathBuf,
    /// The name of the node. The names of Pods end with it, as in `reader-node`.
    pub node_name: String,
    /// The time that the devices of a disconnected plugin still count as capacity.
    pub endpoint_grace: Duration,
    /// The wait before a container starts for the second time. It doubles with each start, up to 5 minutes. The Go
    /// kubelet waits 10 s; containers that are processes start faster.
    pub restart_backoff: Duration,
    /// The time that all Pods together get to end when the kubelet stops.
    pub stop_grace: Duration,
    /// The time limits of calls to plugins.
    pub call_limits: CallLimits,
}

/// The time limits of calls to plugins.
#[derive(Debug, Clone, Copy)]
pub struct CallLimits {
    /// The limit of GetDevicePluginOptions, which is the first call after a registration.
    pub options: Duration,
    /// The limit of Allocate and GetPreferredAllocation. The Go kubelet waits for ever, and every other Pod of the node
    /// waits with it.
    pub allocate: Duration,
    /// The limit of PreStartContainer.
    pub pre_start: Duration,
    /// The limit of NodeGetInfo. It is long, because a driver may have to query its storage.
    pub node_info: Duration,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            options: Duration::from_secs(10),
            allocate: Duration::from_secs(30),
            // This limit and the next one are the Go kubelet's.
            pre_start: Duration::from_secs(30),
            node_info: Duration::from_secs(120),
        }
    }
}

impl Settings {
    /// Returns settings that equal the Go kubelet's, except for the shorter back-off.
    pub fn new(
        root_dir: impl Into<PathBuf>,
        manifests: impl Into<PathBuf>,
        node_name: impl Into<String>,
    ) -> Self {
        Self {
            root_dir: root_dir.into(),
            manifests: manifests.into(),
            node_name: node_name.into(),
            endpoint_grace: Duration::from_secs(300),
            restart_backoff: Duration::from_secs(1),
            stop_grace: Duration::from_secs(30),
            call_limits: CallLimits::default(),
        }
    }
}
