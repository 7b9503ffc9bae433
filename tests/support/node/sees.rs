//! Reads the state of the node for a test, and waits for states.
use super::*;

impl TestNode {
    pub fn kubelet(&self) -> Client {
        Client::new(&self.kubelet_settings.root_dir)
    }

    /// Returns capacity and allocatable of a full name, or of `akri.sh/<name>`; `None` if there is no such entry.
    pub async fn counts(&self, name: &str) -> Option<(u32, u32)> {
        let status = self.kubelet().node().await.ok()?.status?;
        let resource = if name.contains('/') {
            name.to_owned()
        } else {
            format!("akri.sh/{name}")
        };
        let count = |quantities: Option<BTreeMap<String, _>>| {
            let quantity: k8s_openapi::apimachinery::pkg::api::resource::Quantity =
                quantities?.remove(&resource)?;
            quantity.0.parse().ok()
        };
        Some((count(status.capacity)?, count(status.allocatable)?))
    }

    pub async fn until_counts(&self, name: &str, capacity: u32, allocatable: u32) {
        let mut last = None;
        let wanted = Some((capacity, allocatable));
        let seen = timeout(PATIENCE, async {
            while last != wanted {
                sleep(POLL).await;
                last = self.counts(name).await;
            }
        });
        if seen.await.is_err() {
            panic!(
                "{name} never had {wanted:?}, but {last:?}: {}{}",
                self.shown(),
                self.logs()
            );
        }
    }

    /// Returns the number of resources that have a plugin and allocatable slots.
    pub async fn connected(&self) -> Option<usize> {
        let plugins = self.kubelet().plugins().await.ok()?;
        let is_offered = |plugin: &&petiole_kubelet::client::PluginView| {
            plugin.state == PluginState::Connected && plugin.healthy > 0
        };
        Some(plugins.iter().filter(is_offered).count())
    }

    pub async fn until_connected(&self, count: usize) {
        self.within(
            2 * PATIENCE,
            &format!("{count} resources are connected"),
            async || (self.connected().await? == count).then_some(()),
        )
        .await;
    }

    /// Returns the sockets in the plugin folder without the kubelet's.
    pub fn sockets(&self) -> BTreeSet<String> {
        let Ok(entries) = fs::read_dir(&self.agent_settings.plugin_folder) else {
            return BTreeSet::new();
        };
        entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name != "kubelet.sock")
            .collect()
    }

    /// Returns the socket of a resource, `<resource>-<seconds>.sock`.
    pub fn socket_of(&self, resource: &str) -> Option<String> {
        let is_its = |socket: &String| {
            let seconds = (socket.strip_prefix(resource))
                .and_then(|rest| rest.strip_prefix('-')?.strip_suffix(".sock"));
            seconds.is_some_and(|s| s.len() == 10 && s.bytes().all(|b| b.is_ascii_digit()))
        };
        self.sockets().into_iter().find(is_its)
    }

    /// Returns the Instances in their files. Each file is complete whenever it is read.
    pub fn instances(&self) -> BTreeMap<String, Instance> {
        let Ok(entries) = fs::read_dir(self.state().join("instances")) else {
            return BTreeMap::new();
        };
        let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
        let is_instance = |path: &PathBuf| {
            !path
                .file_name()
                .unwrap()
                .as_encoded_bytes()
                .starts_with(b".")
        };
        paths
            .filter(is_instance)
            .filter_map(|path| {
                // The file may be removed between the listing and the reading.
                let text = fs::read_to_string(&path).ok()?;
                let instance: Instance = serde_saphyr::from_str(&text)
                    .unwrap_or_else(|e| panic!("{} is half a file: {e}\n{text}", path.display()));
                Some((instance.metadata.name.clone().unwrap(), instance))
            })
            .collect()
    }

    pub async fn instance(&self, name: &str) -> Instance {
        let what = format!("Instance {name}");
        self.until(&what, async || self.instances().remove(name))
            .await
    }

    pub async fn until_no_instance(&self, name: &str) {
        let what = format!("Instance {name} is gone");
        self.until(&what, async || {
            (!self.instances().contains_key(name)).then_some(())
        })
        .await;
    }

    /// Returns the owners of an Instance's slots, without free slots.
    pub fn usage(&self, name: &str) -> Env {
        let usage = self
            .instances()
            .remove(name)
            .map(|i| i.spec.device_usage)
            .unwrap_or_default();
        usage
            .into_iter()
            .filter(|(_, owner)| !owner.is_empty())
            .collect()
    }

    pub async fn until_usage(&self, name: &str, usage: &[(&str, &str)]) {
        let wanted: Env = usage
            .iter()
            .map(|(slot, owner)| ((*slot).to_owned(), (*owner).to_owned()))
            .collect();
        let what = format!("usage of {name} is {wanted:?}");
        self.until(&what, async || (self.usage(name) == wanted).then_some(()))
            .await;
    }

    /// Returns the errors of a manifest that is not used as it is.
    pub fn error_of(&self, manifest: &str) -> Option<String> {
        fs::read_to_string(self.state().join(format!("{manifest}.error"))).ok()
    }

    pub async fn until_error(&self, manifest: &str, part: &str) -> String {
        let what = format!("{manifest}.error says {part:?}");
        self.until(&what, async || {
            self.error_of(manifest).filter(|text| text.contains(part))
        })
        .await
    }

    pub async fn pod(&self, name: &str) -> Option<Pod> {
        let pods = self.kubelet().pods().await.ok()?.items;
        pods.into_iter()
            .find(|pod| pod.metadata.name.as_deref() == Some(&*format!("{name}-{NODE}")))
    }

    /// Waits for the process of a Pod's container, and returns its id.
    pub async fn pid(&self, name: &str) -> i32 {
        self.env(name).await["PID"].parse().unwrap()
    }

    /// Returns the number of restarts of a Pod's container, if it runs.
    pub async fn restarts(&self, name: &str) -> Option<i32> {
        let container = self.pod(name).await?.status?.container_statuses?.remove(0);
        container.state?.running.map(|_| container.restart_count)
    }

    /// Waits until a Pod's container waits to start for a reason that contains `part`.
    pub async fn until_waiting(&self, name: &str, part: &str) {
        self.until(&format!("Pod {name} waits: {part}"), async || {
            let status = self.pod(name).await?.status?;
            let state = status.container_statuses?.remove(0).state?;
            state.waiting?.message.filter(|m| m.contains(part))
        })
        .await;
    }

    /// Waits until a Pod was rejected for a reason that contains `part`.
    pub async fn until_refused(&self, name: &str, part: &str) {
        self.until(&format!("Pod {name} is refused: {part}"), async || {
            let status = self.pod(name).await?.status?;
            status.message.filter(|m| m.contains(part))
        })
        .await;
    }

    /// Returns the environment of the last process of a Pod.
    pub async fn env(&self, pod: &str) -> Env {
        let full_name = format!("{pod}-{NODE}");
        self.until(&format!("Pod {pod} has printed"), async || {
            self.restarts(pod).await?;
            let log = self
                .kubelet()
                .logs("default", &full_name, "main")
                .await
                .ok()?;
            let printed = log.strip_suffix("END\n")?;
            let last = printed.rsplit("END\n").next()?;
            let pairs = last.lines().filter_map(|line| line.split_once('='));
            Some(
                pairs
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect(),
            )
        })
        .await
    }
}
