//! Defines the measurements, and the budget of each.
use super::{
    hostile,
    mdns_publisher::{Announced, Publisher},
    node::{Node, slot},
    report::{Row, Unit},
};
use futures::future::LocalBoxFuture;
use petiole_kubelet_api::{
    device_plugin::{
        AllocateRequest, ContainerAllocateRequest, device_plugin_client::DevicePluginClient,
    },
    uds,
};
use std::{path::PathBuf, time::Duration};
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;

/// The time that a process gets to finish its work after the last device has appeared.
const SETTLES: Duration = Duration::from_secs(2);

pub(super) struct Measurement {
    pub(super) name: &'static str,
    /// The name, unit and budget of each value that `run` returns.
    values: &'static [(&'static str, Unit, Option<f64>)],
    pub(super) run: fn(PathBuf) -> LocalBoxFuture<'static, Vec<f64>>,
}

impl Measurement {
    pub(super) fn rows(&self) -> Vec<Row> {
        let row = |&(what, unit, budget)| Row {
            what,
            unit,
            budget,
            name: self.name,
            values: vec![],
        };
        self.values.iter().map(row).collect()
    }
}

#[expect(clippy::too_many_lines, reason = "it is a table")]
pub(super) fn all() -> Vec<Measurement> {
    use Unit::{Kilobytes, Megabytes, Milliseconds, Seconds};
    vec![
        Measurement {
            name: "idle",
            values: &[("agent's memory, idle", Megabytes, Some(14.0))],
            run: |binary| Box::pin(idle(binary)),
        },
        Measurement {
            name: "one-device",
            values: &[("1 device: Configuration to allocatable", Seconds, Some(0.5))],
            run: |binary| Box::pin(async { vec![devices(binary, 1).await.seconds] }),
        },
        Measurement {
            name: "100-devices",
            values: &[
                (
                    "100 devices: Configuration to all allocatable",
                    Seconds,
                    Some(0.3),
                ),
                ("agent's memory with 100 Instances", Megabytes, Some(20.0)),
                ("its peak", Megabytes, None),
            ],
            run: |binary| Box::pin(async { devices(binary, 100).await.first_three() }),
        },
        Measurement {
            name: "1000-devices",
            values: &[
                (
                    "1000 devices: Configuration to all allocatable",
                    Seconds,
                    Some(3.0),
                ),
                ("agent's memory with 1000 Instances", Megabytes, Some(56.0)),
                ("its peak", Megabytes, None),
                ("memory an Instance, of 1000", Kilobytes, None),
            ],
            run: |binary| Box::pin(thousand(binary)),
        },
        Measurement {
            name: "services",
            values: &[
                (
                    "300 running mDNS services: agent's start to 300 Instances",
                    Seconds,
                    Some(1.0),
                ),
                ("the same, to all allocatable", Seconds, Some(3.0)),
            ],
            run: |binary| Box::pin(services(binary)),
        },
        Measurement {
            name: "goodbye",
            values: &[(
                "mDNS goodbye to unhealthy in the kubelet",
                Seconds,
                Some(1.5),
            )],
            run: |binary| Box::pin(goodbye(binary)),
        },
        Measurement {
            name: "allocate",
            values: &[
                (
                    "Allocate, 2000 slots of 100 Instances: p50",
                    Milliseconds,
                    None,
                ),
                ("p99", Milliseconds, Some(5.0)),
                ("slowest", Milliseconds, None),
            ],
            run: |binary| Box::pin(allocate(binary)),
        },
        Measurement {
            name: "hostile",
            values: &[
                (
                    "Allocate, beside 99 hostile Configurations and 4096 services that change all the time: p50",
                    Milliseconds,
                    None,
                ),
                ("p99", Milliseconds, Some(20.0)),
                ("slowest", Milliseconds, None),
                ("/healthz at the same time: p50", Milliseconds, None),
                ("p99", Milliseconds, Some(100.0)),
                ("slowest", Milliseconds, None),
            ],
            run: |binary| Box::pin(hostile::run(binary)),
        },
        Measurement {
            name: "kubelet-restart",
            values: &[(
                "kubelet restart with 100 Instances: kubelet.sock to all allocatable",
                Seconds,
                Some(1.5),
            )],
            run: |binary| Box::pin(kubelet_restart(binary)),
        },
        Measurement {
            name: "device-goes",
            values: &[(
                "a device of 100 goes: Configuration to unhealthy in the kubelet",
                Seconds,
                Some(0.5),
            )],
            run: |binary| Box::pin(device_goes(binary)),
        },
    ]
}

struct Devices {
    seconds: f64,
    now: f64,
    most: f64,
}

impl Devices {
    fn first_three(&self) -> Vec<f64> {
        vec![self.seconds, self.now, self.most]
    }
}

async fn idle(binary: PathBuf) -> Vec<f64> {
    let node = Node::running(binary).await;
    sleep(SETTLES).await;
    vec![node.agent_memory().now]
}

async fn devices(binary: PathBuf, count: usize) -> Devices {
    let node = Node::running(binary).await;
    let begun = node.configure_devices(count, 1);
    let seconds = (node.until_allocatable(count).await - begun).as_secs_f64();
    sleep(SETTLES).await;
    let memory = node.agent_memory();
    Devices {
        seconds,
        now: memory.now,
        most: memory.most,
    }
}

async fn thousand(binary: PathBuf) -> Vec<f64> {
    let node = Node::running(binary.clone()).await;
    sleep(SETTLES).await;
    let idle = node.agent_memory().now;
    drop(node);
    let devices = devices(binary, 1000).await;
    let each = (devices.now - idle) * 1e3 / 1000.0;
    [devices.first_three(), vec![each]].concat()
}

/// Returns a service type for this run only, and services of it.
fn announced(count: usize) -> (String, Vec<Announced>) {
    let kind = format!("_p{}bench._tcp", std::process::id());
    let services = (0..count).map(|n| Announced::new(&format!("service {n}"), &kind));
    (kind.clone(), services.collect())
}

pub(super) fn zeroconf(kind: &str) -> String {
    format!("kind: {kind}\ninterfaces: {{allow: [lo]}}\n")
}

async fn services(binary: PathBuf) -> Vec<f64> {
    let (kind, services) = announced(300);
    let _publisher = Publisher::start(services);
    let mut node = Node::new(binary);
    node.start_kubelet().await;
    node.configure("zeroconf", 1, &zeroconf(&kind));
    let begun = Instant::now();
    node.start_agent();
    let instances = node.until("Instances", || node.instances() == 300).await;
    let allocatable = node.until_allocatable(300).await;
    vec![
        (instances - begun).as_secs_f64(),
        (allocatable - begun).as_secs_f64(),
    ]
}

async fn goodbye(binary: PathBuf) -> Vec<f64> {
    let (kind, services) = announced(10);
    let leaves = services[3].fullname();
    let publisher = Publisher::start(services);
    let node = Node::running(binary).await;
    node.configure("zeroconf", 1, &zeroconf(&kind));
    node.until_allocatable(10).await;
    let begun = Instant::now();
    publisher.goodbye(&leaves);
    vec![(node.until_unhealthy().await - begun).as_secs_f64()]
}

/// A connection to the plugin of an Instance.
pub(super) struct Plugin {
    client: DevicePluginClient<Channel>,
    instance: String,
}

impl Plugin {
    /// Claims a slot. Returns the time that it took.
    pub(super) async fn claim(&mut self, index: u32) -> Duration {
        let container = ContainerAllocateRequest {
            devices_ids: vec![slot(&self.instance, index)],
        };
        let request = AllocateRequest {
            container_requests: vec![container],
        };
        let begun = Instant::now();
        self.client.allocate(request).await.unwrap();
        begun.elapsed()
    }
}

/// Connects to the plugins of all Instances.
pub(super) async fn claims(node: &Node) -> Vec<Plugin> {
    let mut plugins = vec![];
    for (socket, instance) in node.plugins().await {
        let client = DevicePluginClient::new(uds::dial(&socket).await.unwrap());
        plugins.push(Plugin { client, instance });
    }
    plugins
}

async fn allocate(binary: PathBuf) -> Vec<f64> {
    const CAPACITY: u32 = 20;
    let node = Node::running(binary).await;
    node.configure_devices(100, CAPACITY as usize);
    node.until_allocatable(100).await;
    sleep(SETTLES).await;
    let mut plugins = claims(&node).await;
    let mut times = vec![];
    for index in 0..CAPACITY {
        for plugin in &mut plugins {
            times.push(Unit::Milliseconds.of(plugin.claim(index).await));
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    vec![at(50), at(99), at(100)]
}

async fn kubelet_restart(binary: PathBuf) -> Vec<f64> {
    let mut node = Node::running(binary).await;
    node.configure_devices(100, 1);
    node.until_allocatable(100).await;
    sleep(SETTLES).await;
    node.stop_kubelet().await;
    sleep(SETTLES).await;
    let begun = node.start_kubelet().await;
    vec![(node.until_allocatable(100).await - begun).as_secs_f64()]
}

async fn device_goes(binary: PathBuf) -> Vec<f64> {
    let node = Node::running(binary).await;
    node.configure_devices(100, 1);
    node.until_allocatable(100).await;
    sleep(SETTLES).await;
    let begun = node.configure_devices(99, 1);
    vec![(node.until_unhealthy().await - begun).as_secs_f64()]
}
