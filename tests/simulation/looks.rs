//! Reads the pod resources API and the checkpoint as an agent does: the loops of `agent::slots::reclaim` and
//! `agent::kubelet_records`.
//!
//! The real `agent::kubelet_records::plan`, `agent::slots::plan` and `SlotTable::adoptions` decide what they mean, when they are
//! trusted, and what follows.
use super::{
    agent::Agent,
    kubelet::{Checkpoint as Given, Holding},
    slots_task::Request,
};
use crate::{
    agent::{
        kubelet_records::plan::{At, Checkpoint, Confirmed, KubeletRecords, Look, entry, resent},
        pod_resources,
        slots::plan::{self as slots, Missed, Retries, due_claims, next_look, releases},
    },
    model::{
        container_edits::SLOT_VARIABLE,
        names::ObjectKey,
        resource_name::ResourcePrefixes,
        slot_table::{Held, Use},
    },
};
use petiole_kubelet_api::{
    checkpoint::{Data, Entry, encoded},
    device_plugin::ContainerAllocateResponse,
};
use prost::Message as _;
use std::{collections::BTreeMap, rc::Rc, time::Duration};

const BETWEEN_LOOKS: Duration = Duration::from_secs(10);
const AFTER_ARRIVAL: u32 = 20;
const CONFIRMED_FOR: u32 = 1;
const WRITTEN_WITHIN: u64 = 1_000;
const BETWEEN_STATS: u64 = 20;

/// The state that one look leaves for the next.
#[derive(Default)]
struct Memory {
    missed: Missed,
    asked: Retries,
    confirmed: Option<Confirmed>,
    unconfirmed: u32,
    kubelet_since: Duration,
}

pub(super) async fn run(agent: Rc<Agent>) {
    let (mut slots, mut validated) = (agent.slots.subscribe(), agent.store.validated.subscribe());
    let mut kubelet = agent.node().kubelet_socket.subscribe();
    let mut memory = Memory::default();
    loop {
        if agent.uses.borrow().as_deref().is_none_or(<[_]>::is_empty) {
            tokio::select! {
                biased;
                _ = slots.wait_for(|slots| !slots.is_empty()) => {}
                _ = validated.wait_for(Option::is_some) => {}
            }
        }
        if kubelet.has_changed().unwrap_or(false) {
            kubelet.mark_unchanged();
            memory.missed.clear();
            memory.confirmed = None;
            memory.kubelet_since = agent.uptime();
        }
        let begun = agent.uptime();
        let (held, arrivals) = {
            let slots = slots.borrow_and_update();
            (slots.held(), slots.arrivals())
        };
        let look = agent.look(&held, &mut memory.confirmed).await;
        if let Some(all) = look.as_ref().and_then(Look::all_uses) {
            (agent.slots).send_if_modified(|slots| slots.confirm(all, arrivals, begun));
        }
        match look.and_then(Look::trusted) {
            Some(records) => {
                for request in memory.decide(&agent, &records, begun) {
                    agent.requests.send(request).ok();
                }
            }
            None => {
                memory.missed.clear();
                agent.set_uses(None);
            }
        }
        let arrival = Box::pin(slots.wait_for(|slots| slots.arrivals() != arrivals));
        let machine = agent.machine();
        memory.unconfirmed = match agent.slots.borrow().has_unconfirmed() {
            true => memory.unconfirmed + 1,
            false => 0,
        };
        let wait = next_look(BETWEEN_LOOKS, &memory.missed, memory.unconfirmed);
        if machine.timeout(wait, arrival).await.is_some() {
            machine.sleep(millis(BETWEEN_LOOKS / AFTER_ARRIVAL)).await;
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap()
}

impl Memory {
    fn decide(&mut self, agent: &Agent, records: &KubeletRecords, begun: Duration) -> Vec<Request> {
        let look = slots::Look {
            begun,
            interval: BETWEEN_LOOKS,
            is_fresh: records.is_fresh(),
            kubelet_since: self.kubelet_since,
        };
        let uses = records.uses();
        let (held, adoptions) = {
            let slots = agent.slots.borrow();
            (slots.held(), slots.adoptions(&uses))
        };
        let released = match records.held() {
            Some(listed) => {
                let (changes, missed) = releases(&held, &listed, look, &self.missed);
                self.missed = missed;
                changes
            }
            None => {
                self.missed.clear();
                vec![]
            }
        };
        let (claimed, asked) = due_claims(&adoptions, look, &self.asked);
        self.asked = asked;
        let (mut ledger, node) = (agent.world.ledger.borrow_mut(), &agent.node().name);
        ledger.reported.retain(|(by, _)| by != node);
        let twice = adoptions.twice.into_iter();
        (ledger.reported).extend(twice.map(|twice| (node.clone(), twice.slot)));
        agent.set_uses(Some(uses));
        let release = (!released.is_empty()).then_some(Request::Release {
            changes: released,
            begun,
        });
        let adopt = (!claimed.is_empty()).then_some(Request::Adopt { changes: claimed });
        release.into_iter().chain(adopt).collect()
    }
}

impl Agent {
    pub(super) async fn read(&self) -> Option<KubeletRecords> {
        let pods = self.node().list_pods(&self.world).await?;
        let list = pod_resources::listed(pods, &prefixes());
        let checkpoint = self.checkpoint();
        Some(KubeletRecords { list, checkpoint })
    }

    /// Implements `agent::kubelet_records::look`.
    pub(super) async fn look(
        &self,
        held: &[Held],
        confirmed: &mut Option<Confirmed>,
    ) -> Option<Look> {
        let begun = self.uptime();
        let records = self.read().await?;
        let own = ObjectKey::new("default", format!("agent-{}", self.node().name));
        let is_trusted = records.are_whole(&own);
        let records = match is_trusted {
            true => self.freshened(records, (held, begun), confirmed).await,
            false => records,
        };
        Some(Look {
            records,
            is_trusted,
            has_started: false,
        })
    }

    fn set_uses(&self, now: Option<Vec<Use>>) {
        self.uses.send_if_modified(|uses| {
            let is_new = *uses != now;
            *uses = now;
            is_new
        });
    }

    async fn freshened(
        &self,
        mut records: KubeletRecords,
        (held, begun): (&[Held], Duration),
        confirmed: &mut Option<Confirmed>,
    ) -> KubeletRecords {
        let doubts = records.doubts(held);
        let at_most = CONFIRMED_FOR * BETWEEN_LOOKS;
        let is_confirmed = (confirmed.as_ref())
            .is_some_and(|last| last.still_holds(&records, &doubts, At { begun, at_most }));
        let mut is_fresh = true;
        if !doubts.is_empty() && !is_confirmed && records.checkpoint != Checkpoint::Missing {
            is_fresh = self.is_written_anew().await;
            records.checkpoint = self.checkpoint();
            *confirmed = is_fresh.then(|| Confirmed::by(&records, held, begun, confirmed.as_ref()));
        }
        if let Checkpoint::Read { is_fresh: so, .. } = &mut records.checkpoint {
            *so = is_fresh;
        }
        records
    }

    async fn is_written_anew(&self) -> bool {
        let (node, machine) = (self.node(), self.machine());
        let before = node.written.get();
        let Some(resource) = resent(&self.registered()).cloned() else {
            return false;
        };
        self.resend(&resource);
        let end = machine.now() + WRITTEN_WITHIN;
        while node.written.get() == before && machine.now() < end {
            machine.sleep(BETWEEN_STATS).await;
        }
        node.written.get() != before
    }

    fn checkpoint(&self) -> Checkpoint {
        let node = self.node();
        let (version, known) = &mut *self.checkpoint.borrow_mut();
        match node.written.get() {
            0 => return Checkpoint::Missing,
            written if written == *version => {}
            written => {
                *version = written;
                let data = data(&node.checkpoint.borrow());
                let all = data.pod_device_entries.iter().flatten();
                *known = all.filter_map(|one| entry(one, &prefixes())).collect();
            }
        }
        Checkpoint::Read {
            entries: known.clone(),
            is_fresh: false,
        }
    }
}

fn prefixes() -> ResourcePrefixes {
    "akri.sh".parse().unwrap()
}

/// Returns the data of the file, as the kubelet writes it.
fn data(given: &Given) -> Data {
    let entry = |((uid, container, resource), given): (&Holding, &super::kubelet::Given)| {
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
    };
    Data {
        pod_device_entries: Some(given.iter().map(entry).collect()),
        registered_devices: None,
    }
}
