//! A node's folder with a driver, and the calls of a kubelet.
use crate::api::Api;
use petiole_dra::{
    Driver, Failure, Plugin, Settings,
    book::HeldDevice,
    claim::{Claim, ClaimKey},
    health::DeviceHealth,
    plugin::Registered,
    proto::dra::{
        Claim as SentClaim, Device, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest,
        dra_plugin_client::DraPluginClient,
    },
};
use petiole_kubelet_api::uds;
use std::{
    collections::BTreeMap,
    future::pending,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{sync::watch, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// A driver that writes down its calls. The names of claims say what it does.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn record(&self, call: String) {
        self.0.lock().unwrap().push(call);
    }
}

impl Driver for Recorder {
    async fn prepare(&self, claim: &Claim) -> Result<Vec<Vec<String>>, Failure> {
        self.record(format!("prepare {}", claim.key.uid));
        match &*claim.key.name {
            "broken" => Err("out of order".into()),
            "panicking" => panic!("as the test wants"),
            "endless" => pending().await,
            "short" => Ok(vec![]),
            _ => Ok(claim
                .devices
                .iter()
                .map(|d| vec![format!("v/c={}", d.device)])
                .collect()),
        }
    }

    async fn unprepare(&self, claim: &ClaimKey, devices: &[HeldDevice]) -> Result<(), Failure> {
        let names: Vec<&str> = devices.iter().map(|device| &*device.device).collect();
        self.record(format!("unprepare {} {}", claim.uid, names.join(",")));
        match &*claim.name {
            "stuck" => Err("still in use".into()),
            _ => Ok(()),
        }
    }
}

/// A running driver.
pub(crate) struct Running {
    pub(crate) recorder: Recorder,
    pub(crate) registered: watch::Receiver<Registered>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) task: JoinSet<io::Result<()>>,
}

impl Running {
    pub(crate) async fn end(mut self) {
        self.shutdown.cancel();
        let ended = timeout(LIMIT, self.task.join_next()).await.unwrap();
        ended.unwrap().unwrap().unwrap();
    }

    /// Waits until it has failed.
    pub(crate) async fn failed(mut self) -> io::Error {
        let ended = timeout(LIMIT, self.task.join_next()).await.unwrap();
        ended.unwrap().unwrap().unwrap_err()
    }
}

/// Starts a driver, and waits until its sockets are there.
pub(crate) async fn start(
    root: &Path,
    api: &Api,
    pod_uid: Option<&str>,
    health: Option<watch::Receiver<Vec<DeviceHealth>>>,
) -> Running {
    let recorder = Recorder::default();
    let settings = Settings {
        driver: "d.example".to_owned(),
        kubelet_root: root.to_owned(),
        pod_uid: pod_uid.map(str::to_owned),
    };
    let mut plugin = Plugin::new(settings, recorder.clone(), api.client()).unwrap();
    if let Some(health) = health {
        plugin = plugin.with_health(health);
    }
    let shutdown = CancellationToken::new();
    let registered = plugin.registered();
    let mut task = JoinSet::new();
    task.spawn(plugin.run(shutdown.clone()));
    let registration = registration_socket(root, pod_uid);
    timeout(LIMIT, async {
        while uds::dial(&registration).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    Running {
        recorder,
        registered,
        shutdown,
        task,
    }
}

pub(crate) fn socket(root: &Path) -> PathBuf {
    root.join("plugins/d.example/dra.sock")
}

pub(crate) fn registration_socket(root: &Path, pod_uid: Option<&str>) -> PathBuf {
    let of_pod = pod_uid.map(|uid| format!("-{uid}")).unwrap_or_default();
    root.join(format!("plugins_registry/d.example{of_pod}-reg.sock"))
}

/// Returns claims of the namespace `default` by their names and UIDs.
pub(crate) fn claims(claims: &[(&str, &str)]) -> Vec<SentClaim> {
    let claim = |(name, uid): &(&str, &str)| SentClaim {
        namespace: "default".to_owned(),
        name: (*name).to_owned(),
        uid: (*uid).to_owned(),
    };
    claims.iter().map(claim).collect()
}

/// Returns the CDI names of each claim, or its error.
pub(crate) async fn prepare(
    root: &Path,
    wanted: &[(&str, &str)],
) -> BTreeMap<String, Result<Vec<Device>, String>> {
    let mut client = DraPluginClient::new(uds::dial(&socket(root)).await.unwrap());
    let claims = claims(wanted);
    let response = client.node_prepare_resources(NodePrepareResourcesRequest { claims });
    let response = timeout(LIMIT, response)
        .await
        .unwrap()
        .unwrap()
        .into_inner();
    let claims = response.claims.into_iter();
    claims
        .map(|(uid, c)| {
            (
                uid,
                if c.error.is_empty() {
                    Ok(c.devices)
                } else {
                    Err(c.error)
                },
            )
        })
        .collect()
}

/// Returns the error of each claim, which is empty if there is none.
pub(crate) async fn unprepare(root: &Path, wanted: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut client = DraPluginClient::new(uds::dial(&socket(root)).await.unwrap());
    let claims = claims(wanted);
    let response = client.node_unprepare_resources(NodeUnprepareResourcesRequest { claims });
    let response = timeout(LIMIT, response)
        .await
        .unwrap()
        .unwrap()
        .into_inner();
    let claims = response.claims.into_iter();
    claims.map(|(uid, claim)| (uid, claim.error)).collect()
}
