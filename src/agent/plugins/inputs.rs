//! The channels of the plugins: what they read, and what they publish.
use super::decisions::Decisions;
use crate::{
    agent::{
        cdi_files::CdiFiles,
        connections::ConnectionDigest,
        device_state::{DeviceState, device_state},
        kubelet_records::RecordsReader,
        node_only::plan::{NodeOnly, Offer},
        settings::{Clock, Settings},
        slots::SharedTable,
        values::{KubeletFolder, KubeletSocket, Listed, ValidatedConfigurations},
    },
    api::reason::Reason,
    cluster::{node::OwnNode, watch::Set},
    discovery::session::Discoveries,
    model::{
        container_nodes::connection_digest,
        instance_name::InstanceKey,
        resource_name::ResourceName,
        slot_table::{Resource, SlotTable},
        typed_names::ConfigurationKey,
    },
    store::{About, Instances, Store},
    telemetry::metrics,
};
use std::{collections::BTreeSet, sync::Arc};
use tokio::sync::watch::{self, error::RecvError};
use tonic::Status;
use tracing::warn;

/// The inputs of the plugins. Instances come from the store.
#[derive(Clone)]
pub(in crate::agent) struct Inputs {
    pub(in crate::agent) settings: Arc<Settings>,
    pub(in crate::agent) clock: Clock,
    pub(in crate::agent) store: Arc<dyn Store>,
    pub(in crate::agent) table: SharedTable,
    pub(in crate::agent) records: RecordsReader,
    pub(in crate::agent) validated: watch::Receiver<Arc<ValidatedConfigurations>>,
    pub(in crate::agent) discoveries: watch::Receiver<Arc<Discoveries>>,
    pub(in crate::agent) node_only: watch::Receiver<Arc<NodeOnly>>,
    pub(in crate::agent) kubelet: watch::Receiver<Option<KubeletSocket>>,
    pub(in crate::agent) kubelet_folder: watch::Receiver<KubeletFolder>,
    pub(in crate::agent) cdi_files: CdiFiles,
    /// The resource whose plugin sends its list to the kubelet once more.
    pub(in crate::agent) resend: watch::Receiver<Option<ResourceName>>,
    pub(in crate::agent) decisions: Decisions,
    /// The lists of the plugins, as they were published last.
    pub(in crate::agent) listed: watch::Receiver<Listed>,
    /// This node as the API server has it; `None` without a cluster.
    pub(in crate::agent) own_node: Option<watch::Receiver<Set<OwnNode>>>,
}

impl Inputs {
    /// Returns receivers for which everything has just changed.
    pub(super) fn watched(&self) -> Watched {
        let mut watched = Watched {
            instances: self.store.instances(),
            news: self.store.news(),
            discoveries: self.discoveries.clone(),
            validated: self.validated.clone(),
            node_only: self.node_only.clone(),
            slots: self.table.subscribe(),
        };
        watched.validated.mark_changed();
        watched.instances.mark_changed();
        watched
    }

    /// Returns the digest of how a container would reach the device of an Instance now; `None` while it is not seen, or
    /// its Configuration is not used.
    pub(in crate::agent) fn connection(&self, key: &InstanceKey) -> Option<ConnectionDigest> {
        let instances = self.store.instances().borrow().clone();
        let instance = instances.get(key)?;
        let discoveries = self.discoveries.borrow().clone();
        let DeviceState::Seen(device) = device_state(instance, &discoveries) else {
            return None;
        };
        let validated = self.validated.borrow().clone();
        let of = instance.spec.configuration_key(&key.namespace);
        let accepted = validated.accepted.get(&of)?;
        let wish = accepted.configuration.spec.container_devices.as_ref();
        Some(connection_digest(device, wish))
    }

    /// Logs why a Pod was refused, and writes an Event on the Instance or the Configuration.
    pub(super) fn report(&self, resource: &Resource, reason: Reason, status: &Status) {
        warn!(resource = resource.name(), "{reason}: {}", status.message());
        let instances = self.store.instances().borrow().clone();
        let about = match resource {
            Resource::Instance(name) => (instances.keys())
                .find(|key| key.name == *name)
                .map(|key| About::Instance(key.clone())),
            Resource::Configuration(name) => (instances.iter())
                .find(|(_, instance)| instance.spec.configuration_name == *name)
                .map(|(key, _)| About::Configuration(ConfigurationKey::new(&key.namespace, name)))
                .or_else(|| Some(About::Configuration(self.offer(resource)?.key.clone()))),
        };
        if let Some(about) = about {
            let note = format!("node {}: {}", self.settings.node_name, status.message());
            self.store.warn(&about, reason, note);
        }
    }

    /// Returns what a resource gives without Instances. Instances that an earlier spec of its Configuration left go first.
    pub(super) fn offer(&self, resource: &Resource) -> Option<Arc<Offer>> {
        let Resource::Configuration(name) = resource else {
            return None;
        };
        let offer = self.node_only.borrow().get(name).cloned();
        offer.filter(|_| !self.table.borrow().has_slots_of(name))
    }
}

/// The inputs that decide which slots there are, and of which devices.
pub(super) struct Watched {
    pub(super) instances: watch::Receiver<Arc<Instances>>,
    /// It says whether the news of the Instances concern this node. It wakes nobody: each of its changes comes with one of `instances`.
    pub(super) news: watch::Receiver<()>,
    pub(super) discoveries: watch::Receiver<Arc<Discoveries>>,
    /// What the resources are called, and whose Instances they are.
    pub(super) validated: watch::Receiver<Arc<ValidatedConfigurations>>,
    pub(super) node_only: watch::Receiver<Arc<NodeOnly>>,
    pub(super) slots: watch::Receiver<SlotTable>,
}

impl Watched {
    /// Waits until an input has changed. It stays marked as changed.
    pub(super) async fn changed(&mut self) -> Result<(), RecvError> {
        tokio::select! {
            biased;
            changed = self.instances.changed() => { changed?; self.instances.mark_changed(); }
            changed = self.discoveries.changed() => { changed?; self.discoveries.mark_changed(); }
            changed = self.validated.changed() => { changed?; self.validated.mark_changed(); }
            changed = self.node_only.changed() => { changed?; self.node_only.mark_changed(); }
            changed = self.slots.changed() => { changed?; self.slots.mark_changed(); }
        }
        Ok(())
    }
}

/// The values that the plugins publish.
#[derive(Clone, Default)]
pub(in crate::agent) struct Published {
    pub(in crate::agent) listed: watch::Sender<Listed>,
    /// Our resources that are registered with the kubelet.
    pub(in crate::agent) registered: watch::Sender<BTreeSet<ResourceName>>,
}

impl Published {
    /// Records whether a resource is registered with the kubelet.
    pub(super) fn set_registered(&self, resource: &ResourceName, is_registered: bool) {
        self.registered.send_if_modified(|registered| {
            if is_registered {
                registered.insert(resource.clone())
            } else {
                registered.remove(resource)
            }
        });
        metrics().set_plugins_registered(self.registered.borrow().len());
    }
}
