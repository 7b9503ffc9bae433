//! Compares the slots with the kubelet's records every few seconds. Slots whose containers have ended are released, because
//! the kubelet has no call for that. Slots that containers use and that are free in the Instance are claimed.
use super::{
    plan::{Look, Missed, Retries, due_claims, new_conflicts, next_look, releases},
    request::{Request, Requests},
    table::SharedTable,
};
use crate::{
    agent::{
        kubelet_records::{self as records, Checkpoint, Confirmed, RecordsReader},
        settings::{Clock, Settings},
        values::{KubeletSocket, ValidatedConfigurations},
    },
    api::reason::Reason,
    model::slot_table::{HeldTwice, SETTLED_AFTER, SlotTable, Use},
    publish,
    store::{About, Store},
    supervisor::ChannelClosed,
    telemetry::metrics,
};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tracing::{info, warn};

/// The wait between the arrival of an Instance and the next look is `look_interval` divided by this. Instances that arrive
/// together share one look.
const ARRIVAL_WAIT_DIVISOR: u32 = 20;

/// The time after which the Instances are believed if no look can tell what containers have.
const BLIND_FOR: Duration = SETTLED_AFTER;

/// The inputs of the looks.
pub(in crate::agent) struct Inputs {
    pub(in crate::agent) settings: Arc<Settings>,
    pub(in crate::agent) clock: Clock,
    pub(in crate::agent) records: RecordsReader,
    pub(in crate::agent) table: SharedTable,
    pub(in crate::agent) validated: watch::Receiver<Arc<ValidatedConfigurations>>,
    pub(in crate::agent) kubelet: watch::Receiver<Option<KubeletSocket>>,
    /// The store writes the Events.
    pub(in crate::agent) store: Arc<dyn Store>,
}

/// The devices that containers used at the last look; `None` if the kubelet's records could not be trusted.
type Uses = Option<Arc<[Use]>>;

/// The state that one look keeps for the next.
#[derive(Default)]
struct LastLook {
    missed: Missed,
    retries: Retries,
    /// The slots that the last look found with two holders.
    twice: Vec<HeldTwice>,
    /// The ids that the last fresh checkpoint confirmed.
    confirmed: Option<Confirmed>,
    /// The number of looks since slots wait to be confirmed.
    unconfirmed: u32,
    /// The uptime at which the kubelet was first seen.
    kubelet_since: Duration,
    /// The error of the checkpoint, if it could not be read.
    unreadable: Option<String>,
    /// The uptime of the first look since which no look could tell what containers have.
    blind_since: Option<Duration>,
    /// The uptime of the first look since which no look was to be trusted.
    distrusted_since: Option<Duration>,
    is_distrust_told: bool,
}

/// Looks every few seconds while this node has Instances, or can get some soon because of a Configuration or because a
/// container has a device. Sends releases and claims to `requests`, and publishes the used devices to `uses`.
pub(in crate::agent) async fn run(
    inputs: Inputs,
    requests: Requests,
    uses: watch::Sender<Uses>,
) -> anyhow::Result<Infallible> {
    let mut slots = inputs.table.subscribe();
    let (mut validated, mut kubelet) = (inputs.validated.clone(), inputs.kubelet.clone());
    let interval = inputs.settings.look_interval;
    let mut memory = LastLook::default();
    loop {
        if uses.borrow().as_deref().is_none_or(<[_]>::is_empty) {
            until_needed(&mut slots, &mut validated).await?;
        }
        if kubelet.has_changed()? {
            // A new kubelet lists nothing for a while, though containers run.
            kubelet.borrow_and_update();
            memory.missed.clear();
            memory.confirmed = None;
            memory.kubelet_since = inputs.clock.uptime();
        }
        let begun = inputs.clock.uptime();
        let (held, arrivals) = {
            let slots = slots.borrow_and_update();
            (slots.held(), slots.arrivals())
        };
        let look = inputs.records.look(&held, &mut memory.confirmed).await;
        let all = match &look {
            Ok(look) => look.all_uses(),
            Err(_) => inputs.records.kept_uses().await,
        };
        memory.learn(&inputs.table, all, arrivals, begun);
        match look {
            Ok(look) => {
                for request in memory.decide(&inputs, look, &uses, begun) {
                    (requests.send(request).await).map_err(|_| ChannelClosed)?;
                }
            }
            Err(e) => memory.distrust(&uses, begun, &format!("{e:#}")),
        }
        // A new Instance may be that of a device that a container has.
        memory.unconfirmed = if inputs.table.borrow().has_unconfirmed() {
            memory.unconfirmed + 1
        } else {
            0
        };
        let now = inputs.clock.uptime();
        let wait = next_look(interval, &memory.missed, memory.unconfirmed, begun, now);
        if arrives_before_look(&mut slots, arrivals, wait).await? {
            sleep(interval / ARRIVAL_WAIT_DIVISOR).await;
        }
    }
}

/// Waits until there is an Instance, or a Configuration that may get one.
async fn until_needed(
    slots: &mut watch::Receiver<SlotTable>,
    validated: &mut watch::Receiver<Arc<ValidatedConfigurations>>,
) -> anyhow::Result<()> {
    tokio::select! {
        biased;
        some = slots.wait_for(|slots| !slots.is_empty()) => drop(some?),
        some = validated.wait_for(|validated| !validated.accepted.is_empty()) => drop(some?),
    }
    Ok(())
}

/// Waits for the next look. Returns whether an Instance arrived first.
async fn arrives_before_look(
    slots: &mut watch::Receiver<SlotTable>,
    arrivals: u64,
    wait: Duration,
) -> anyhow::Result<bool> {
    let arrival = slots.wait_for(|slots| slots.arrivals() != arrivals);
    match timeout(wait, arrival).await {
        Ok(arrived) => Ok(arrived.map(|_| true)?),
        Err(_) => Ok(false),
    }
}

impl LastLook {
    /// Forgets the earlier looks, because the kubelet's records cannot be trusted now. Claims stay. Logs once that it lasts.
    fn distrust(&mut self, uses: &watch::Sender<Uses>, begun: Duration, why: &str) {
        self.missed.clear();
        publish::if_changed(uses, None);
        let since = *self.distrusted_since.get_or_insert(begun);
        if begun.saturating_sub(since) >= BLIND_FOR && !self.is_distrust_told {
            self.is_distrust_told = true;
            warn!(
                "the kubelet's records cannot be used, and no slot is released until they can: {why}"
            );
        }
    }

    fn trust(&mut self) {
        self.distrusted_since = None;
        if std::mem::take(&mut self.is_distrust_told) {
            info!("the kubelet's records can be used again");
        }
    }

    /// Takes over all that containers have or may have. If nobody can tell that for [`BLIND_FOR`], the Instances are believed:
    /// otherwise no container would get a device of this node any more.
    fn learn(
        &mut self,
        table: &SharedTable,
        all: Option<Vec<Use>>,
        arrivals: u64,
        begun: Duration,
    ) {
        let Some(all) = all else {
            let since = *self.blind_since.get_or_insert(begun);
            if begun.saturating_sub(since) >= BLIND_FOR && table.trust(arrivals) {
                warn!(
                    "nothing could say for {} s what containers have, neither the kubelet's {} nor the record of claims: the Instances alone say which slots are free, so a slot that was given out just before this agent started could be given out again; make both readable for the agent",
                    BLIND_FOR.as_secs(),
                    petiole_kubelet_api::checkpoint::FILE
                );
            }
            return;
        };
        self.blind_since = None;
        table.confirm(all, arrivals, begun);
    }

    fn decide(
        &mut self,
        inputs: &Inputs,
        look: records::RecordsLook,
        published: &watch::Sender<Uses>,
        begun: Duration,
    ) -> Vec<Request> {
        let Some(records) = look.trusted() else {
            self.distrust(published, begun, "its list of Pods may not be complete yet");
            return vec![];
        };
        self.trust();
        let look = Look {
            begun,
            interval: inputs.settings.look_interval,
            is_fresh: records.is_fresh(),
            kubelet_since: self.kubelet_since,
        };
        // The table as it is now: what was claimed since the look is not to be claimed again.
        let uses = records.uses();
        let (held, adoptions) = {
            let slots = inputs.table.borrow();
            (slots.held(), slots.adoptions(&uses))
        };
        let held: Vec<_> = (held.into_iter())
            .filter(|held| !records.is_prepared(held))
            .collect();
        self.report_checkpoint(&records.checkpoint);
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
        let (claimed, retries) = due_claims(&adoptions, look, &self.retries);
        self.retries = retries;
        self.report_conflicts(inputs, adoptions.twice);
        publish::if_changed(published, Some(uses.into()));
        let release = (!released.is_empty()).then_some(Request::Release {
            changes: released,
            begun,
        });
        let adopt = (!claimed.is_empty()).then_some(Request::Adopt {
            changes: claimed,
            begun,
        });
        release.into_iter().chain(adopt).collect()
    }

    /// Logs once that the checkpoint cannot be read, and once that it can be read again.
    fn report_checkpoint(&mut self, checkpoint: &Checkpoint) {
        let now = match checkpoint {
            Checkpoint::Unreadable(error) => Some(error.to_string()),
            Checkpoint::Missing | Checkpoint::Read { .. } => None,
        };
        if self.unreadable != now {
            match &now {
                Some(error) => warn!(
                    "the kubelet's checkpoint cannot be read, and no slot is released until it can: {error}"
                ),
                None => info!("the kubelet's checkpoint can be read again"),
            }
        }
        self.unreadable = now;
    }

    fn report_conflicts(&mut self, inputs: &Inputs, twice: Vec<HeldTwice>) {
        for one in new_conflicts(&twice, &self.twice) {
            let HeldTwice {
                slot, id, owner, ..
            } = one;
            let name = &inputs.settings.node_name;
            // `petiole why` reads slot, node and id from these words (petiole-people, inspect/twice.rs).
            let note = format!(
                "slot {slot} is held by {owner}, and a container on node {name} uses it too, as {id}: delete one of the two Pods. Until then the slot is Unhealthy on node {name}"
            );
            warn!(instance = %one.key, "{}: {note}", Reason::SlotHeldTwice);
            (inputs.store).warn(
                &About::Instance(one.key.clone()),
                Reason::SlotHeldTwice,
                note,
            );
        }
        metrics().set_slots_held_twice(twice.len());
        self.twice = twice;
    }
}
