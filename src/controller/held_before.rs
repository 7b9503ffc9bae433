//! Remembers the slots of Instances that were deleted while containers had them, as when somebody replaces a Configuration: the
//! Instance that is made anew shows them from its first moment, whichever node reports the device first. Pure.
use crate::{api::instance::Instance, model::instance_name::InstanceKey};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// The time for which the slots of a deleted Instance are remembered. An agent reports the device again within seconds, and releases
/// what no container has.
const KEPT_FOR: Duration = Duration::from_mins(5);
/// The most slots of deleted Instances that are remembered. Beyond it: none of one more Instance, and the node that reports first may give them out.
const SLOTS_MAX: usize = 10_000;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HeldBefore {
    instances: BTreeMap<InstanceKey, Held>,
    slots: usize,
}

#[derive(Debug, Clone, PartialEq)]
struct Held {
    usage: BTreeMap<String, String>,
    /// The time until which it is remembered. `None` until the time of the deletion is known.
    until: Option<Instant>,
}

impl HeldBefore {
    /// Takes over the slots of an Instance that is gone. A device that one node has needs this not: it alone reports it.
    pub(super) fn deleted(this: &mut Arc<Self>, key: &InstanceKey, instance: &Instance) {
        if this.instances.contains_key(key) {
            let this = Arc::make_mut(this);
            let before = this.instances.remove(key);
            this.slots -= before.map_or(0, |held| held.usage.len());
        }
        let usage = &instance.spec.device_usage;
        if !instance.spec.shared || this.slots + usage.len() > SLOTS_MAX {
            return;
        }
        let usage: BTreeMap<_, _> = (usage.iter())
            .filter(|(_, owner)| !owner.is_empty())
            .map(|(slot, owner)| (slot.clone(), owner.clone()))
            .collect();
        if !usage.is_empty() {
            let (this, until) = (Arc::make_mut(this), None);
            this.slots += usage.len();
            this.instances.insert(key.clone(), Held { usage, until });
        }
    }

    /// Forgets what is too old.
    pub(super) fn expire(this: &mut Arc<Self>, now: Instant) {
        let is_over = |held: &Held| held.until.is_some_and(|until| until <= now);
        let mut all = this.instances.values();
        if !all.any(|held| held.until.is_none() || is_over(held)) {
            return;
        }
        let this = Arc::make_mut(this);
        this.instances.retain(|_, held| {
            held.until.get_or_insert(now + KEPT_FOR);
            !is_over(held)
        });
        this.slots = this.instances.values().map(|held| held.usage.len()).sum();
    }

    /// Returns the slots of an Instance that was deleted a short time ago.
    pub(crate) fn usage(&self, key: &InstanceKey) -> Option<&BTreeMap<String, String>> {
        Some(&self.instances.get(key)?.usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::fixtures::{instance, key};
    use serde_json::json;

    #[test]
    fn slots_of_shared_devices_are_remembered_for_a_while_and_up_to_a_bound() {
        let mut all = Arc::new(HeldBefore::default());
        let now = Instant::now();
        let held = |slots: usize, shared: bool| {
            let usage: BTreeMap<_, _> = (0..slots).map(|n| (format!("s-{n}"), "a")).collect();
            instance(
                "x",
                json!({"spec": {"shared": shared, "deviceUsage": usage}}),
            )
        };
        HeldBefore::deleted(&mut all, &key("own"), &held(1, false));
        HeldBefore::deleted(&mut all, &key("free"), &held(0, true));
        HeldBefore::deleted(&mut all, &key("cam"), &held(1, true));
        HeldBefore::deleted(&mut all, &key("many"), &held(SLOTS_MAX, true));
        for (at, known) in [
            (Duration::ZERO, 1),
            (KEPT_FOR - Duration::from_secs(1), 1),
            (KEPT_FOR, 0),
        ] {
            HeldBefore::expire(&mut all, now + at);
            assert_eq!((all.instances.len(), all.slots), (known, known));
            assert_eq!(all.usage(&key("cam")).is_some(), known == 1);
        }
        // It was made anew, and nobody had it the next time.
        HeldBefore::deleted(&mut all, &key("cam"), &held(1, true));
        HeldBefore::deleted(&mut all, &key("cam"), &held(0, true));
        assert_eq!(*all, HeldBefore::default());
    }
}
