//! Shows an agent the records of its node's simulated kubelet: the list of its pod resources API, and its checkpoint.
use super::{
    World,
    kubelet::{Checkpoint as All, Given, Holding},
    machine::Process,
    objects::Claim,
};
use crate::{
    agent::{
        kubelet_records::{Checkpoint, Records, Version, plan::entry},
        pod_resources::listed,
        values::{PodList, Prepared},
    },
    model::{
        claim_file::use_of, container_edits::SLOT_VARIABLE, resource_name::ResourcePrefixes,
        slot::SlotId,
    },
};
use anyhow::Context as _;
use futures::future::{BoxFuture, ready};
use petiole_kubelet_api::{
    checkpoint::{Entry, encoded},
    device_plugin::ContainerAllocateResponse,
    pod_resources::PodResources,
};
use prost::Message as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::{Arc, Mutex},
};
use tokio::sync::{mpsc, oneshot};

/// The checkpoint on the disk of a node, and the number of its writes.
#[derive(Default)]
pub(super) struct Disk {
    pub(super) checkpoint: All,
    pub(super) written: u64,
    /// The claims that the kubelet has prepared or is about to.
    pub(super) claims: BTreeMap<String, KnownClaim>,
    /// The claims that the agent has prepared or is about to.
    pub(super) book: BTreeSet<String>,
    /// The CDI files of claims, which a power cut loses.
    pub(super) files: BTreeMap<String, String>,
}

/// A claim, as a kubelet knows it.
#[derive(Clone)]
pub(super) struct KnownClaim {
    pub(super) claim: Claim,
    /// The Pods of this node that use it.
    pub(super) pods: BTreeSet<u64>,
    /// True while the last of them gives it back.
    pub(super) is_ending: bool,
}

impl Disk {
    /// Returns the slots of each claim that has a file, with the Pods here that use them.
    pub(super) fn claimed(&self) -> Vec<(&KnownClaim, SlotId)> {
        let known = |uid: &str| self.claims.get(uid);
        let files = self.files.iter();
        let files = files.filter_map(|(uid, text)| Some((known(uid)?, use_of(uid, text))));
        let slots = files.flat_map(|(known, used)| {
            let ids = used.ids.into_iter();
            ids.map(move |id| (known, id.slot()))
        });
        slots.collect()
    }

    /// Returns the UID of the claim that a Pod of this node uses.
    pub(super) fn claim_of(&self, pod: u64) -> Option<&str> {
        let mut all = self.claims.iter();
        let (uid, _) = all.find(|(_, known)| known.pods.contains(&pod))?;
        Some(uid)
    }
}

pub(super) struct OfNode {
    disk: Arc<Mutex<Disk>>,
    asks: mpsc::UnboundedSender<oneshot::Sender<Vec<PodResources>>>,
}

impl OfNode {
    /// Returns the records of a node, for the agent that is this process.
    pub(super) fn new(world: &Rc<World>, at: usize, agent: Process) -> Self {
        let (asks, mut asked) = mpsc::unbounded_channel::<oneshot::Sender<_>>();
        let of = world.clone();
        world.machine.spawn(agent, async move {
            while let Some(reply) = asked.recv().await {
                let world = of.clone();
                of.machine.spawn(agent, async move {
                    let pods = world.nodes[at].list_pods(&world).await;
                    pods.and_then(|pods| reply.send(pods).ok());
                });
            }
        });
        let disk = world.nodes[at].disk.clone();
        Self { disk, asks }
    }
}

impl Records for OfNode {
    fn list(&self) -> BoxFuture<'_, anyhow::Result<PodList>> {
        Box::pin(async {
            let (reply, answer) = oneshot::channel();
            self.asks.send(reply).ok();
            let pods = answer.await.context("the kubelet does not answer")?;
            Ok(listed(pods, &prefixes()))
        })
    }

    fn claims(&self) -> BoxFuture<'_, anyhow::Result<Prepared>> {
        let disk = self.disk.lock().unwrap();
        let files = disk
            .files
            .iter()
            .filter(|(uid, _)| disk.book.contains(*uid));
        let prepared = Prepared {
            uids: disk.book.clone(),
            are_unknown: false,
            uses: files.map(|(uid, text)| use_of(uid, text)).collect(),
        };
        Box::pin(ready(Ok(prepared)))
    }

    fn checkpoint(&self) -> BoxFuture<'_, Checkpoint> {
        let disk = self.disk.lock().unwrap();
        let all = disk.checkpoint.iter().map(written);
        let checkpoint = match disk.written {
            0 => Checkpoint::Missing,
            _ => Checkpoint::Read {
                entries: all.filter_map(|one| entry(&one, &prefixes())).collect(),
                is_fresh: false,
            },
        };
        Box::pin(ready(checkpoint))
    }

    fn version(&self) -> Option<Version> {
        let written = self.disk.lock().unwrap().written;
        let version = Version {
            inode: written,
            ..Version::default()
        };
        (written > 0).then_some(version)
    }
}

fn prefixes() -> ResourcePrefixes {
    "akri.sh".parse().unwrap()
}

/// Returns an entry of the file, as the kubelet writes it.
fn written(((uid, container, resource), given): (&Holding, &Given)) -> Entry {
    let slots: Vec<String> = given.values().map(ToString::to_string).collect();
    let response = ContainerAllocateResponse {
        envs: BTreeMap::from([(SLOT_VARIABLE.to_owned(), slots.join(","))]),
        ..ContainerAllocateResponse::default()
    };
    let ids = given.keys().cloned().collect();
    Entry {
        pod_uid: uid.to_string(),
        container_name: (*container).to_owned(),
        resource_name: resource.clone(),
        device_ids: Some(BTreeMap::from([(-1, Some(ids))])),
        alloc_resp: Some(encoded(&response.encode_to_vec())),
    }
}
