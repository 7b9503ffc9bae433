//! Discovery handlers in other processes, by Akri's protocol `v0`: a handler registers on `agent-registration.sock`, and is
//! then asked for devices on its own endpoint, once for each Configuration that names it.
//!
//! ```text
//! RegisterDiscoveryHandler ─> server ─> registrations ─┬─> handlers.json
//!                                                      └─> discovery (one for each Configuration)
//! endpoint <─ Discover ─ stream (one for each endpoint) ─ listing ─> plan ─> DeviceSet
//! ```
//! A handler registers once in its life. So registrations outlive the agent, and an endpoint that breaks is tried again
//! until it answers.
mod discovery;
mod endpoint;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod host_paths;
mod kept_file;
mod listing;
mod plan;
mod registrations;
mod server;
mod stream;

pub use discovery::ExternalDiscovery;
pub use endpoint::Endpoint;
pub use host_paths::{AllowedPath, HostPaths};
pub use server::SOCKET;

use crate::{files, model::device::Scope};
use registrations::{FILE_MAX, Registrations, Rules};
use server::Server;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    sync::Arc,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

#[derive(Debug, Clone)]
pub struct Settings {
    /// The folder that the agent shares with handlers, with its socket and theirs.
    pub folder: PathBuf,
    /// The file that keeps the registrations.
    pub file: PathBuf,
    pub host_paths: HostPaths,
}

/// All handlers in other processes.
pub struct External {
    registrations: watch::Sender<Arc<Registrations>>,
    host_paths: Arc<HostPaths>,
    server: Server,
}

impl External {
    /// Reads the registrations of an earlier life. The names `reserved` cannot be registered.
    pub fn open(settings: Settings, reserved: BTreeSet<String>) -> Self {
        let rules = Rules {
            folder: settings.folder.to_string_lossy().into_owned(),
            reserved,
        };
        let (known, problems) = match files::read_text(&settings.file, FILE_MAX) {
            Ok(text) => Registrations::parse(&text, &rules),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Default::default(),
            Err(e) => (Registrations::default(), vec![e.to_string()]),
        };
        for problem in problems {
            let file = settings.file.display();
            warn!("{file}: a registered handler is forgotten: {problem}; restart that handler");
        }
        let registrations = watch::Sender::new(Arc::new(known));
        Self {
            server: Server::new(settings.folder, settings.file, rules, registrations.clone()),
            host_paths: Arc::new(settings.host_paths),
            registrations,
        }
    }

    /// The registered names, each with the scope of its devices.
    pub fn names(&self) -> BTreeMap<String, Scope> {
        self.registrations.borrow().names()
    }

    /// Waits until other names are registered than `before`.
    pub async fn changed(&self, before: &BTreeMap<String, Scope>) {
        let mut registrations = self.registrations.subscribe();
        let is_other = |now: &Arc<Registrations>| now.names() != *before;
        // The sender is ours.
        registrations
            .wait_for(is_other)
            .await
            .map(drop)
            .unwrap_or_default();
    }

    /// A discovery by this handler; `None` where none has registered by this name.
    pub fn prepare(
        &self,
        name: &str,
        details: &str,
        properties: &BTreeMap<String, String>,
    ) -> Option<ExternalDiscovery> {
        let scope = *self.names().get(name)?;
        Some(ExternalDiscovery {
            name: name.to_owned(),
            scope,
            request: stream::request(details, properties),
            registrations: self.registrations.clone(),
            host_paths: self.host_paths.clone(),
        })
    }

    /// Lets handlers register until `shutdown`.
    pub async fn run(&self, shutdown: CancellationToken) -> anyhow::Result<()> {
        self.server.run(shutdown).await
    }
}
