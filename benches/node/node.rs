//! Runs a kubelet and an agent as separate processes, on a temporary folder. Both end with the value that holds them.
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use petiole::model::slot::SlotId;
use petiole_kubelet::client::Client as KubeletClient;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// The interval between two checks of a condition, which is the error of every measured time.
const LOOK: Duration = Duration::from_millis(2);
/// The time after which a measurement has failed.
const PATIENCE: Duration = Duration::from_secs(120);
const STOPS_WITHIN: Duration = Duration::from_secs(10);
pub(super) const CONFIGURATION: &str = "bench";

pub(super) struct Node {
    binary: PathBuf,
    agent: Option<Process>,
    kubelet: Option<Process>,
    /// The address on which the agent serves its health.
    http: Option<SocketAddr>,
    /// The folder is dropped last, because a process that still runs would write into it.
    folder: TempDir,
}

/// The quantities of a resource that the kubelet offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) capacity: usize,
    pub(super) allocatable: usize,
}

/// The memory of a process, in MB of 10^6 bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub(super) now: f64,
    pub(super) most: f64,
}

impl Node {
    /// Creates both folders, and starts nothing.
    pub(super) fn new(binary: PathBuf) -> Self {
        // The path of a socket has 107 bytes at most.
        let folder = tempfile::Builder::new()
            .prefix("p")
            .tempdir_in("/tmp")
            .unwrap();
        fs::create_dir(folder.path().join("configurations")).unwrap();
        Self {
            binary,
            folder,
            agent: None,
            kubelet: None,
            http: None,
        }
    }

    /// Starts a kubelet, and an agent that has found it.
    pub(super) async fn running(binary: PathBuf) -> Self {
        let mut node = Self::new(binary);
        node.start_kubelet().await;
        node.start_agent();
        // The agent watches its Configurations after it has made its folders.
        node.until("the agent's folders", || {
            node.path("state/configurations").exists()
        })
        .await;
        sleep(Duration::from_millis(300)).await;
        node
    }

    /// Returns the time at which `kubelet.sock` appeared.
    pub(super) async fn start_kubelet(&mut self) -> Instant {
        let root = self.path("kubelet");
        let pods = self.path("pods");
        let socket = self.path("kubelet/device-plugins/kubelet.sock");
        let api = self.path("kubelet/kubelet-api.sock");
        for left in [&socket, &api] {
            fs::remove_file(left).ok(); // of the last kubelet: a socket stays when its owner ends
        }
        let arguments = [("--root-dir", root), ("--manifests", pods)];
        self.kubelet = Some(self.start("kubelet", &arguments, None));
        self.until("kubelet.sock", || socket.exists()).await;
        let there = Instant::now();
        self.until("the kubelet's API", || api.exists()).await;
        there
    }

    pub(super) fn start_agent(&mut self) {
        self.agent = Some(self.start("agent", &self.agent_arguments(), None));
    }

    /// Starts the agent as a member of a cgroup.
    pub(super) fn start_agent_in(&mut self, cgroup: &Path) {
        self.agent = Some(self.start("agent", &self.agent_arguments(), Some(cgroup)));
    }

    /// Returns the exit status of the agent if it has ended.
    pub(super) fn agent_ended(&mut self) -> Option<ExitStatus> {
        self.agent.as_mut()?.0.try_wait().unwrap()
    }

    /// Lets agents that start from now on serve their health.
    pub(super) fn serve_http(&mut self) -> SocketAddr {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        *self.http.insert(free.local_addr().unwrap())
    }

    fn agent_arguments(&self) -> Vec<(&'static str, PathBuf)> {
        let (configurations, state, kubelet) = (
            self.path("configurations"),
            self.path("state"),
            self.path("kubelet"),
        );
        let mut arguments = vec![
            ("--configurations", configurations),
            ("--state", state),
            ("--kubelet-dir", kubelet),
        ];
        let http = self.http.map(|address| address.to_string().into());
        arguments.extend(http.map(|address| ("--http-address", address)));
        arguments
    }

    pub(super) async fn stop_kubelet(&mut self) {
        self.kubelet.take().unwrap().stop().await;
    }

    fn start(
        &self,
        subcommand: &str,
        arguments: &[(&str, PathBuf)],
        cgroup: Option<&Path>,
    ) -> Process {
        let log = File::create(self.path(&format!("{subcommand}.log"))).unwrap();
        let mut command = match cgroup {
            None => Command::new(&self.binary),
            Some(cgroup) => {
                let mut shell = Command::new("/bin/sh");
                let joins = "echo $$ >\"$0/cgroup.procs\" && exec \"$@\"";
                shell.args(["-c", joins]).arg(cgroup).arg(&self.binary);
                shell
            }
        };
        command.arg(subcommand).args(["--node-name", "bench"]);
        if subcommand == "agent" {
            command.arg("--standalone");
        }
        for (flag, value) in arguments {
            command.arg(flag).arg(value);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null());
        Process(child.stderr(log).spawn().unwrap())
    }

    pub(super) fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    /// Writes the Configuration whose resources are measured. Returns the time before the rename.
    pub(super) fn configure(&self, handler: &str, capacity: usize, details: &str) -> Instant {
        self.configure_as(CONFIGURATION, handler, capacity, details)
    }

    /// Writes a Configuration, in a namespace of its own. One host, which announces all services of most benches, may have half of `maxInstances`.
    pub(super) fn configure_as(
        &self,
        name: &str,
        handler: &str,
        capacity: usize,
        details: &str,
    ) -> Instant {
        let details: String = details.lines().map(|l| format!("      {l}\n")).collect();
        let manifest = format!(
            "apiVersion: akri.sh/v0
kind: Configuration
metadata:
  name: {name}
  namespace: {name}
spec:
  discoveryHandler:
    name: {handler}
    discoveryDetails: |
{details}  capacity: {capacity}
  gracePeriodSeconds: 60
  maxInstances: 2000
"
        );
        let written = self.path("configuration.yaml");
        fs::write(&written, manifest).unwrap();
        let begun = Instant::now();
        let path = self.path(&format!("configurations/{name}.yaml"));
        fs::rename(written, path).unwrap();
        begun
    }

    /// Writes a second Configuration, in another namespace.
    pub(super) fn configure_another(&self, spec: &str) {
        let manifest = format!(
            "{{apiVersion: akri.sh/v0, kind: Configuration, metadata: {{name: another, namespace: another}}, spec: {spec}}}"
        );
        let written = self.path("another.yaml");
        fs::write(&written, manifest).unwrap();
        fs::rename(written, self.path("configurations/another.yaml")).unwrap();
    }

    /// Writes a Configuration of this many debugEcho devices.
    pub(super) fn configure_devices(&self, count: usize, capacity: usize) -> Instant {
        let names: Vec<String> = (0..count).map(|n| format!("device-{n}")).collect();
        let details = format!("descriptions: [{}]\n", names.join(", "));
        self.configure("debugEcho", capacity, &details)
    }

    pub(super) fn instances(&self) -> usize {
        fs::read_dir(self.path("state/instances")).map_or(0, |entries| {
            let names = entries.map(|e| e.unwrap().file_name());
            names
                .filter(|name| !name.to_string_lossy().starts_with('.'))
                .count()
        })
    }

    /// Returns the offers by resource name without the prefix `akri.sh/`.
    pub(super) async fn offers(&self) -> BTreeMap<String, Offer> {
        let node = KubeletClient::new(&self.path("kubelet")).node().await;
        let status = node.unwrap().status.unwrap();
        let (capacity, allocatable) = (status.capacity.unwrap(), status.allocatable.unwrap());
        let number = |quantity: Option<
            &k8s_openapi::apimachinery::pkg::api::resource::Quantity,
        >| { quantity.map_or(0, |quantity| quantity.0.parse().unwrap()) };
        let offer = |(name, of): (&String, _)| {
            let offer = Offer {
                capacity: number(Some(of)),
                allocatable: number(allocatable.get(name)),
            };
            (name.trim_start_matches("akri.sh/").to_owned(), offer)
        };
        capacity.iter().map(offer).collect()
    }

    /// Waits until this many Instances and their Configuration are resources, all of them allocatable.
    pub(super) async fn until_allocatable(&self, instances: usize) -> Instant {
        let begun = Instant::now();
        loop {
            let looked = Instant::now();
            let offers = self.offers().await;
            let is_whole = |o: &&Offer| o.capacity > 0 && o.allocatable == o.capacity;
            if offers.values().filter(is_whole).count() == instances + 1 {
                return Instant::now();
            }
            self.check_patience(begun, "resources");
            // Reading a thousand resources takes some milliseconds of the cores that both processes use.
            sleep(LOOK.max(looked.elapsed() * 5)).await;
        }
    }

    /// Waits until some resource has a device that is not allocatable.
    pub(super) async fn until_unhealthy(&self) -> Instant {
        let begun = Instant::now();
        loop {
            let offers = self.offers().await;
            if offers.values().any(|o| o.allocatable < o.capacity) {
                return Instant::now();
            }
            self.check_patience(begun, "an unhealthy device");
            sleep(LOOK).await;
        }
    }

    pub(super) async fn until(&self, what: &str, condition: impl Fn() -> bool) -> Instant {
        let begun = Instant::now();
        while !condition() {
            self.check_patience(begun, what);
            sleep(LOOK).await;
        }
        Instant::now()
    }

    fn check_patience(&self, begun: Instant, what: &str) {
        if begun.elapsed() > PATIENCE {
            let log = fs::read_to_string(self.path("agent.log")).unwrap_or_default();
            let end: Vec<_> = log.lines().rev().take(20).collect();
            panic!("no {what} after {PATIENCE:?}; the agent's last lines: {end:#?}");
        }
    }

    /// Returns the sockets of the Instances' plugins, each with the id of a slot.
    pub(super) async fn plugins(&self) -> Vec<(PathBuf, String)> {
        let plugins = KubeletClient::new(&self.path("kubelet")).plugins().await;
        let of_instances = plugins.unwrap().into_iter().filter_map(|plugin| {
            let name = plugin.name.trim_start_matches("akri.sh/").to_owned();
            (name != CONFIGURATION).then(|| (PathBuf::from(plugin.endpoint), name))
        });
        of_instances.collect()
    }

    pub(super) fn agent_memory(&self) -> Memory {
        let pid = self.agent.as_ref().unwrap().0.id();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name)).unwrap();
            let kib: f64 = line.trim().trim_end_matches(" kB").parse().unwrap();
            kib * 1024.0 / 1e6
        };
        Memory {
            now: field("VmRSS:"),
            most: field("VmHWM:"),
        }
    }
}

/// Returns the id of an Instance's slot, as the kubelet sends it.
pub(super) fn slot(instance: &str, index: u32) -> String {
    SlotId::new(instance, index).to_string()
}

struct Process(Child);

impl Process {
    /// Stops the process as systemd would.
    async fn stop(mut self) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        let begun = Instant::now();
        while begun.elapsed() < STOPS_WITHIN {
            if let Some(status) = self.0.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            sleep(LOOK).await;
        }
        panic!("it does not stop");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that has ended is not an error.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
