//! Runs `petiole demo`: a kubelet, an agent, services and brokers in one process, and a view of them.
//!
//! The parts are the real ones, and they communicate over their usual protocols. The agent reads its Configurations
//! from a folder and registers at the kubelet's socket, the services are announced by multicast, and the brokers are
//! static Pods. The view is the one of `petiole top`, and reads only what any other program could read.
mod home;
mod plan;
mod publisher;
mod scenario;
mod screen;
mod seen;
mod state;
mod views;

use crate::{
    agent,
    discovery::{handlers, session::Handlers},
};
use anyhow::Context as _;
use futures::FutureExt as _;
use home::Home;
use publisher::Publisher;
use state::{Demo, Print};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A live table that is controlled by keys.
    Screen,
    /// One line per event.
    Plain,
    /// The whole scenario once, each step with its time.
    Once,
}

/// Runs until `shutdown`, the key `q`, or the end of the scenario. It removes all its files.
pub async fn run(mode: Mode, print: Print, shutdown: CancellationToken) -> anyhow::Result<()> {
    let folder = home::folder()?;
    let home = Home::create(folder.path())?;
    let result = run_in(&home, mode, print, shutdown).await;
    result.and(folder.close().context("files of the demo are left"))
}

async fn run_in(
    home: &Home,
    mode: Mode,
    print: Print,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let (restarts, restarts_rx) = watch::channel(0_u64);
    let mut demo = Demo::new(print, Publisher::start()?, home.clone(), restarts);
    let agent = agent::run(
        home.agent(),
        home.store()?,
        Handlers::new(handlers::builtin()),
        stop.clone(),
    );
    let kubelets = run_kubelets(home.kubelet(), restarts_rx, stop.clone());
    let view = async {
        let view = Box::pin(async {
            match mode {
                Mode::Screen => views::live(&mut demo).await,
                Mode::Plain => views::plain(&mut demo).await,
                Mode::Once => scenario::run(&mut demo).await,
            }
        });
        let result = shutdown.run_until_cancelled(view).await;
        stop.cancel();
        // The services say goodbye before the process ends.
        drop(demo);
        result.unwrap_or(Ok(()))
    };
    let (view, agent, kubelets) = tokio::join!(
        view,
        agent.inspect(|ended| report("agent", ended, &stop)),
        kubelets.inspect(|ended| report("kubelet", ended, &stop)),
    );
    view.and(agent).and(kubelets)
}

/// Ends the demo if one of its parts ends by itself.
fn report(part: &str, ended: &anyhow::Result<()>, stop: &CancellationToken) {
    if let Err(e) = ended {
        tracing::error!("{part}: {e:#}");
    }
    stop.cancel();
}

/// Runs one kubelet after another on the same folder. Each change of `restarts` starts the next one.
async fn run_kubelets(
    settings: petiole_kubelet::Settings,
    mut restarts: watch::Receiver<u64>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    while !stop.is_cancelled() {
        let this = stop.child_token();
        let kubelet = petiole_kubelet::run(settings.clone(), this.clone());
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
