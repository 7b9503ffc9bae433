//! A driver: `fuse KUBELET_ROOT NODE CDI_FOLDER DEVICE [POD_UID]` publishes four devices of a node, `fuse-0` to `fuse-3`, which all are
//! the device node DEVICE of the machine, such as `/dev/fuse`. A Pod gets it as `/dev/fuse`, with its number in `FUSE_DEVICE`.
use petiole_dra::{
    Driver, Failure, Plugin, Settings,
    book::HeldDevice,
    cdi::{DeviceNode, Edits, Folder},
    claim::{Claim, ClaimKey},
    health::{DeviceHealth, Health},
    resource::{Device, Taint, TaintEffect},
    slices::{Pool, Publisher, Scope},
};
use std::{env, io, path::Path, time::Duration};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::sleep,
};
use tokio_util::sync::CancellationToken;

const DRIVER: &str = "fuse.example.com";

struct Fuse {
    files: Folder,
    device: String,
}

impl Driver for Fuse {
    async fn prepare(&self, claim: &Claim) -> Result<Vec<Vec<String>>, Failure> {
        let edits = claim.devices.iter().map(|allocated| Edits {
            env: vec![format!("FUSE_DEVICE={}", allocated.device)],
            device_nodes: vec![DeviceNode {
                path: "/dev/fuse".to_owned(),
                host_path: Some(self.device.clone()),
                ..DeviceNode::default()
            }],
            mounts: vec![],
        });
        let ids = self
            .files
            .write(&claim.key.uid, &edits.collect::<Vec<_>>())?;
        Ok(ids.into_iter().map(|id| vec![id]).collect())
    }

    async fn unprepare(&self, claim: &ClaimKey, _: &[HeldDevice]) -> Result<(), Failure> {
        Ok(self.files.remove(&claim.uid)?)
    }
}

/// Returns the devices for the scheduler. Without the device node, nobody gets a new one.
fn pool(node: &str, is_there: bool) -> Pool {
    let gone = Taint {
        key: format!("{DRIVER}/gone"),
        value: String::new(),
        effect: TaintEffect::NoSchedule,
        time_added: None,
    };
    let device = |n: i64| Device {
        name: format!("fuse-{n}"),
        attributes: [("index".to_owned(), n.into())].into(),
        taints: if is_there { vec![] } else { vec![gone.clone()] },
        ..Device::default()
    };
    Pool {
        name: node.to_owned(),
        nodes: None,
        devices: (0..4).map(device).collect(),
    }
}

/// Returns the devices for the status of their Pods.
fn health(pool: &Pool, is_there: bool) -> Vec<DeviceHealth> {
    let devices = pool.devices.iter().map(|device| DeviceHealth {
        pool: pool.name.clone(),
        device: device.name.clone(),
        health: if is_there {
            Health::Healthy
        } else {
            Health::Unhealthy
        },
        valid_for: Duration::from_secs(30),
        message: String::new(),
    });
    devices.collect()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt().init();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [root, node, cdi, device, pod @ ..] = arguments.as_slice() else {
        return Err("usage: fuse KUBELET_ROOT NODE CDI_FOLDER DEVICE [POD_UID]".into());
    };
    let files = Folder {
        path: cdi.into(),
        vendor: "example.com".to_owned(),
        class: "fuse".to_owned(),
    };
    let look = || {
        let is_there = Path::new(device).exists();
        (pool(node, is_there), is_there)
    };
    let (first, is_there) = look();
    let (reports, last_report) = watch::channel(health(&first, is_there));
    let (pools, last_pools) = watch::channel(vec![first]);
    let settings = Settings {
        driver: DRIVER.to_owned(),
        kubelet_root: root.into(),
        pod_uid: pod.first().cloned(),
    };
    let client = kube::Client::try_default().await?;
    let fuse = Fuse {
        files,
        device: device.clone(),
    };
    let plugin = Plugin::new(settings, fuse, client.clone())?.with_health(last_report);
    let publisher = Publisher::new(
        client,
        DRIVER.to_owned(),
        Scope::Node(node.clone()),
        last_pools,
    );
    let shutdown = CancellationToken::new();
    let watch_device = async {
        loop {
            sleep(Duration::from_secs(1)).await;
            let (pool, is_there) = look();
            reports.send_replace(health(&pool, is_there));
            pools.send_if_modified(|known| std::mem::replace(known, vec![pool.clone()]) != [pool]);
        }
    };
    let mut terminated = signal(SignalKind::terminate())?;
    let serve = async {
        tokio::join!(
            plugin.run(shutdown.clone()),
            publisher.run(shutdown.clone())
        )
        .0
    };
    tokio::pin!(serve);
    let ended: io::Result<()> = tokio::select! {
        served = &mut serve => served,
        () = watch_device => Ok(()),
        _ = terminated.recv() => {
            shutdown.cancel();
            serve.await
        }
    };
    Ok(ended?)
}
