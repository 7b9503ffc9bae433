//! Holds what this node remembers of the slots that it alone gives out: see `own`. Pure.
use super::values::{SlotChange, Use};
use crate::model::{
    instance_name::InstanceName,
    slot::{SlotId, SlotOwner},
};
use std::{collections::BTreeMap, time::Duration};

/// A slot that a container of this node holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnSlot {
    pub(super) owner: SlotOwner,
    /// The digest of the connection that the container was given, if it is known.
    pub(super) told: Option<String>,
}

/// The remembered slots of devices that this node alone has. They outlive their Instances.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OwnSlots {
    pub(super) held: BTreeMap<SlotId, OwnSlot>,
    /// All that containers have or may have, by the last look that could be trusted. What was given since is in `held`.
    /// `None` before the first such look.
    pub(super) uses: Option<Vec<Use>>,
    /// The uptime at which that look began.
    pub(super) begun: Duration,
}

impl OwnSlots {
    pub(super) fn of<'a>(
        &'a self,
        instance: &'a InstanceName,
    ) -> impl Iterator<Item = (&'a SlotId, &'a OwnSlot)> {
        let from = SlotId::new(instance, 0);
        let of_others = move |slot: &SlotId| slot.instance == *instance;
        (self.held.range(from..)).take_while(move |(slot, _)| of_others(slot))
    }

    pub(super) fn remembers(&self, slot: &SlotId) -> bool {
        self.held.contains_key(slot)
    }

    /// Returns all that containers had at the last look.
    pub(super) fn uses(&self) -> &[Use] {
        self.uses.as_deref().unwrap_or_default()
    }

    /// Forgets a slot whose owner the Instance says.
    pub(super) fn forget(&mut self, slot: &SlotId) {
        self.held.remove(slot);
    }

    /// Takes over a change of a slot's owner.
    pub(super) fn settle(&mut self, change: &SlotChange) {
        match &change.to {
            Some(owner) => {
                let before = self.held.remove(&change.slot);
                let same = before.filter(|before| before.owner == *owner);
                let told = change.connection_digest.clone();
                let now = OwnSlot {
                    owner: owner.clone(),
                    told: told.or_else(|| same?.told),
                };
                self.held.insert(change.slot.clone(), now);
            }
            None => drop(self.held.remove(&change.slot)),
        }
    }

    /// Returns whether no container can have slots of an Instance that arrives now but those that are remembered.
    pub(super) fn knows(&self, instance: &InstanceName) -> bool {
        let uses = self.uses.as_ref();
        uses.is_some_and(|uses| !uses.iter().any(|one| one.may_be_of(instance)))
    }
}
