//! `petiole demo`: kubelet, agent, services and brokers in one process, and a view of them.
//!
//! The parts are the real ones and meet on the wire: the agent gets its Configurations from a folder and registers with
//! the kubelet's socket, the services are announced by multicast, the brokers are static Pods. The view reads what
//! anybody could read.
#![expect(clippy::print_stdout, reason = "the story is told on stdout")]
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
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt as _,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

/// The node of the demo.
const NODE: &str = "laptop";
/// How often the sockets are read. Short, because the view is there to show how fast things happen.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Real kubelets wait 5 min before they drop the resource of a plugin that is gone.
const ENDPOINT_GRACE: Duration = Duration::from_secs(5);
const GRACE_PERIOD_SECONDS: i64 = 5;
/// An Instance goes when its broker's slot is free, which takes two looks so far apart; 10 s elsewhere.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);
/// The events that are kept for the view.
const EVENTS_MAX: usize = 500;

/// The Configurations of the demo, as they are in `examples/`.
const CONFIGURATIONS: [(&str, &str); 2] = [
    (
        "zeroconf-http.yaml",
        include_str!("../../examples/zeroconf-http.yaml"),
    ),
    (
        "zeroconf-rtsp.yaml",
        include_str!("../../examples/zeroconf-rtsp.yaml"),
    ),
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
    let removed = fs::remove_dir_all(&home.root).with_context(|| home.root.display().to_string());
    result.and(removed)
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
    let agent = agent::run(
        home.agent(),
        home.store()?,
        Handlers::new(handlers::builtin()),
        stop.clone(),
    );
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
        // Made here and by nobody else: what stands in its manifests is run.
        (DirBuilder::new().mode(0o700).create(&root))
            .with_context(|| root.display().to_string())?;
        let home = Self { root };
        for folder in [&home.configurations(), &home.manifests()] {
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

    fn kubelet(&self) -> kubelet::Settings {
        kubelet::Settings {
            endpoint_grace: ENDPOINT_GRACE,
            ..kubelet::Settings::new(&self.root, self.manifests(), NODE)
        }
    }

    fn agent(&self) -> agent::Settings {
        agent::Settings {
            node_name: NODE.to_owned(),
            resource_prefix: api::names::GROUP.to_owned(),
            resource_prefixes: vec![api::names::GROUP.to_owned()],
            nodes: None,
            plugin_folder: self.root.join("device-plugins"),
            pod_resources_socket: self.root.join("pod-resources/kubelet.sock"),
            own_pod: None,
            kubelet_settles: agent::KUBELET_SETTLES,
            names_are_kept: agent::NAMES_ARE_KEPT,
            between_looks: BETWEEN_LOOKS,
            max_instances: 100,
            render_brokers: Some(self.manifests()),
            http_address: None,
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

/// What the views share.
struct Demo {
    publisher: Publisher,
    observer: Observer,
    restarts: watch::Sender<u64>,
    started: Instant,
    snapshot: Snapshot,
    events: Vec<(Duration, String)>,
}

impl Demo {
    /// Takes a snapshot, and notes what changed since the last one.
    async fn look(&mut self) {
        let snapshot = self.observer.look().await;
        let now = self.started.elapsed();
        let news = plan::events(&self.snapshot, &snapshot)
            .into_iter()
            .map(|event| (now, event));
        self.events.extend(news);
        self.snapshot = snapshot;
    }

    fn restart_kubelet(&mut self) {
        self.note("you restarted the kubelet".to_owned());
        self.restarts.send_modify(|restarts| *restarts += 1);
    }

    fn note(&mut self, event: String) {
        self.events.push((self.started.elapsed(), event));
    }

    /// The live table, until somebody presses `q`.
    async fn live(&mut self) -> anyhow::Result<()> {
        let mut screen = Screen::open()?;
        let mut keys = screen::keys();
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.look().await;
            let surplus = self.events.len().saturating_sub(EVENTS_MAX);
            self.events.drain(..surplus);
            screen.draw(&View {
                snapshot: &self.snapshot,
                samples: self.publisher.samples(),
                events: &self.events,
            })?;
            tokio::select! {
                _ = looks.tick() => {}
                key = keys.recv() => match key {
                    Some(Key::Quit) | None => return Ok(()),
                    Some(Key::RestartKubelet) => self.restart_kubelet(),
                    Some(Key::Toggle(n)) => self.toggle(n)?,
                }
            }
        }
    }

    fn toggle(&mut self, n: usize) -> anyhow::Result<()> {
        self.publisher.toggle(n)?;
        if let Some((sample, is_announced)) = self.publisher.samples().get(n).cloned() {
            let what = if is_announced {
                "brought back"
            } else {
                "took away"
            };
            self.note(format!("you {what} {}", sample.name));
        }
        Ok(())
    }

    /// A line for each event, until somebody stops it.
    async fn plain(&mut self) -> anyhow::Result<()> {
        println!(
            "petiole demo: services on the network become Instances, resources of a node, and variables of a process"
        );
        println!(
            "(no cluster: Pods are plain processes; endpoint grace 5 s instead of 5 min, gracePeriodSeconds 5 instead of 60, free slots released after 2 s instead of 10)"
        );
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            self.look().await;
            for (at, event) in self.events.drain(..) {
                println!("{:>7.2} s  {event}", at.as_secs_f64());
            }
        }
    }
}

/// A Configuration that lets go of a vanished device after 5 s, so that one can watch it happen.
fn hurried(text: &str) -> anyhow::Result<String> {
    let mut document: serde_json::Value = serde_saphyr::from_str(text)?;
    document["spec"]["gracePeriodSeconds"] = GRACE_PERIOD_SECONDS.into();
    Ok(serde_saphyr::to_string(&document)?)
}
