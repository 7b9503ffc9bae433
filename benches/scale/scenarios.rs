//! Runs the scenarios of a cluster one after another, and measures the cost of each.
use crate::{
    Flags,
    api_server::Counters,
    claims,
    fleet::{Agent, Fleet, HANDLER, OWN},
    report::Report,
    watched::{Watched, are_offered, are_unhealthy},
};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use petiole::{
    api::{configuration::Configuration, node_devices::NodeDevices},
    cluster,
};
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tempfile::TempDir;
use tokio::{
    process::Command,
    sync::watch,
    time::{Instant, sleep},
};

/// The number of nodes of one site.
const SITE: usize = 50;
const DEVICES_OF_A_SITE: usize = 20;
const DEVICES_OF_A_SWITCH: usize = 64;
/// The time without a write after which nothing is left to be written.
const QUIET: Duration = Duration::from_secs(3);

/// A cluster with agents.
pub(super) struct World {
    client: Client,
    fleet: Fleet,
    agents: Vec<Agent>,
    watched: Watched,
    own_devices: usize,
    restart: Option<String>,
    _folder: TempDir,
}

impl World {
    pub(super) async fn begin(flags: &Flags, agents: usize) -> Self {
        let config = kube::Config::infer().await.unwrap();
        let client = cluster::client_of(config.clone()).unwrap();
        make_nodes(&client, agents).await;
        // The folder is in memory, because the mirrors of hundreds of agents would share this machine's disk.
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let fleet = Fleet {
            config,
            account: flags.account.clone(),
            lan: Arc::new(watch::Sender::new(BTreeMap::new())),
            folder: folder.path().to_owned(),
        };
        Self {
            watched: Watched::begin(&client),
            agents: vec![],
            own_devices: flags.own_devices,
            restart: flags.restart.clone(),
            _folder: folder,
            fleet,
            client,
        }
    }

    fn count(&self) -> usize {
        self.agents.len()
    }

    pub(super) async fn measure_all(&mut self, report: &mut Report) {
        self.start(report).await;
        self.own(report).await;
        self.one_device(report).await;
        self.sites(report).await;
        self.switch(report).await;
        self.rolling_update(report).await;
        self.claims(report).await;
        self.restart(report).await;
    }

    /// Starts all agents at once, as after a power cut.
    async fn start(&mut self, report: &mut Report) {
        let what = "all agents start";
        let nodes: Api<Node> = Api::all(self.client.clone());
        let listed = nodes
            .list_metadata(&ListParams::default().labels("scale=yes"))
            .await;
        let names = listed
            .unwrap()
            .items
            .into_iter()
            .filter_map(|n| n.metadata.name);
        let before = Counters::read(&self.client).await;
        let began = Instant::now();
        self.agents = names.map(|name| self.fleet.start(&name)).collect();
        self.until_reported().await;
        report.add(
            &format!("{what}: until each has reported"),
            "s",
            began.elapsed().as_secs_f64(),
        );
        report.add_counters(what, self.since(before).await);
    }

    async fn until_reported(&self) {
        let objects: Api<NodeDevices> = Api::all(self.client.clone());
        loop {
            let listed = objects.list_metadata(&ListParams::default()).await;
            if listed.is_ok_and(|list| list.items.len() >= self.count()) {
                return;
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Creates Instances that exist during all later scenarios.
    async fn own(&mut self, report: &mut Report) {
        let (what, per_node) = ("devices of one node each", self.own_devices);
        let count = self.count() * per_node;
        let before = Counters::read(&self.client).await;
        self.configure("own", &format!("{OWN}{per_node}"), json!({}))
            .await;
        let took = self
            .watched
            .until("own", |all| are_offered(all, count, 1))
            .await;
        let spent = self.since(before).await;
        report.add(&format!("{what}: Instances"), "", as_f64(count));
        report.add(
            &format!("{what}: until all are offered"),
            "s",
            took.as_secs_f64(),
        );
        report.add_counters(what, spent);
        report.add(
            "memory of the API server with them",
            "MB",
            spent.memory_megabytes,
        );
    }

    /// (a) Makes all nodes see one device.
    async fn one_device(&mut self, report: &mut Report) {
        let (what, nodes) = ("(a) one shared device", self.count());
        let before = Counters::read(&self.client).await;
        self.appear("one", 1);
        self.configure("one", "one", json!({"capacity": 100})).await;
        let took = self
            .watched
            .until("one", |all| are_offered(all, 1, nodes))
            .await;
        let spent = self.since(before).await;
        let time = format!("{what}: until the Instance names all");
        report.add(&time, "s", took.as_secs_f64());
        report.budget(&time, 20.0);
        let requests = format!("{what}: writes less one a node");
        report.add(&requests, "requests", spent.writes - as_f64(nodes));
        report.budget(&requests, 2.0);
        report.add_counters(what, spent);
        report.budget(&format!("{what}: sent by watches"), 100.0);
        let instance = self.watched.of("one").remove(0);
        let bytes = serde_json::to_vec(&*instance).unwrap().len();
        report.add(
            "the Instance that all nodes offer",
            "kB",
            as_f64(bytes) / 1e3,
        );
    }

    /// (b) Gives each site devices of its own.
    async fn sites(&mut self, report: &mut Report) {
        let what = "(b) sites of 50 nodes";
        let sites = self.count() / SITE;
        let devices = sites * DEVICES_OF_A_SITE;
        let before = Counters::read(&self.client).await;
        for site in 0..sites {
            let name = format!("site-{site}");
            self.appear(&name, DEVICES_OF_A_SITE);
            self.configure(
                &name,
                &name,
                json!({"nodeSelector": {"site": site.to_string()}}),
            )
            .await;
        }
        let took = self
            .watched
            .until("site-", |all| are_offered(all, devices, SITE))
            .await;
        let spent = self.since(before).await;
        let time = format!("{what}: until all nodes offer them");
        report.add(&time, "s", took.as_secs_f64());
        report.budget(&time, 30.0);
        let requests = format!("{what}: writes per device");
        report.add(&requests, "requests", spent.writes / as_f64(devices));
        report.budget(&requests, as_f64(SITE) + 2.0);
        report.add_counters(what, spent);
    }

    /// (c) Removes the devices behind a switch, and adds them again.
    async fn switch(&mut self, report: &mut Report) {
        let devices = DEVICES_OF_A_SWITCH;
        self.appear("switch", devices);
        self.configure("switch", "switch", json!({"nodeSelector": {"site": "0"}}))
            .await;
        self.watched
            .until("switch", |all| are_offered(all, devices, SITE))
            .await;
        sleep(QUIET).await;
        for is_there in [false, true] {
            let what = if !is_there {
                "(c) 64 devices of 50 nodes go"
            } else {
                "(c) and come back"
            };
            let before = Counters::read(&self.client).await;
            self.appear("switch", if is_there { devices } else { 0 });
            let took = self.watched.until("switch", |all| {
                if !is_there {
                    are_unhealthy(all)
                } else {
                    are_offered(all, devices, SITE)
                }
            });
            let took = took.await;
            report.add(
                &format!("{what}: until all Instances say so"),
                "s",
                took.as_secs_f64(),
            );
            report.add_counters(what, self.since(before).await);
        }
    }

    /// (d) Restarts a tenth of the agents at a time.
    async fn rolling_update(&mut self, report: &mut Report) {
        let what = "(d) a rolling update of all agents";
        let before = Counters::read(&self.client).await;
        let began = Instant::now();
        let at_a_time = (self.count() / 10).max(1);
        let mut updated = vec![];
        while !self.agents.is_empty() {
            let rest = self.agents.split_off(at_a_time.min(self.agents.len()));
            let old = std::mem::replace(&mut self.agents, rest);
            let names: Vec<String> = old.iter().map(|agent| agent.name.clone()).collect();
            join_all(old.into_iter().map(Agent::end)).await;
            let new: Vec<Agent> = names.iter().map(|name| self.fleet.start(name)).collect();
            join_all(new.iter().map(begun)).await;
            updated.extend(new);
        }
        self.agents = updated;
        report.add(
            &format!("{what}: takes"),
            "s",
            began.elapsed().as_secs_f64(),
        );
        let spent = self.since(before).await;
        report.add_counters(what, spent);
        let (nodes, own) = (self.count(), self.count() * self.own_devices);
        self.watched
            .until("own", |all| are_offered(all, own, 1))
            .await;
        self.watched
            .until("one", |all| are_offered(all, 1, nodes))
            .await;
    }

    /// (f) Claims slots of shared devices.
    async fn claims(&mut self, report: &mut Report) {
        let what = "(f) 50 claims a second";
        let capacity = json!({"capacity": 100, "nodeSelector": {"site": "0"}});
        self.appear("claimed", 10);
        self.configure("claimed", "claimed", capacity).await;
        self.watched
            .until("claimed", |all| are_offered(all, 10, SITE))
            .await;
        sleep(QUIET).await;
        let site = &self.agents[..SITE];
        let before = Counters::read(&self.client).await;
        let times = claims::measure(site, &self.watched, "claimed").await;
        let spent = self.since(before).await;
        let failed = f64::from(claims::CLAIMS) - as_f64(times.len());
        report.add(&format!("{what}: refused"), "of 500", failed);
        for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
            let time = claims::quantile(&times, part);
            report.add(
                &format!("{what}: {name} of a claim"),
                "ms",
                time.as_secs_f64() * 1e3,
            );
        }
        report.budget(&format!("{what}: p99 of a claim"), 50.0);
        report.add_counters(what, spent);
    }

    /// (e) Restarts the API server.
    async fn restart(&mut self, report: &mut Report) {
        let Some(command) = &self.restart else { return };
        let what = "(e) the API server restarts";
        let status = Command::new("sh").args(["-c", command]).status().await;
        assert!(status.unwrap().success(), "{command}");
        let before = Counters::read(&self.client).await;
        let nodes = self.count();
        self.appear("after", 1);
        self.configure("after", "after", json!({})).await;
        let took = self
            .watched
            .until("after", |all| are_offered(all, 1, nodes))
            .await;
        report.add(
            &format!("{what}: until all nodes offer a new device"),
            "s",
            took.as_secs_f64(),
        );
        report.add_counters(what, self.since(before).await);
    }

    /// Waits until nothing is written any more. Returns the work since `before`.
    async fn since(&self, before: Counters) -> Counters {
        let mut last = Counters::read(&self.client).await;
        loop {
            sleep(QUIET).await;
            let now = Counters::read(&self.client).await;
            if (now - last).writes == 0.0 {
                return last - before;
            }
            last = now;
        }
    }

    fn appear(&self, details: &str, count: usize) {
        self.fleet.lan.send_modify(|lan| {
            lan.insert(details.to_owned(), count);
        });
    }

    async fn configure(&self, name: &str, details: &str, fields: serde_json::Value) {
        let mut object = json!({
            "apiVersion": "akri.sh/v0", "kind": "Configuration",
            "metadata": {"name": name},
            "spec": {
                "discoveryHandler": {"name": HANDLER, "discoveryDetails": details},
                "maxInstances": 10_000,
                "gracePeriodSeconds": 600,
            },
        });
        let spec = object["spec"].as_object_mut().unwrap();
        spec.extend(fields.as_object().unwrap().clone());
        let api: Api<Configuration> = Api::default_namespaced(self.client.clone());
        let object = serde_json::from_value(object).unwrap();
        while let Err(e) = api.create(&PostParams::default(), &object).await {
            println!("{name} is not created yet: {e}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Removes everything, so that the next number of agents begins with an empty cluster.
    pub(super) async fn end(mut self) {
        let api: Api<Configuration> = Api::default_namespaced(self.client.clone());
        api.delete_collection(&DeleteParams::default(), &ListParams::default())
            .await
            .unwrap();
        self.watched.until("", <[_]>::is_empty).await;
        join_all(self.agents.drain(..).map(Agent::end)).await;
        let nodes: Api<Node> = Api::all(self.client.clone());
        let ours = ListParams::default().labels("scale=yes");
        nodes
            .delete_collection(&DeleteParams::default(), &ours)
            .await
            .unwrap();
        let objects: Api<NodeDevices> = Api::all(self.client.clone());
        while !objects
            .list_metadata(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
        {
            sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Waits until an agent knows its Instances again.
async fn begun(agent: &Agent) {
    use petiole::store::Store as _;
    let mut instances = agent.store.instances();
    instances.wait_for(|all| !all.is_empty()).await.unwrap();
}

/// Creates Nodes without machines, 50 of each site. The controller manager of this cluster ignores them.
async fn make_nodes(client: &Client, count: usize) {
    let nodes: Api<Node> = Api::all(client.clone());
    for number in 0..count {
        let name = format!("scale-{number:04}");
        let labels = json!({"scale": "yes", "site": (number / SITE).to_string()});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        let node = serde_json::from_value(node).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let ready = json!({"status": {"conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]}});
        let patch = Patch::Merge(ready);
        nodes
            .patch_status(&name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
}

#[expect(clippy::cast_precision_loss, reason = "some thousand objects")]
fn as_f64(count: usize) -> f64 {
    count as f64
}
