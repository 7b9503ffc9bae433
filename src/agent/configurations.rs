//! Validates the Configurations, and determines the discovery sessions of this node.
mod foreign_plugins;
mod plan;
mod properties;
mod resource;
mod rights;
mod spec;
mod world;

use super::{
    settings::{Clock, Settings},
    values::{Accepted, KubeletFolder, KubeletSocket, Selection, ValidatedConfigurations},
};
use crate::{
    api::{configuration::Problem, reason::Reason},
    cluster::{
        node::OwnNode,
        watch::{Set, named},
    },
    discovery::{SessionSpec, session::Handlers},
    model::{
        device::Scope,
        property_source::{Contents, Wanted},
        resource_name::ResourceName,
        typed_names::{ConfigurationKey, NodeName},
    },
    publish,
    store::{Configurations, Instances},
};
use foreign_plugins::ForeignPlugins;
use petiole_base::collect::CollectMap as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::Arc,
};
use tokio::sync::watch;
use world::{Labels, World};

/// Returns why no agent would use a Configuration that allows these paths and has this folder for CDI files. Of one whose namespace is
/// not known it is not said whether it refers to another.
#[cfg(feature = "people")]
pub(crate) fn check(
    configuration: &crate::api::configuration::Configuration,
    namespace: Option<&str>,
    containers: &crate::model::container_devices::ContainerRules,
) -> Result<(), Problem> {
    spec::check_name(configuration.metadata.name.as_deref().unwrap_or_default())?;
    if let Some(namespace) = namespace {
        rights::check_references(namespace, &configuration.spec)?;
    }
    spec::check(&configuration.spec, containers)
}

/// The inputs of the validation.
pub(super) struct Inputs {
    pub(super) settings: Arc<Settings>,
    pub(super) clock: Clock,
    pub(super) handlers: Arc<Handlers>,
    /// The Configurations of the store.
    pub(super) configurations: watch::Receiver<Arc<Configurations>>,
    pub(super) instances: watch::Receiver<Arc<Instances>>,
    /// The Node of this node; `None` without a cluster.
    pub(super) own_node: Option<watch::Receiver<Set<OwnNode>>>,
    /// The Secrets and ConfigMaps; `None` without a cluster.
    pub(super) properties: Option<Properties>,
    pub(super) kubelet: watch::Receiver<Option<KubeletSocket>>,
    pub(super) kubelet_folder: watch::Receiver<KubeletFolder>,
    /// Our resources that are registered with the kubelet.
    pub(super) registered: watch::Receiver<BTreeSet<ResourceName>>,
}

/// The channels to the task that watches Secrets and ConfigMaps.
pub(super) struct Properties {
    /// Written here.
    pub(super) wanted: watch::Sender<Wanted>,
    pub(super) contents: watch::Receiver<Arc<Contents>>,
}

/// Returns what tells the Configurations of which a node has devices; `None` without a cluster.
fn offered_on<'a>(
    node: &'a NodeName,
    instances: &'a watch::Receiver<Arc<Instances>>,
    is_in_cluster: bool,
) -> Option<impl Fn() -> BTreeSet<ConfigurationKey> + Copy + 'a> {
    is_in_cluster.then_some(move || {
        let instances = instances.borrow();
        let here = instances.iter();
        here.filter(|(_, instance)| instance.spec.names_node(node))
            .map(|(key, instance)| instance.spec.configuration_key(&key.namespace))
            .collect()
    })
}

/// Returns the labels of this node, as far as they are known. Without a cluster nothing says what was `offered` by an earlier run.
fn labels(
    seen: Option<&OwnNode>,
    offered: Option<impl FnOnce() -> BTreeSet<ConfigurationKey>>,
) -> Labels<'_> {
    match (seen, offered) {
        (Some(node), _) => Labels::Known(&node.labels),
        (None, Some(offered)) => Labels::Unknown(offered()),
        (None, None) => Labels::NoNode,
    }
}

/// Validates the Configurations at each change of the inputs. Publishes the result to `validated`, and the discovery sessions
/// that it needs to `sessions`.
pub(super) async fn run(
    inputs: Inputs,
    validated: watch::Sender<Arc<ValidatedConfigurations>>,
    sessions: watch::Sender<BTreeMap<ConfigurationKey, SessionSpec>>,
) -> anyhow::Result<Infallible> {
    let Inputs {
        settings,
        clock,
        handlers,
        mut configurations,
        instances,
        own_node: own,
        mut properties,
        mut kubelet,
        kubelet_folder,
        mut registered,
    } = inputs;
    let mut foreign = ForeignPlugins::new(settings.clone(), clock, kubelet_folder);
    let offered = offered_on(&settings.node_name, &instances, own.is_some());
    let mut own = own.unwrap_or_else(|| watch::channel(None).1);
    loop {
        let this = named(&own.borrow_and_update(), &settings.node_name);
        let current = configurations.borrow_and_update().clone();
        let (before, there) = (validated.borrow().clone(), *kubelet.borrow_and_update());
        let handlers_then = handlers.registered();
        let ours = registered.borrow_and_update().clone();
        let wanted = resource::wanted(&current, &before.accepted);
        foreign.add_own_names(&current);
        let contents = (properties.as_mut()).map(|p| p.contents.borrow_and_update().clone());
        let (needed, now) = decide(
            contents.as_deref(),
            World {
                configurations: &current,
                before: &before.accepted,
                refused_before: &before.refused,
                labels: labels(this.as_deref(), offered),
                prefixes: &settings.resource_prefixes,
                foreign: foreign.listed_by(there),
                registered: &ours,
                max_configurations: settings.max_configurations,
                scope_of: &|spec| scope_of(&handlers, spec),
                reads: &|handler| handlers.reads(handler),
                has_static_pods: settings.has_static_pods(),
                variables: handlers.variables(),
                has_claims: settings.claims.is_some(),
                containers: &settings.containers,
                sources: None,
            },
        );
        (properties.iter()).for_each(|p| publish::if_changed(&p.wanted, needed.clone()));
        publish_all(&validated, &sessions, now, settings.max_configurations);
        tokio::select! {
            biased;
            changed = configurations.changed() => changed?,
            changed = kubelet.changed() => changed?,
            () = handlers.registered_other_than(&handlers_then) => {}
            () = read(&mut properties) => {}
            () = relabelled(&mut own, &settings.node_name, this.as_deref()) => {}
            // Another plugin may have ended ours.
            () = lost(&mut registered, ours, &wanted) => {}
            () = foreign.changed(there), if there.is_some() && !wanted.is_empty() => continue,
        }
        foreign.ask_soon();
    }
}

/// Publishes a validation, and the discovery sessions that it needs. Of Configurations that are gone at most `most` are remembered.
fn publish_all(
    validated: &watch::Sender<Arc<ValidatedConfigurations>>,
    sessions: &watch::Sender<BTreeMap<ConfigurationKey, SessionSpec>>,
    mut now: ValidatedConfigurations,
    most: usize,
) {
    let before = validated.borrow().clone();
    now.keep_by_claims(&before, most);
    publish::if_changed(sessions, selected(&now.accepted));
    publish::if_changed(validated, Arc::new(now));
}

/// Returns the Secrets and ConfigMaps to watch, and the validation with these contents of them.
fn decide(contents: Option<&Contents>, world: World<'_>) -> (Wanted, ValidatedConfigurations) {
    let needed = plan::wanted(&world);
    let validated = plan::validate(&World {
        sources: contents.map(|contents| (&needed, contents)),
        ..world
    });
    (needed, validated)
}

/// Returns the discovery sessions of the Configurations that select this node.
fn selected(accepted: &Accepted) -> BTreeMap<ConfigurationKey, SessionSpec> {
    let selected = accepted
        .iter()
        .filter(|(_, a)| a.selection == Selection::Selected);
    selected
        .map(|(key, a)| (key.clone(), a.session.clone()))
        .collect_map()
}

/// Waits until a Secret or ConfigMap was read, or has changed.
async fn read(properties: &mut Option<Properties>) {
    if let Some(properties) = properties
        && properties.contents.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Waits until the Node has other labels than `before`: its status changes all the time.
async fn relabelled(own: &mut watch::Receiver<Set<OwnNode>>, name: &str, before: Option<&OwnNode>) {
    let is_changed = |set: &Set<OwnNode>| {
        let now = named(set, name);
        now.as_ref().map(|node| &node.labels) != before.map(|node| &node.labels)
    };
    if own.wait_for(is_changed).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits until one of these names is no longer registered. `ours` are the names that are registered now.
async fn lost(
    registered: &mut watch::Receiver<BTreeSet<ResourceName>>,
    mut ours: BTreeSet<ResourceName>,
    names: &BTreeSet<ResourceName>,
) {
    let is_lost = |now: &BTreeSet<ResourceName>| {
        let is_lost = ours.difference(now).any(|name| names.contains(name));
        ours.clone_from(now);
        is_lost
    };
    if registered.wait_for(is_lost).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn scope_of(handlers: &Handlers, spec: &SessionSpec) -> Result<Scope, Problem> {
    match handlers.prepare(spec) {
        Some(Ok(discovery)) => Ok(discovery.scope),
        Some(Err(e)) => Err(Problem::new(Reason::BadDiscoveryDetails, e.to_string())),
        None => {
            let message = format!(
                "discoveryHandler.name: {:?} is not a handler of this agent, and none has registered by this name; those are {}",
                spec.handler,
                Vec::from_iter(handlers.names()).join(", ")
            );
            Err(Problem::new(Reason::UnknownHandler, message))
        }
    }
}
