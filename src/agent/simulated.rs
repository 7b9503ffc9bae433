//! What the simulation runs of an agent: the tasks from the Configurations and the discovery sessions to the slots and the lists of the
//! plugins. Their lists are handed over as they are, without sockets, and nothing is written of the Node or into the folder of CDI
//! files. It polls the tasks itself, because tokio wakes the receivers of a `watch` in no certain order.
use super::{
    cdi_files::CdiFiles,
    claims, configurations, instances,
    kubelet_records::Records,
    place::Place,
    plugins::{self, Allocator, Start},
    settings::{Claims, KUBELET_STARTUP_GRACE, LOOK_INTERVAL, RESOURCE_NAME_HOLD, Settings},
    slots,
    tasks::Agent,
    values::{KubeletSocket, Slot},
};
use crate::{
    discovery::session::{self, Handlers},
    model::{
        claim_file, names::ObjectKey, resource_name::ResourceName, slot::SlotId,
        slot_table::Resource,
    },
    store::Store,
    supervisor::endless,
};
use futures::future::BoxFuture;
use petiole_dra::claim::Claim;
use petiole_kubelet_api::device_plugin::ContainerAllocateResponse;
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tonic::Status;

pub(crate) type Task = BoxFuture<'static, anyhow::Result<()>>;

/// The list of a resource; `None` if its plugin has ended.
pub(crate) type List = (ResourceName, Option<Arc<[Slot]>>);

/// What an agent stands on.
pub(crate) struct Parts {
    pub(crate) node: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) claims: Claims,
    pub(crate) handlers: Arc<Handlers>,
    /// The records of its node's kubelet.
    pub(crate) records: Arc<dyn Records>,
    /// What the kubelet gets.
    pub(crate) lists: mpsc::UnboundedSender<List>,
}

pub(crate) struct Simulated {
    agent: Agent,
    allocator: Allocator,
}

impl Simulated {
    /// Returns an agent and its tasks.
    pub(crate) fn new(parts: Parts, stop: &CancellationToken) -> (Self, Vec<Task>) {
        let Parts {
            node,
            store,
            claims,
            handlers,
            records,
            lists,
        } = parts;
        let settings = settings(node, claims);
        let mut agent = Agent::new(settings, store.clone(), Place::alone().state());
        agent.records.source = records;
        let sessions = watch::Sender::default();
        let discovery = session::run(
            handlers.clone(),
            sessions.subscribe(),
            agent.discoveries.clone(),
            stop.clone(),
        );
        let validation = configurations::run(
            agent.configurations(handlers, None),
            agent.validated.clone(),
            sessions,
        );
        let (requests, requested) = mpsc::channel(64);
        let node = agent.settings.node_name.clone();
        let running = store.clone();
        let until = stop.clone();
        let uses = agent.uses.clone();
        let usage = slots::usage::run(
            store,
            agent.table.clone(),
            node,
            requests.clone(),
            stop.clone(),
        );
        let looks = slots::reclaim::run(agent.reclaim(), requests.clone(), uses);
        let runs = move |start, stop| -> BoxFuture<'static, ()> {
            Box::pin(hand_over(start, lists.clone(), stop))
        };
        let inputs = agent.plugins(CdiFiles::new(None));
        let published = agent.published.clone();
        let plugins = plugins::keep(inputs.clone(), published, Box::new(runs), stop.clone());
        let tasks: Vec<Task> = vec![
            Box::pin(plugins),
            Box::pin(async move { running.run(until).await }),
            endless(validation)(stop.clone()),
            Box::pin(discovery),
            Box::pin(instances::run(agent.instances(), stop.clone())),
            Box::pin(slots::run(agent.slots(), requested, stop.clone())),
            Box::pin(usage),
            endless(looks)(stop.clone()),
        ];
        let allocator = Allocator::new(inputs, requests);
        (Self { agent, allocator }, tasks)
    }

    pub(crate) async fn allocate(
        &self,
        resource: &Resource,
        ids: Vec<String>,
    ) -> Result<ContainerAllocateResponse, Status> {
        let answers = self.allocator.allocate(resource, vec![ids]).await;
        Ok(answers?.remove(0))
    }

    pub(crate) async fn pre_start(
        &self,
        resource: &Resource,
        ids: Vec<String>,
    ) -> Result<(), Status> {
        self.allocator.pre_start(resource, ids).await
    }

    /// Prepares a ResourceClaim. Returns the text of its CDI file.
    pub(crate) async fn prepare(&self, claim: &Claim) -> Result<String, String> {
        let given = claims::driver::claimed(&self.allocator, claim).await?;
        Ok(claim_file::text(&claim.key.uid, &given.edits))
    }

    pub(crate) async fn unprepare(&self, uid: &str) {
        self.allocator.release_claim(uid).await;
    }

    /// Returns the resources that are registered with the kubelet.
    pub(crate) fn registered(&self) -> &watch::Sender<BTreeSet<ResourceName>> {
        &self.agent.published.registered
    }

    /// Says that there is another kubelet.
    pub(crate) fn see_kubelet(&self, number: u64) {
        let socket = KubeletSocket {
            created: SystemTime::UNIX_EPOCH + Duration::from_secs(number),
            inode: number,
        };
        self.agent.kubelet.send_replace(Some(socket));
    }

    /// Returns the slots that this agent finds with a holder besides its own container.
    pub(crate) fn held_twice(&self) -> BTreeSet<SlotId> {
        let uses = self.agent.uses.borrow();
        let uses = uses.as_deref().unwrap_or_default();
        let adoptions = self.agent.table.borrow().adoptions(uses);
        adoptions
            .twice
            .into_iter()
            .map(|twice| twice.slot)
            .collect()
    }
}

/// Runs a plugin: hands over its list at each change.
async fn hand_over(start: Start, lists: mpsc::UnboundedSender<List>, stop: CancellationToken) {
    let (name, mut slots) = (start.offered.full_name, start.slots);
    slots.mark_changed();
    while let Some(Some(Ok(()))) = stop
        .run_until_cancelled(start.withdrawn.run_until_cancelled(slots.changed()))
        .await
    {
        let list = slots.borrow_and_update().clone();
        lists.send((name.clone(), Some(list))).ok();
    }
    lists.send((name, None)).ok();
}

fn settings(node: String, claims: Claims) -> Settings {
    let own_pod = ObjectKey::new("default", format!("agent-{node}"));
    Settings {
        node_name: node.into(),
        resource_prefixes: "akri.sh".parse().unwrap(),
        nodes: None,
        node_labels: false,
        property_sources: None,
        plugin_folder: "/nowhere".into(),
        pod_resources_socket: "/nowhere".into(),
        own_pod: Some(own_pod),
        kubelet_startup_grace: KUBELET_STARTUP_GRACE,
        look_interval: LOOK_INTERVAL,
        resource_name_hold: RESOURCE_NAME_HOLD,
        max_configurations: 100,
        max_instances: 1000,
        containers: crate::model::container_devices::ContainerRules::default(),
        claims: Some(claims),
        #[cfg(feature = "people")]
        render_brokers: None,
        http_address: None,
        metrics_address: None,
    }
}
