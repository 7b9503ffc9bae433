//! The interface of discovery handlers: what each of them implements, and what it is given. It knows no handler.
//!
//! A [`DiscoveryHandler`] turns a Configuration's `discoveryDetails` into a [`Discovery`]; a running discovery
//! publishes whole [`DeviceSet`]s over a `watch`, never changes to one, so that a late reader misses nothing.
use crate::model::{
    device::{DeviceId, DeviceSet, Scope},
    hidden::Hidden,
    typed_names::ConfigurationKey,
};
use futures::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::watch;

/// The `discoveryProperties` of a Configuration that have a value, by their names.
pub type Properties = BTreeMap<String, String>;

/// A method to find devices, named by `discoveryHandler.name` of a Configuration.
pub trait DiscoveryHandler: Send + Sync {
    /// Returns the value of `discoveryHandler.name`; case matters.
    fn name(&self) -> &'static str;

    /// Reads `discoveryDetails`, and the `discoveryProperties` that have a value. Touches nothing: a Configuration is checked
    /// with it before anything starts.
    fn prepare(&self, details: &str, properties: &Properties) -> Result<Discovery, DetailsError>;

    /// Returns the scope of its devices if the details do not say another. It is read where the handler runs as a process of its
    /// own: `prepare` says the scope of what it finds here. Only devices of a node have device nodes.
    fn usual_scope(&self) -> Scope {
        Scope::Shared
    }

    /// The names of the `discoveryProperties` that it reads.
    fn reads(&self) -> Reads {
        Reads::Only(&[])
    }

    /// Takes the ids of all devices that have an Instance. A handler that cannot hold all devices prefers these.
    fn prefer(&self, _devices: &BTreeSet<DeviceId>) {}
}

/// The names of the `discoveryProperties` that a handler reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    Only(&'static [&'static str]),
    /// Any: a handler in another process gets all of them, and properties may name others.
    All,
}

impl Reads {
    pub fn has(self, name: &str) -> bool {
        match self {
            Self::Only(names) => names.contains(&name),
            Self::All => true,
        }
    }
}

/// A discovery that is ready to run.
pub struct Discovery {
    pub scope: Scope,
    run: Box<dyn FnOnce(Task) -> Running + Send>,
}

/// A discovery that runs.
type Running = BoxFuture<'static, Result<(), DiscoveryError>>;

impl Discovery {
    /// Returns a discovery that does `run`: it publishes what it sees until it is dropped. An error ends this run, and its caller
    /// starts another after a back-off; what was published last stays until then.
    pub fn new<F>(scope: Scope, run: impl FnOnce(Task) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<(), DiscoveryError>> + Send + 'static,
    {
        let run = Box::new(|task| -> Running { Box::pin(run(task)) });
        Self { scope, run }
    }

    pub fn run(self, task: Task) -> Running {
        (self.run)(task)
    }
}

/// What a running discovery is given.
#[derive(Debug)]
pub struct Task {
    /// The Configuration for which it runs. A handler that divides something among its discoveries gives each namespace and
    /// each Configuration its part.
    pub configuration: ConfigurationKey,
    /// The channel to which it publishes the devices that it sees: all of them, each time. [`publish`](super::publish::publish) wakes
    /// readers only if they have changed, and logs what is new of the problems.
    pub found: watch::Sender<DeviceSet>,
}

impl Task {
    /// Returns a task for no Configuration, with what it publishes: to try a handler.
    pub fn alone() -> (Self, watch::Receiver<DeviceSet>) {
        let (found, seen) = watch::channel(DeviceSet::default());
        let configuration = ConfigurationKey::new("", "");
        let task = Self {
            configuration,
            found,
        };
        (task, seen)
    }
}

/// The inputs of a discovery. Another specification makes another discovery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionSpec {
    pub handler: String,
    pub details: String,
    /// The `discoveryProperties` that have a value. Some are of Secrets.
    pub properties: Hidden<Properties>,
}

/// `discoveryDetails` that cannot be used. The message names the field, the value and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("discoveryDetails: {0}")]
pub struct DetailsError(pub String);

impl From<String> for DetailsError {
    fn from(why: String) -> Self {
        Self(why)
    }
}

/// The error of a discovery that ended by itself. It is repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DiscoveryError(pub String);
