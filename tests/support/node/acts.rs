//! Changes the node, its Pods and its slots for a test.
use super::*;

impl TestNode {
    /// Writes a Configuration of the test handler whose details are its name. `spec` has more fields, in flow style.
    pub fn configure(&self, name: &str, spec: &str) {
        self.configure_with(name, name, spec);
    }

    pub fn configure_with(&self, name: &str, details: &str, spec: &str) {
        let text = format!(
            "apiVersion: akri.sh/v0\nkind: Configuration\nmetadata: {{name: {name}}}\n\
             spec: {{discoveryHandler: {{name: test, discoveryDetails: {details}}}, {spec}}}\n"
        );
        self.write_manifest(&format!("{name}.yaml"), &text);
    }

    pub fn write_manifest(&self, file: &str, text: &str) {
        files::write_atomically(&self.configurations().join(file), text.as_bytes(), 0o644).unwrap();
    }

    pub fn remove_manifest(&self, file: &str) {
        files::remove(&self.configurations().join(file)).unwrap();
    }

    /// Runs a static Pod whose container prints its environment and waits. It requests these resources.
    pub fn run_pod(&self, name: &str, limits: &[(&str, usize)]) {
        let print = "echo PID=$$$$; env; echo END; exec sleep 1000";
        self.write_pod(
            name,
            serde_json::json!({ "containers": [container(print, limits)] }),
        );
    }

    /// Runs a static Pod whose init container requests these resources and does not end.
    pub fn run_init_pod(&self, name: &str, limits: &[(&str, usize)]) {
        let mut init = container("exec sleep 1000", limits);
        init["name"] = "init".into();
        let main = container("exec sleep 1000", &[]);
        self.write_pod(
            name,
            serde_json::json!({ "initContainers": [init], "containers": [main] }),
        );
    }

    fn write_pod(&self, name: &str, mut spec: serde_json::Value) {
        spec["terminationGracePeriodSeconds"] = 1.into();
        let pod = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec,
        });
        let path = self.root.join("manifests").join(format!("{name}.yaml"));
        files::write_atomically(&path, pod.to_string().as_bytes(), 0o644).unwrap();
    }

    pub fn remove_pod(&self, name: &str) {
        files::remove(&self.root.join("manifests").join(format!("{name}.yaml"))).unwrap();
    }

    /// Kills a Pod's process, as a crash would.
    pub async fn crash(&self, pod: &str) {
        let pid = self.pid(pod).await;
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }

    /// Gives a slot to another owner, as if other nodes used the same store.
    pub async fn hand_over(&self, slot: &str, (from, to): (&str, &str)) {
        let owner = |text: &str| SlotOwner::from_usage(text).unwrap();
        let slot: petiole::model::slot::SlotId = slot.parse().unwrap();
        let change = SlotChange {
            key: InstanceKey::new("default", &slot.instance),
            from: owner(from),
            to: owner(to),
            slot,
            connection_digest: None,
        };
        let store = self.folder_store.as_ref().expect("an agent runs");
        store.exchange(vec![change]).await.unwrap();
    }

    /// Returns a client of the plugin that serves this resource now.
    pub async fn plugin(&self, resource: &str) -> PluginClient {
        self.until(&format!("a plugin for {resource}"), async || {
            let socket = self.socket_of(resource)?;
            let path = self.agent_settings.plugin_folder.join(socket);
            uds::dial(&path).await.ok().map(DevicePluginClient::new)
        })
        .await
    }

    /// Calls Allocate as a kubelet does for one container.
    pub async fn allocate(
        &self,
        resource: &str,
        ids: &[&str],
    ) -> Result<ContainerAllocateResponse, Status> {
        let mut plugin = self.plugin(resource).await;
        let mut responses = timeout(PATIENCE, plugin.allocate(request(ids)))
            .await
            .expect("Allocate is answered")?
            .into_inner()
            .container_responses;
        assert_eq!(responses.len(), 1, "one response for each container");
        Ok(responses.remove(0))
    }

    /// Allocates a slot, and disconnects after the claim was written and before it was answered. The store is blocked
    /// from then on.
    pub async fn give_up_a_claim(&self, resource: &str, slot: &str) {
        let mut plugin = self.plugin(resource).await;
        self.store.is_held_up.send_replace(true);
        let usage = [(slot, NODE)];
        let claimed = self.until_usage(resource, &usage);
        tokio::select! {
            answer = plugin.allocate(request(&[slot])) => panic!("the write was held up: {answer:?}"),
            () = claimed => {}
        }
    }
}

fn container(command: &str, limits: &[(&str, usize)]) -> serde_json::Value {
    let limits: BTreeMap<_, _> = limits.iter().copied().collect();
    serde_json::json!({
        "name": "main",
        "image": "none",
        "command": ["/bin/sh", "-c", command],
        "resources": {"limits": limits},
    })
}
