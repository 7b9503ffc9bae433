//! Which plugins there should be, and which are registered: a reconciler brings the second to the first, one operation
//! at a time for each socket.
//!
//! Plugins ask for themselves by `Registration.Register` (`registration.rs`); a watcher of `plugins_registry` can feed
//! the same desired state. What becomes of a plugin is its [`PluginHandler`]'s affair.
mod plan;
mod registration;

pub(super) use registration::serve;

use futures::future::BoxFuture;
use plan::{Operation, plan};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::{sync::CancellationToken, task::JoinMap};

/// What a plugin says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PluginInfo {
    /// The resource's name, for a device plugin.
    pub(super) name: String,
    /// The plugin's socket.
    pub(super) endpoint: PathBuf,
    /// The API versions it speaks.
    pub(super) versions: Vec<String>,
}

/// What is done with the plugins of one kind. Errors are texts, because the plugin is told them as they are.
pub(super) trait PluginHandler: Send + Sync {
    fn validate(&self, plugin: &PluginInfo) -> Result<(), String>;

    /// Takes a plugin on; one of the same name is replaced.
    fn register<'a>(&'a self, plugin: &'a PluginInfo) -> BoxFuture<'a, Result<(), String>>;

    fn deregister(&self, name: &str);
}

/// A change of the desired state.
#[derive(Debug)]
pub(super) enum Command {
    /// This plugin should be registered, anew if it is; the reply tells what came of it.
    Want {
        plugin: PluginInfo,
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// The plugin at this socket should be no longer.
    Forget(PathBuf),
}

/// A plugin that should be registered. Each time it is asked for it gets another number.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    plugin: PluginInfo,
    asked: u64,
}

/// Reconciles at each command, until `shutdown`.
pub(super) async fn run(
    handler: Arc<dyn PluginHandler>,
    mut commands: mpsc::Receiver<Command>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut manager = Manager {
        handler,
        desired: BTreeMap::new(),
        actual: BTreeMap::new(),
        replies: BTreeMap::new(),
        operations: JoinMap::new(),
        asked: 0,
    };
    loop {
        let socket = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            Some(command) = commands.recv() => manager.take(command),
            Some((socket, ended)) = manager.operations.join_next() => {
                let result = ended.unwrap_or_else(|e| Err(format!("registration was ended: {e}")));
                manager.settle(&socket, result);
                socket
            }
        };
        manager.reconcile(socket);
    }
}

struct Manager {
    handler: Arc<dyn PluginHandler>,
    desired: BTreeMap<PathBuf, Wanted>,
    actual: BTreeMap<PathBuf, Wanted>,
    /// Who waits for the outcome, by the number of the request.
    replies: BTreeMap<u64, oneshot::Sender<Result<(), String>>>,
    operations: JoinMap<PathBuf, Result<(), String>>,
    asked: u64,
}

impl Manager {
    /// Returns the socket it is about.
    fn take(&mut self, command: Command) -> PathBuf {
        match command {
            Command::Want { plugin, reply } => {
                self.asked += 1;
                let socket = plugin.endpoint.clone();
                let replaced = self.desired.insert(
                    socket.clone(),
                    Wanted {
                        plugin,
                        asked: self.asked,
                    },
                );
                if let Some(earlier) =
                    replaced.and_then(|wanted| self.replies.remove(&wanted.asked))
                {
                    // Nobody is hurt by an answer that nobody waits for.
                    earlier
                        .send(Err(
                            "another registration of the same socket came after".to_owned()
                        ))
                        .ok();
                }
                self.replies.insert(self.asked, reply);
                socket
            }
            Command::Forget(socket) => {
                self.desired.remove(&socket);
                socket
            }
        }
    }

    /// Only what was asked for or has ended at a socket changes what is to be done there.
    fn reconcile(&mut self, socket: PathBuf) {
        let is_busy = self.operations.contains_key(&socket);
        match plan(self.desired.get(&socket), self.actual.get(&socket), is_busy) {
            None => {}
            Some(Operation::Deregister) => {
                if let Some(registered) = self.actual.remove(&socket) {
                    self.handler.deregister(&registered.plugin.name);
                }
            }
            Some(Operation::Register(wanted)) => {
                let handler = self.handler.clone();
                // Known before it is registered, so that what comes in between is not lost.
                self.actual.insert(socket.clone(), wanted.clone());
                self.operations.spawn(socket, async move {
                    handler.validate(&wanted.plugin)?;
                    handler.register(&wanted.plugin).await
                });
            }
        }
    }

    fn settle(&mut self, socket: &Path, result: Result<(), String>) {
        let Some(tried) = self.actual.get(socket).cloned() else {
            return;
        };
        if result.is_err() {
            self.actual.remove(socket);
            // A plugin that asked for itself must ask again.
            if self.desired.get(socket) == Some(&tried) {
                self.desired.remove(socket);
            }
        }
        if let Some(reply) = self.replies.remove(&tried.asked) {
            // The plugin may have hung up.
            reply.send(result).ok();
        }
    }
}
