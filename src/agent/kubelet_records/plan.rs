//! Combines the kubelet's two records about our resources, and decides when they can be trusted. Pure.
use crate::{
    agent::values::{IdsByResource, PodList, Prepared},
    model::{
        container_edits::SLOT_VARIABLE,
        instance_name::is_digest_of_variable,
        names::ObjectKey,
        resource_name::{ResourceName, ResourcePrefixes},
        slot::{ListedId, SlotId, SlotOwner},
        slot_table::{Held, Use},
    },
};
use petiole_kubelet_api::{checkpoint, device_plugin::ContainerAllocateResponse};
use prost::Message as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The ids of one resource that one container holds, by the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) resource: ResourceName,
    pub(crate) ids: BTreeSet<String>,
    /// See [`Use`].
    pub(crate) env_slots: BTreeSet<SlotId>,
    pub(crate) digests: BTreeSet<String>,
}

/// The file that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unreadable(pub(crate) String);

/// The checkpoint as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Checkpoint {
    /// A kubelet that keeps none: its list is all there is.
    Missing,
    Unreadable(Unreadable),
    Read {
        entries: Vec<Entry>,
        /// True if the kubelet has written it after it had dropped the Pods that ended before the list was made.
        is_fresh: bool,
    },
}

/// Both records, as one look found them.
#[derive(Debug)]
pub(crate) struct KubeletRecords {
    pub(crate) list: PodList,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) claims: Prepared,
}

/// Both records, and whether they can be trusted.
#[derive(Debug)]
pub(crate) struct RecordsLook {
    pub(crate) records: KubeletRecords,
    /// True if the list has the Pods that run.
    pub(crate) is_trusted: bool,
    /// True if the kubelet has been running for long enough to list what runs.
    pub(crate) has_started: bool,
}

impl RecordsLook {
    /// Returns the records, if a slot that they miss may be released.
    pub(crate) fn trusted(self) -> Option<KubeletRecords> {
        self.is_trusted.then_some(self.records)
    }

    /// Returns all that containers have or may have; `None` where a container may have more. If the checkpoint is missing, that
    /// says nothing, unless the kubelet keeps none at all.
    pub(crate) fn all_uses(&self) -> Option<Vec<Use>> {
        match self.records.checkpoint {
            Checkpoint::Missing if self.is_trusted && self.has_started => Some(self.records.uses()),
            Checkpoint::Missing | Checkpoint::Unreadable(_) | Checkpoint::Read { .. } => {
                self.records.kept_uses()
            }
        }
    }
}

/// A look whose checkpoint was fresh. As long as no Pod has gone since, no entry can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Confirmed {
    /// The uptime at which that look was begun.
    pub(crate) begun: Duration,
    pub(crate) pods: BTreeSet<ObjectKey>,
    /// The ids that were in doubt at the look before, too: their Pods had been admitted when the list was made, so that
    /// those which live are among `pods`.
    pub(crate) doubts: BTreeSet<String>,
    /// All ids that were in doubt. The Pods of new ones may have been admitted after the list was made.
    pub(crate) seen: BTreeSet<String>,
}

/// The time of a look at the kubelet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    /// The uptime at which it was begun.
    pub(crate) begun: Duration,
    /// The time for which a checkpoint that was fresh counts as such while no Pod goes.
    pub(crate) at_most: Duration,
}

impl Confirmed {
    /// Returns what these records, with a checkpoint that is fresh, confirm. `last` is what the look before confirmed.
    pub(crate) fn by(
        records: &KubeletRecords,
        held: &[Held],
        begun: Duration,
        last: Option<&Self>,
    ) -> Self {
        let seen = records.doubts(held);
        let known = last.map(|last| &last.seen & &seen);
        Self {
            begun,
            pods: records.list.pods.clone(),
            doubts: known.unwrap_or_default(),
            seen,
        }
    }

    /// Returns whether the checkpoint need not be written anew for a look with these doubts. Between two looks a Pod
    /// may be replaced by another of its name, which does not show: so that is not for ever.
    pub(crate) fn still_holds(
        &self,
        records: &KubeletRecords,
        doubts: &BTreeSet<String>,
        at: At,
    ) -> bool {
        at.begun.saturating_sub(self.begun) < at.at_most
            && self.pods.is_subset(&records.list.pods)
            && doubts.is_subset(&self.doubts)
    }
}

impl KubeletRecords {
    /// Returns whether the list has the agent's own Pod: for a while after its start a kubelet lists nothing, while
    /// containers run, and so it does as long as it cannot reach the API server.
    pub(crate) fn are_whole(&self, own_pod: &ObjectKey) -> bool {
        self.list.pods.contains(own_pod)
    }

    /// The ids in the checkpoint and not on the list, and those of slots of this node that are not on the list. An
    /// ended Pod leaves the list at once, and the checkpoint when that is written next; an init container is in the
    /// checkpoint alone.
    pub(crate) fn doubts(&self, held: &[Held]) -> BTreeSet<String> {
        let listed: BTreeSet<&String> = self.list.by_resource.values().flatten().collect();
        let kept = self.entries().flat_map(|entry| &entry.ids);
        let kept = kept.filter(|id| !listed.contains(id)).cloned();
        let by_plugins = held.iter().filter(|held| !held.owner.is_claim());
        let claimed = by_plugins.map(Held::id);
        let claimed = claimed.filter(|id| !listed.contains(id));
        kept.chain(claimed).collect()
    }

    /// Returns whether a ResourceClaim that is prepared has the slot.
    pub(crate) fn is_prepared(&self, held: &Held) -> bool {
        match &held.owner {
            SlotOwner::Claim { uid, .. } => {
                self.claims.are_unknown || self.claims.uids.contains(uid)
            }
            SlotOwner::Node(_) | SlotOwner::Configuration { .. } => false,
        }
    }

    /// Returns the ids that containers hold or may hold; `None` where a book cannot be read. An id begins with the name of the plugin
    /// that it was made for, whatever its resource is called: a container keeps it when that gets another name.
    pub(crate) fn held(&self) -> Option<BTreeSet<String>> {
        match self.checkpoint {
            Checkpoint::Unreadable(_) => None,
            Checkpoint::Missing | Checkpoint::Read { .. } => {
                Some(self.held_by_resource().into_values().flatten().collect())
            }
        }
    }

    /// Returns the same ids by resource, as far as the records can be read.
    pub(crate) fn held_by_resource(&self) -> IdsByResource {
        let mut ids = self.list.by_resource.clone();
        for entry in self.entries() {
            let of_resource = ids.entry(entry.resource.clone()).or_default();
            of_resource.extend(entry.ids.iter().cloned());
        }
        ids
    }

    /// Returns the ids that containers certainly hold, with the slots that their environment names.
    pub(crate) fn uses(&self) -> Vec<Use> {
        let is_fresh = self.is_fresh();
        self.uses_if(|is_listed| is_fresh || is_listed)
    }

    /// Returns all that containers have or may have, if the checkpoint can be read. The kubelet writes it with each allocation
    /// and keeps it over its restart, so it has them all, however old it is otherwise.
    pub(crate) fn kept_uses(&self) -> Option<Vec<Use>> {
        let is_read = matches!(self.checkpoint, Checkpoint::Read { .. });
        is_read.then(|| self.uses_if(|_| true))
    }

    /// Returns the ids on the list, and those of the checkpoint that `is_certain` accepts by whether they are on the list.
    fn uses_if(&self, is_certain: impl Fn(bool) -> bool) -> Vec<Use> {
        let mut unkept = self.list.by_resource.clone();
        let mut uses = vec![];
        for entry in self.entries() {
            let listed = unkept.get_mut(&entry.resource);
            let is_listed = |id: &String| listed.as_ref().is_some_and(|all| all.contains(id));
            let is_certain = |id: &&String| is_certain(is_listed(id));
            let ids: BTreeSet<String> = entry.ids.iter().filter(is_certain).cloned().collect();
            if let Some(listed) = listed {
                listed.retain(|id| !ids.contains(id));
            }
            uses.push(Use {
                resource: Some(entry.resource.clone()),
                ids: listed_ids(&ids),
                env_slots: entry.env_slots.clone(),
                claim: None,
                digests: entry.digests.clone(),
            });
        }
        for (resource, ids) in unkept {
            uses.extend(ids.iter().map(|id| Use {
                resource: Some(resource.clone()),
                ids: listed_ids([id]),
                ..Use::default()
            }));
        }
        uses.extend(self.claims.uses.iter().cloned());
        uses.retain(|one| !one.ids.is_empty());
        uses
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        let entries = match &self.checkpoint {
            Checkpoint::Missing | Checkpoint::Unreadable(_) => &[][..],
            Checkpoint::Read { entries, .. } => entries,
        };
        entries.iter()
    }

    /// Returns whether the kubelet has written its checkpoint for this look.
    pub(crate) fn is_fresh(&self) -> bool {
        matches!(self.checkpoint, Checkpoint::Read { is_fresh, .. } if is_fresh)
    }
}

fn listed_ids<'a>(ids: impl IntoIterator<Item = &'a String>) -> BTreeSet<ListedId> {
    ids.into_iter().filter_map(|id| id.parse().ok()).collect()
}

/// Returns what an entry says, if it is of one of our resources, or was when its container got our slots: a running container keeps
/// them when the prefixes become others.
pub(crate) fn entry(entry: &checkpoint::Entry, prefixes: &ResourcePrefixes) -> Option<Entry> {
    let response = entry.response().unwrap_or_default();
    // An unreadable part says nothing; the ids are held all the same.
    let response = ContainerAllocateResponse::decode(response.as_slice()).unwrap_or_default();
    let env_slots = env_slots(&response.envs);
    let former = || entry.resource_name.parse().ok();
    let resource = (prefixes.own_name(&entry.resource_name))
        .or_else(|| former().filter(|_| !env_slots.is_empty()))?;
    Some(Entry {
        ids: entry.ids().cloned().collect(),
        env_slots,
        digests: digests(&response.envs),
        resource,
    })
}

fn env_slots(env: &BTreeMap<String, String>) -> BTreeSet<SlotId> {
    let slots = env.get(SLOT_VARIABLE).map_or("", String::as_str);
    slots.split(',').filter_map(|id| id.parse().ok()).collect()
}

/// Returns the endings of variables that may be digests of devices. A container that an Akri agent gave its devices has
/// no variable with its slots; it has every property as `KEY_<DIGEST>`.
fn digests(env: &BTreeMap<String, String>) -> BTreeSet<String> {
    let ends = env.keys().filter_map(|key| Some(key.rsplit_once('_')?.1));
    let digests = ends.filter(|end| is_digest_of_variable(end));
    digests.map(str::to_lowercase).collect()
}

/// The resource whose plugin sends its list once more, so that the kubelet writes its checkpoint anew: it writes all of
/// it at every list, whichever plugin's. None where the kubelet listens to none.
pub(crate) fn resent(registered: &BTreeSet<ResourceName>) -> Option<&ResourceName> {
    registered.first()
}

#[cfg(test)]
mod tests;
