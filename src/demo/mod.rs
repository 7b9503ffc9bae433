//! `petiole demo`: kubelet, agent, services and brokers in one process, and a view of them.
//!
//! The parts are the real ones and meet on the wire: the agent gets its Configurations from a folder and registers with
//! the kubelet's socket, the services are announced by multicast, the brokers are static Pods. The view reads what
//! anybody could read.
mod observe;
mod plan;
mod publisher;
mod screen;
mod snapshot;
mod story;
mod table;

use crate::{
    agent, api,
    discovery::{handlers, session::Handlers},
    kubelet,
    store::folder::{self, FolderStore},
};
use anyhow::Context as _;
use futures::FutureExt as _;
use observe::Observer;
use publisher::{Publisher, samples};
use screen::{Key, Screen, View};
use snapshot::Snapshot;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

/// The node of the demo.
const NODE: &str = "laptop";
/// How often the sockets are read. Short, because the view is there to show how fast things happen.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Real kubelets wait 5 min before they drop the resource of a plugin that is gone.
const ENDPOINT_GRACE: Duration = Duration::from_secs(5);
const GRACE_PERIOD_SECONDS: &str = "gracePeriodSeconds: 5";
/// The events that are kept for the view.
const EVENTS_MAX: usize = 500;

/// The Configurations of the demo, as they are in `examples/`.
const CONFIGURATIONS: [(&str, &str); 2] = [
    ("zeroconf-http.yaml", include_str!("../../examples/zeroconf-http.yaml")),
    ("zeroconf-rtsp.yaml", include_str!("../../examples/zeroconf-rtsp.yaml")),
];

/// How the demo shows itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A live table, with keys.
    Screen,
    /// A line for each event.
    Plain,
    /// The whole story once, each step with its time.
    Once,
}

/// Runs until `shutdown`, the key `q`, or the end of the story. Leaves nothing behind.
pub async fn run(mode: Mode, shutdown: CancellationToken) -> anyhow::Result<()> {
    let home = Home::create()?;
    let result = run_in(&home, mode, shutdown).await;
    fs::remove_dir_all(&home.root).with_context(|| home.root.display().to_string())?;
    result
}

async fn run_in(home: &Home, mode: Mode, shutdown: CancellationToken) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let (restarts, restarted) = watch::channel(0_u64);
    let mut demo = Demo {
        publisher: Publisher::new(samples())?,
        observer: Observer::new(&home.root, &home.state()),
        restarts,
        started: Instant::now(),
        snapshot: Snapshot::default(),
        events: vec![],
    };
    demo.publisher.announce_all()?;
    let agent = agent::run(home.agent(), home.store()?, Handlers::new(handlers::builtin()), stop.clone());
    let kubelets = run_kubelets(home.kubelet(), restarted, stop.clone());
    let view = async {
        let result = tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            result = async {
                match mode {
                    Mode::Screen => demo.live().await,
                    Mode::Plain => demo.plain().await,
                    Mode::Once => story::tell(&mut demo).await,
                }
            } => result,
        };
        stop.cancel();
        // Goodbyes go out before the process ends.
        drop(demo);
        result
    };
    let (view, agent, kubelets) = tokio::join!(
        view,
        agent.inspect(|ended| report("agent", ended, &stop)),
        kubelets.inspect(|ended| report("kubelet", ended, &stop)),
    );
    view.and(agent).and(kubelets)
}

/// A part that ends unasked ends the demo.
fn report(part: &str, ended: &anyhow::Result<()>, stop: &CancellationToken) {
    if let Err(e) = ended {
        tracing::error!("{part}: {e:#}");
    }
    stop.cancel();
}

/// One kubelet after another on the same folder, the next at each change of `restarts`.
async fn run_kubelets(
    settings: kubelet::Settings,
    mut restarts: watch::Receiver<u64>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    while !stop.is_cancelled() {
        let this = stop.child_token();
        let kubelet = kubelet::run(settings.clone(), this.clone());
        tokio::pin!(kubelet);
        tokio::select! {
            ended = &mut kubelet => return ended,
            _ = restarts.changed() => {
                this.cancel();
                kubelet.await?;
            }
        }
    }
    Ok(())
}

/// The folders of a demo.
struct Home {
    root: PathBuf,
}

impl Home {
    /// A new folder with the Configurations in it, which wait less than usual.
    fn create() -> anyhow::Result<Self> {
        let root = std::env::temp_dir().join(format!("petiole-demo-{}", std::process::id()));
        let home = Self { root };
        for folder in [&home.root, &home.configurations(), &home.manifests()] {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        for (name, text) in CONFIGURATIONS {
            let text = hurried(text).with_context(|| name.to_owned())?;
            let path = home.configurations().join(name);
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        Ok(home)
    }

    fn configurations(&self) -> PathBuf {
        self.root.join("configurations")
    }

    fn manifests(&self) -> PathBuf {
        self.root.join("manifests")
    }

    fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    fn agent(&self) -> agent::Settings {
        agent::Settings {
            node_name: NODE.to_owned(),
            resource_prefix: api::names::GROUP.to_owned(),
            plugin_folder: self.root.join("device-plugins"),
            pod_resources_socket: self.root.join("pod-resources/kubelet.sock"),
            kubelet_settles: Duration::from_secs(60),
            max_instances: 100,
            render_brokers: Some(self.manifests()),
        }
    }

    fn store(&self) -> anyhow::Result<Arc<FolderStore>> {
        let store = FolderStore::open(folder::Settings {
            node_name: NODE.to_owned(),
            configurations: self.configurations(),
            state: self.state(),
        })?;
        Ok(Arc::new(store))
    }
}
