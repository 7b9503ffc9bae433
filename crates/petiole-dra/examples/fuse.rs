//! A driver: `fuse KUBELET_ROOT NODE CDI_FOLDER DEVICE POD_UID` publishes four devices of a node, `fuse-0` to `fuse-3`, which all are
//! the device node DEVICE of the machine, such as `/dev/fuse`. A Pod gets it as `/dev/fuse`, and its name in `FUSE_DEVICE`.
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, DeviceTaint};
use petiole_base::files;
use petiole_dra::{
    Driver, Failure, Plugin, Settings,
    book::HeldDevice,
    claim::{Claim, ClaimKey},
    health::{DeviceHealth, Health},
    slices::{Pool, Publisher, Reach, Scope},
};
use serde_json::json;
use std::{
    env, fs,
    future::pending,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::sleep,
};
use tokio_util::sync::CancellationToken;

const DRIVER: &str = "fuse.example.com";
/// The vendor and the class of the CDI devices.
const KIND: &str = "example.com/fuse";

struct Fuse {
    cdi: PathBuf,
    device: String,
}

impl Fuse {
    fn file(&self, claim: &ClaimKey) -> PathBuf {
        let name = format!("example.com-fuse-{}.json", claim.uid);
        self.cdi.join(name)
    }
}

impl Driver for Fuse {
    async fn prepare(&self, claim: &Claim) -> Result<Vec<Vec<String>>, Failure> {
        let name = |n: usize| format!("{}-{n}", claim.key.uid);
        let allocated = claim.devices.iter().enumerate();
        let devices = allocated.map(|(n, allocated)| {
            json!({"name": name(n), "containerEdits": {
                "env": [format!("FUSE_DEVICE={}", allocated.device)],
                "deviceNodes": [{"path": "/dev/fuse", "hostPath": self.device}],
            }})
        });
        let devices: Vec<_> = devices.collect();
        // containerd reads this version of CDI since 1.7, and CRI-O since 1.26.
        let content = json!({"cdiVersion": "0.5.0", "kind": KIND, "devices": devices});
        fs::create_dir_all(&self.cdi)?;
        let path = self.file(&claim.key);
        files::write_atomically(&path, content.to_string().as_bytes(), 0o644)?;
        let ids = (0..devices.len()).map(|n| vec![format!("{KIND}={}", name(n))]);
        Ok(ids.collect())
    }

    async fn unprepare(&self, claim: &ClaimKey, _: &[HeldDevice]) -> Result<(), Failure> {
        Ok(files::remove(&self.file(claim))?)
    }
}

/// Returns the devices for the scheduler, and for the status of their Pods. While the device node is away, no Pod gets one.
fn look(node: &str, path: &str) -> (Vec<Pool>, Vec<DeviceHealth>) {
    let is_there = Path::new(path).exists();
    let gone = DeviceTaint {
        key: format!("{DRIVER}/gone"),
        effect: "NoSchedule".to_owned(),
        ..DeviceTaint::default()
    };
    let index = |n| DeviceAttribute {
        int: Some(n),
        ..DeviceAttribute::default()
    };
    let devices = (0..4).map(|n: i64| Device {
        name: format!("fuse-{n}"),
        attributes: Some([("index".to_owned(), index(n))].into()),
        taints: (!is_there).then(|| vec![gone.clone()]),
        ..Device::default()
    });
    let health = (0..4).map(|n| DeviceHealth {
        pool: node.to_owned(),
        device: format!("fuse-{n}"),
        health: if is_there {
            Health::Healthy
        } else {
            Health::Unhealthy
        },
        valid_for: Duration::from_secs(30),
        message: String::new(),
    });
    let pool = Pool {
        name: node.to_owned(),
        reach: Reach::AllNodes,
        devices: devices.collect(),
    };
    (vec![pool], health.collect())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt().init();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [root, node, cdi, device, pod] = arguments.as_slice() else {
        return Err("usage: fuse KUBELET_ROOT NODE CDI_FOLDER DEVICE POD_UID".into());
    };
    let (pools, health) = look(node, device);
    let (pools, last_pools) = watch::channel(pools);
    let (health, last_health) = watch::channel(health);
    let settings = Settings {
        driver: DRIVER.to_owned(),
        kubelet_root: root.into(),
        pod_uid: Some(pod.clone()),
    };
    let driver = Fuse {
        cdi: cdi.into(),
        device: device.clone(),
    };
    let client = kube::Client::try_default().await?;
    let plugin = Plugin::new(settings, driver, client.clone())?.with_health(last_health);
    let publisher = Publisher::new(client, DRIVER.into(), Scope::Node(node.clone()), last_pools);
    let shutdown = CancellationToken::new();
    let follow = async {
        loop {
            sleep(Duration::from_secs(1)).await;
            let (seen, report) = look(node, device);
            health.send_replace(report);
            pools.send_if_modified(|known| std::mem::replace(known, seen.clone()) != seen);
        }
    };
    let mut terminated = signal(SignalKind::terminate())?;
    let end = async {
        terminated.recv().await;
        shutdown.cancel();
        pending().await
    };
    tokio::select! {
        served = plugin.run(shutdown.clone()) => Ok(served?),
        () = publisher.run() => Ok(()),
        () = follow => Ok(()),
        () = end => Ok(()),
    }
}
