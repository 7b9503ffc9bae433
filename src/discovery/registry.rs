//! The discovery handlers that an agent has: those built in, and those in other processes.
use super::external::{self, External};
use super::interface::{DetailsError, Discovery, DiscoveryHandler, Reads, SessionSpec};
use crate::model::{
    device::{DeviceId, Scope},
    variables::Variables,
};
use petiole_base::collect::CollectMap as _;
use std::collections::{BTreeMap, BTreeSet};
use tokio_util::sync::CancellationToken;

/// The discovery handlers there are, by name, and what their devices may give to containers.
pub struct Handlers {
    by_name: BTreeMap<&'static str, Box<dyn DiscoveryHandler>>,
    /// The handlers in other processes: none, until `with_external`.
    external: External,
    variables: Variables,
}

/// The names of the handlers in other processes, each with the scope of its devices.
pub type Registered = BTreeMap<String, Scope>;

impl Handlers {
    pub fn new(handlers: Vec<Box<dyn DiscoveryHandler>>) -> Self {
        Self {
            by_name: handlers.into_iter().map(|h| (h.name(), h)).collect_map(),
            external: External::open(external::Settings::default(), &BTreeMap::new()),
            variables: Variables::default(),
        }
    }

    pub fn with_variables(self, variables: Variables) -> Self {
        Self { variables, ..self }
    }

    pub fn variables(&self) -> &Variables {
        &self.variables
    }

    /// Passes on the ids of all devices that have an Instance.
    pub fn prefer(&self, devices: &BTreeSet<DeviceId>) {
        self.by_name.values().for_each(|h| h.prefer(devices));
        self.external.prefer(devices);
    }

    /// Lets handlers in other processes register. They cannot have the name of another one, isolated or not.
    pub fn with_external(self, settings: external::Settings) -> Self {
        let built_in = self.by_name.values();
        let built_in = built_in.map(|handler| (handler.name().to_owned(), handler.usual_scope()));
        let external = External::open(settings, &built_in.collect_map());
        Self { external, ..self }
    }

    /// Reads the registrations of an agent that ran until now.
    pub fn read_again(&self) {
        self.external.read_again();
    }

    /// Serves the socket on which handlers register, if there is one, until `shutdown`.
    pub async fn serve(&self, shutdown: CancellationToken) -> anyhow::Result<()> {
        self.external.run(shutdown).await
    }

    /// All names, those of registered handlers too.
    pub fn names(&self) -> BTreeSet<String> {
        let built_in = self.by_name.keys().map(|name| (*name).to_owned());
        built_in.chain(self.registered().into_keys()).collect()
    }

    /// The handlers that have registered.
    pub fn registered(&self) -> Registered {
        self.external.names()
    }

    /// Waits until other handlers are registered than `before`.
    pub async fn registered_other_than(&self, before: &Registered) {
        self.external.changed(before).await;
    }

    /// `None` where there is no such handler.
    pub fn prepare(&self, spec: &SessionSpec) -> Option<Result<Discovery, DetailsError>> {
        let Some(handler) = self.by_name.get(spec.handler.as_str()) else {
            return self.external.prepare(spec, None).map(Ok);
        };
        let prepared = handler.prepare(&spec.details, &spec.properties);
        if !self.external.isolates(&spec.handler) {
            return Some(prepared);
        }
        // The details are read here as they are there: they say the scope, and what is wrong is shown at once.
        match prepared {
            Ok(discovery) => (self.external.prepare(spec, Some(discovery.scope))).map(Ok),
            Err(e) => Some(Err(e)),
        }
    }

    /// The `discoveryProperties` that a handler reads.
    pub fn reads(&self, handler: &str) -> Reads {
        let built_in = self.by_name.get(handler);
        built_in.map_or(Reads::All, |handler| handler.reads())
    }
}
