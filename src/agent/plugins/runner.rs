//! Runs one device plugin: binds a socket, passes its connections to the server, and registers with the kubelet. It
//! starts over with another socket when the kubelet restarts, lets go of the plugin or does not take it, or the socket
//! is removed: a kubelet from 1.37 on tells plugins apart by their sockets, and refuses one that it has not yet let go of
//! (`pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go`).
use super::{
    inputs::{Inputs, Published},
    list_turns::ListTurns,
    plan,
    registrar::Registrar,
    server::Accepted,
    service::{Served, Streams, options},
};
use crate::{
    agent::values::{KubeletSocket, Offered, Slot},
    backoff::Backoff,
    files,
    telemetry::metrics::{Registration, metrics},
};
use anyhow::{Context as _, anyhow};
use futures::{Stream, StreamExt as _, future::BoxFuture};
use petiole_kubelet_api::{
    device_plugin::{RegisterRequest, VERSION},
    uds::{self, OwnSocket},
};
use std::{
    io,
    mem::replace,
    pin::{Pin, pin},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, info, info_span, warn};

/// The kubelet opens ListAndWatch right after it has answered.
const FIRST_STREAM_TIMEOUT: Duration = Duration::from_secs(10);
/// An attempt that took this long was no quick failure, whether its stream lived or the kubelet did not answer. The next
/// one is made at once, so that a kubelet that is back after a long time has a call to answer.
const SLOW: Duration = Duration::from_secs(10);
/// Short, because a kubelet before 1.37 lets go of a plugin when that of an agent before this one ends.
const FIRST_RETRY: Duration = Duration::from_millis(5);
const LAST_RETRY: Duration = Duration::from_secs(10);

/// The longest wait until the kubelet has closed the connection of a plugin that is withdrawn.
const LAST_LIST: Duration = Duration::from_secs(1);

/// How a socket ends that has failed in nothing.
enum End {
    /// The resource is offered no more.
    Withdrawn,
    /// It is gone, or another kubelet is there.
    Replaced,
    /// The kubelet refused the plugin, for this reason.
    NotTaken(String),
    /// The kubelet did not ask the plugin for its devices, or has let go of it.
    LetGo,
}

/// What a plugin is started with.
pub(in crate::agent) struct Start {
    pub(in crate::agent) namespace: String,
    pub(in crate::agent) offered: Offered,
    pub(in crate::agent) slots: watch::Receiver<Arc<[Slot]>>,
    /// The socket on which the plugin serves. The owner of the plugins takes it away when its file is gone: the plugin makes another.
    pub(in crate::agent) socket: watch::Sender<Option<String>>,
    /// Ends the plugin, because its resource is offered no more.
    pub(in crate::agent) withdrawn: CancellationToken,
}

/// Runs a plugin until it is stopped or withdrawn.
pub(in crate::agent) type Runs =
    Box<dyn Fn(Start, CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// Returns what runs plugins. `server` takes the connections of all of them.
pub(super) fn runs(
    inputs: &Inputs,
    published: &Published,
    server: mpsc::Sender<Accepted>,
    turns: ListTurns,
) -> Runs {
    let registrar = Arc::new(Registrar::new(&inputs.settings.plugin_folder));
    let (inputs, published) = (inputs.clone(), published.clone());
    Box::new(move |start, stop| {
        let plugin = Plugin {
            inputs: inputs.clone(),
            published: published.clone(),
            registrar: registrar.clone(),
            server: server.clone(),
            turns: turns.clone(),
            start,
            last_second: 0,
        };
        Box::pin(plugin.run(stop))
    })
}

struct Plugin {
    inputs: Inputs,
    published: Published,
    registrar: Arc<Registrar>,
    server: mpsc::Sender<Accepted>,
    turns: ListTurns,
    start: Start,
    /// The second in the name of the last socket. No name comes twice, whatever became of the file.
    last_second: u64,
}

impl Plugin {
    async fn run(mut self, stop: CancellationToken) {
        let span = info_span!("plugin", resource = self.start.offered.full_name.as_str());
        async {
            let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
            let (mut known, mut refusals) = (None, Refusals::default());
            let withdrawn = self.start.withdrawn.clone();
            loop {
                let kubelet = withdrawn.run_until_cancelled(self.kubelet());
                let Some(Some(kubelet)) = stop.run_until_cancelled(kubelet).await else {
                    return;
                };
                if known.replace(kubelet) != Some(kubelet) {
                    // What the last one refused or was too late for is not this one's fault.
                    backoff.reset();
                    refusals = Refusals::default();
                }
                let begun = Instant::now();
                let ended = {
                    // Pinned here, because `run_until_cancelled` would reserve the memory of the future twice.
                    let once = pin!(self.run_once(kubelet));
                    stop.run_until_cancelled(once).await
                };
                self.start.socket.send_replace(None);
                self.set_registered(false);
                if let None | Some(Ok(End::Replaced | End::Withdrawn)) = ended {
                    continue;
                }
                let wait = wait_after(begun.elapsed(), &mut backoff);
                match ended {
                    Some(Err(e)) => warn!(retry_in = ?wait, "{e:#}"),
                    Some(Ok(End::NotTaken(why))) => refusals.note(&why, begun),
                    Some(Ok(End::LetGo)) => refusals = Refusals::default(),
                    Some(Ok(End::Replaced | End::Withdrawn)) | None => {}
                }
                let another = pin!(timeout(wait, self.another_kubelet(kubelet)));
                let another = withdrawn.run_until_cancelled(another);
                stop.run_until_cancelled(another).await;
            }
        }
        .instrument(span)
        .await;
    }

    /// The kubelet that listens now, or the next one. It is another agent's where this one has handed over.
    async fn kubelet(&self) -> KubeletSocket {
        if self.inputs.decisions.is_over() {
            return std::future::pending().await;
        }
        let mut kubelet = self.inputs.kubelet.clone();
        match kubelet.wait_for(Option::is_some).await.map(|found| *found) {
            Ok(Some(kubelet)) => kubelet,
            // The process ends.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Serves and registers until the socket must be made anew.
    async fn run_once(&mut self, kubelet: KubeletSocket) -> anyhow::Result<End> {
        let bound = self.bind()?;
        let closing = CancellationToken::new();
        // Ends the connections with the socket: a kubelet does not close those of registrations that it gave up.
        let _closing = closing.clone().drop_guard();
        let streams = watch::Sender::new(Streams::default());
        let (open, mut closed) = mpsc::channel(1);
        let served = Arc::new(Served {
            resource: self.start.offered.resource.clone(),
            options: options(&self.start.offered),
            namespace: self.start.namespace.clone(),
            socket: bound.name.clone(),
            turns: self.turns.clone(),
            slots: self.start.slots.clone(),
            streams: streams.clone(),
            withdrawn: self.start.withdrawn.clone(),
            _open: open,
            closing,
        });
        let incoming = pin!(bound.incoming);
        let mut socket = self.start.socket.subscribe();
        let ended = tokio::select! {
            ended = self.accept(incoming, served) => ended,
            ended = self.be_registered(kubelet, &bound.name, streams) => ended,
            _ = socket.wait_for(Option::is_none) => {
                info!(socket = %bound.name, "the plugin's socket is gone, it is made anew");
                Ok(End::Replaced)
            }
            () = self.another_kubelet(kubelet) => {
                info!("another kubelet is there, the plugin registers with it");
                Ok(End::Replaced)
            }
            () = self.start.withdrawn.cancelled() => Ok(End::Withdrawn),
        };
        if let Ok(End::Withdrawn) = ended {
            // A kubelet before 1.37 that has taken this registration and the end of an earlier one at once does not notice that the
            // plugin ends, and would go on offering what it listed last (`runClient` of the file above).
            timeout(LAST_LIST, closed.recv()).await.ok();
        }
        ended
    }

    /// Binds a new socket, and removes those that a killed agent left for this plugin.
    fn bind(
        &mut self,
    ) -> anyhow::Result<Socket<impl Stream<Item = io::Result<uds::Connection>> + use<>>> {
        let folder = &self.inputs.settings.plugin_folder;
        let plugin = self.start.offered.resource.plugin();
        let stem = plan::socket_stem(&plugin, folder.as_os_str().len()).with_context(|| {
            format!(
                "{}: the path is too long for sockets in that folder",
                folder.display()
            )
        })?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let from = now.max(self.last_second + 1);
        let (name, second) = plan::socket_name(&stem, from, |name| folder.join(name).exists());
        self.last_second = second;
        // After the choice, because one of them may be of an agent that hands over to this one: it needs no file, but its name
        // is taken.
        for name in plan::sockets_of(&stem, &self.inputs.kubelet_folder.borrow().sockets) {
            files::remove(&folder.join(name))?;
        }
        let path = folder.join(&name);
        let incoming = uds::bind(&path)?;
        self.start.socket.send_replace(Some(name.clone()));
        Ok(Socket {
            name,
            incoming,
            _file: OwnSocket::new(&path),
        })
    }

    /// Passes the connections of the socket to the server of all plugins.
    async fn accept(
        &self,
        mut incoming: Pin<&mut impl Stream<Item = io::Result<uds::Connection>>>,
        served: Arc<Served>,
    ) -> anyhow::Result<End> {
        while let Some(connection) = incoming.next().await {
            match connection {
                Ok(connection) => {
                    let server = self.server.reserve().await?;
                    let until = served.closing.clone();
                    server.send(connection.until(until).with_info(served.clone()));
                }
                Err(e) => debug!("the plugin's socket: {e}"),
            }
        }
        Err(anyhow!("the plugin's socket takes no more connections"))
    }

    async fn another_kubelet(&self, kubelet: KubeletSocket) {
        let mut now = self.inputs.kubelet.clone();
        let is_other = |now: &Option<KubeletSocket>| now.is_some_and(|now| now != kubelet);
        if now.wait_for(is_other).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Registers, and returns when the kubelet has let go of the plugin, or did not take it.
    async fn be_registered(
        &self,
        kubelet: KubeletSocket,
        socket: &str,
        streams: watch::Sender<Streams>,
    ) -> anyhow::Result<End> {
        let mut streams = streams.subscribe();
        let before = streams.borrow().opened;
        // In a box of its own, because its memory would stay reserved in every plugin.
        let registered = Box::pin(self.registrar.register(kubelet, self.request(socket)));
        if let Err(e) = registered.await {
            metrics().registrations(Registration::Failed).inc();
            debug!("registration: {e:#}");
            return Ok(End::NotTaken(format!("{e:#}")));
        }
        let opened = streams.wait_for(|streams| streams.opened > before);
        if timeout(FIRST_STREAM_TIMEOUT, opened).await.is_err() {
            metrics().registrations(Registration::NoStream).inc();
            warn!("the kubelet took the registration and opened no stream");
            return Ok(End::LetGo);
        }
        self.set_registered(true);
        metrics().registrations(Registration::Registered).inc();
        info!(%socket, "registered with the kubelet");
        let kubelets = before + 1;
        streams
            .wait_for(|streams| !streams.open.contains(&kubelets))
            .await?;
        debug!("the kubelet closed its stream");
        Ok(End::LetGo)
    }

    fn request(&self, socket: &str) -> RegisterRequest {
        RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: socket.to_owned(),
            resource_name: self.start.offered.full_name.clone().into(),
            options: Some(options(&self.start.offered)),
        }
    }

    fn set_registered(&self, is_registered: bool) {
        self.published
            .set_registered(&self.start.offered.full_name, is_registered);
    }
}

/// The wait before the next attempt, after one that took `lasted`.
fn wait_after(lasted: Duration, backoff: &mut Backoff) -> Duration {
    if lasted >= SLOW {
        backoff.reset();
    }
    backoff.next_wait()
}

/// The registrations that the kubelet refuses one after another.
#[derive(Default)]
struct Refusals {
    since: Option<Instant>,
    is_said: bool,
}

impl Refusals {
    /// Says once why, if that has lasted: a kubelet that starts refuses some.
    fn note(&mut self, why: &str, now: Instant) {
        if self.is_to_be_said(now) {
            warn!(
                "the kubelet does not take the registration, which is tried again until it does: {why}"
            );
        }
    }

    fn is_to_be_said(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        now.duration_since(since) >= LAST_RETRY && !replace(&mut self.is_said, true)
    }
}

/// A bound socket. Its file goes with it.
struct Socket<I> {
    name: String,
    incoming: I,
    _file: OwnSocket,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_that_last_are_said_once() {
        let (begun, mut refusals) = (Instant::now(), Refusals::default());
        let said = [0, 9, 10, 11, 3600].map(Duration::from_secs);
        let said = said.map(|after| refusals.is_to_be_said(begun + after));
        assert_eq!(said, [false, false, true, false, false]);
    }

    #[test]
    fn quick_failures_are_repeated_ever_later_and_slow_ones_at_once() {
        let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
        let waits = (0..20).map(|_| wait_after(Duration::ZERO, &mut backoff));
        assert!(waits.last().unwrap() > LAST_RETRY / 2);
        for took in [FIRST_STREAM_TIMEOUT, SLOW * 2] {
            wait_after(Duration::ZERO, &mut backoff);
            assert!(wait_after(took, &mut backoff) <= FIRST_RETRY);
        }
    }
}
