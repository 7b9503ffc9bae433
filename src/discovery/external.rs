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
//!
//! A built-in handler may run as such a process too (`process`), and alone in a folder of its own, where its place is known
//! ([`Isolated`]): a process without rights cannot register.
mod discovery;
mod endpoint;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod host_paths;
mod isolated;
mod kept_file;
mod listing;
mod message;
mod plan;
pub mod process;
mod registrations;
mod server;
mod stream;

pub use discovery::ExternalDiscovery;
pub use endpoint::Endpoint;
pub use host_paths::{AllowedPath, HostPaths};
pub use isolated::Isolated;
pub use server::SOCKET;

use super::interface::{Discovery, SessionSpec};
use crate::{
    files,
    model::device::{DeviceId, Scope},
};
use registrations::{FILE_MAX, Registrations, Rules};
use server::Server;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};
use stream::KnownDevices;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::warn;

#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The folder that the agent shares with handlers, with its socket and theirs; `None` if none may register.
    pub folder: Option<PathBuf>,
    /// The file that keeps the registrations.
    pub file: PathBuf,
    pub host_paths: HostPaths,
    /// The built-in handlers that run as processes without rights.
    pub isolated: Isolated,
}

/// All handlers in other processes.
pub struct External {
    registrations: watch::Sender<Arc<Registrations>>,
    host_paths: Arc<HostPaths>,
    known_devices: KnownDevices,
    isolated: Isolated,
    server: Option<Server>,
    began: Instant,
}

impl External {
    /// Reads the registrations of an earlier life. The names of handlers that are built in cannot be registered: an isolated
    /// one has its known place.
    pub fn open(settings: Settings, built_in: &BTreeMap<String, Scope>) -> Self {
        let Settings {
            folder,
            file,
            host_paths,
            isolated,
        } = settings;
        let rules = folder.as_ref().map(|folder| Rules {
            folder: folder.to_string_lossy().into_owned(),
            reserved: built_in.keys().cloned().collect(),
        });
        let mut known = rules
            .as_ref()
            .map_or_else(Default::default, |rules| kept(&file, rules));
        for (name, scope) in built_in {
            if isolated.names.contains(name) {
                known.add_isolated(name, isolated.socket(name), *scope);
            }
        }
        let registrations = watch::Sender::new(Arc::new(known));
        let began = Instant::now();
        let server = folder.zip(rules).map(|(folder, rules)| Server {
            folder,
            file,
            rules: Arc::new(rules),
            registrations: registrations.clone(),
            began,
        });
        Self {
            server,
            began,
            host_paths: Arc::new(host_paths),
            known_devices: KnownDevices::default(),
            isolated,
            registrations,
        }
    }

    /// Returns whether this built-in handler runs as an isolated process.
    pub fn isolates(&self, name: &str) -> bool {
        self.isolated.names.contains(name)
    }

    /// Takes the ids of all devices that have an Instance, for the isolated handlers.
    pub fn prefer(&self, devices: &BTreeSet<DeviceId>) {
        if !self.isolated.names.is_empty() {
            self.known_devices.send_replace(Arc::new(devices.clone()));
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

    /// A discovery by this handler. `scope` is the scope of its devices, if the registration does not say it. Returns `None`
    /// where none has registered by this name.
    pub fn prepare(&self, spec: &SessionSpec, scope: Option<Scope>) -> Option<Discovery> {
        let registered = *self.names().get(&spec.handler)?;
        let discovery = ExternalDiscovery {
            name: spec.handler.clone(),
            request: stream::request(&spec.details, &spec.properties),
            registrations: self.registrations.clone(),
            host_paths: self.host_paths.clone(),
            known_devices: self.known_devices.clone(),
            agent_began: self.began,
        };
        Some(discovery.with_scope(scope.unwrap_or(registered)))
    }

    /// Reads the registrations once more: another agent may have added some.
    pub fn read_again(&self) {
        if let Some(server) = &self.server {
            let kept = kept(&server.file, &server.rules);
            (self.registrations).send_modify(|known| Arc::make_mut(known).add_kept(kept));
        }
    }

    /// Lets handlers register until `shutdown`.
    pub async fn run(&self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let serve = async {
            match &self.server {
                Some(server) => server.run(shutdown.clone()).await,
                None => {
                    shutdown.cancelled().await;
                    Ok(())
                }
            }
        };
        tokio::try_join!(serve, self.isolated.keep_folders(shutdown.clone())).map(drop)
    }
}

/// Reads the registrations of an earlier life.
fn kept(file: &Path, rules: &Rules) -> Registrations {
    let (known, problems) = match files::read_text(file, FILE_MAX) {
        Ok(text) => Registrations::parse(&text, rules),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Default::default(),
        Err(e) => (Registrations::default(), vec![e.to_string()]),
    };
    for problem in problems {
        let file = file.display();
        warn!("{file}: a registered handler is forgotten: {problem}; restart that handler");
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_isolated_handler_stays_reserved() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            folder: Some(dir.path().to_owned()),
            file: dir.path().join("handlers.json"),
            host_paths: HostPaths::none(),
            isolated: Isolated {
                folder: dir.path().join("isolated"),
                names: BTreeSet::from(["zeroconf".to_owned()]),
            },
        };
        let registration = |name: &str| {
            let socket = dir.path().join(format!("{name}.sock"));
            serde_json::json!({"name": name, "endpoint": {"unix": socket}, "shared": true})
        };
        let handlers = ["zeroconf", "onvif"].map(registration);
        let text = serde_json::json!({ "handlers": handlers }).to_string();
        std::fs::write(&settings.file, text).unwrap();
        let built_in = BTreeMap::from([("zeroconf".to_owned(), Scope::Shared)]);
        let external = External::open(settings, &built_in);
        let endpoints = |name: &str| external.registrations.borrow().of(name).count();
        assert_eq!((endpoints("onvif"), endpoints("zeroconf")), (1, 1));
        let reserved = &external.server.as_ref().unwrap().rules.reserved;
        assert!(reserved.contains("zeroconf"), "{reserved:?}");
    }
}
