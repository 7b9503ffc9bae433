//! What an Instance is after a change. Pure.
use super::{Exchange, InstanceChange, Report, StoreError, key_of};
use crate::{
    api::{
        condition::Condition,
        configuration::{ConfigurationStatus, NodeReport},
        instance::{Instance, InstanceStatus, NodeHealth},
        names,
    },
    model::slot::SlotOwner,
};

const HEALTHY: &str = "Healthy";

/// `instance` after `change`, as `node` makes it; `None` where it is deleted by it.
pub fn changed(instance: &Instance, change: &InstanceChange, node: &str) -> Option<Instance> {
    let mut instance = instance.clone();
    match change {
        InstanceChange::Create(_) => {}
        InstanceChange::Join(_) => {
            if !instance.spec.nodes.iter().any(|n| n == node) {
                instance.spec.nodes.push(node.to_owned());
            }
        }
        InstanceChange::Leave(_) => {
            instance.spec.nodes.retain(|n| n != node);
            if let Some(status) = &mut instance.status {
                status.nodes.retain(|n| n.name != node);
            }
        }
        InstanceChange::Describe {
            capacity,
            broker_properties,
            device_id,
            ..
        } => {
            instance.spec.capacity = *capacity;
            instance
                .spec
                .broker_properties
                .clone_from(broker_properties);
            if let Some(id) = device_id {
                let annotations = instance.metadata.annotations.get_or_insert_default();
                annotations.insert(names::DEVICE_ID.to_owned(), id.clone());
            }
        }
        InstanceChange::Health {
            is_healthy, now, ..
        } => {
            let status = instance.status.get_or_insert_default();
            *status = with_health(status, node, *is_healthy, now);
        }
        InstanceChange::Delete { .. } => return None,
    }
    Some(instance)
}

/// Whether [`with_health`] would change nothing.
pub fn says_health(status: &InstanceStatus, node: &str, is_healthy: bool) -> bool {
    let says = |entry: &NodeHealth| (entry.health == HEALTHY) == is_healthy;
    let is_available = status.nodes.iter().any(|entry| entry.health == HEALTHY);
    status
        .nodes
        .iter()
        .any(|entry| entry.name == node && says(entry))
        && (status.conditions.iter()).any(|c| c.type_ == "Available" && c.is_true() == is_available)
}

/// A status after `node` has looked at the device.
pub fn with_health(
    status: &InstanceStatus,
    node: &str,
    is_healthy: bool,
    now: &str,
) -> InstanceStatus {
    let mut status = status.clone();
    let health = if is_healthy { HEALTHY } else { "Unhealthy" };
    match status.nodes.iter_mut().find(|n| n.name == node) {
        Some(entry) if entry.health == health => {}
        Some(entry) => {
            health.clone_into(&mut entry.health);
            now.clone_into(&mut entry.last_transition_time);
        }
        None => status.nodes.push(NodeHealth {
            name: node.to_owned(),
            health: health.to_owned(),
            last_transition_time: now.to_owned(),
        }),
    }
    let is_available = status.nodes.iter().any(|n| n.health == HEALTHY);
    let (value, reason, message) = if is_available {
        ("True", "DeviceSeen", "at least one node sees the device")
    } else {
        (
            "False",
            "DeviceGone",
            "no node sees the device; the Instance is deleted when the grace period of its Configuration is over",
        )
    };
    let since = (status.conditions.iter())
        .find(|c| c.type_ == "Available" && c.status == value)
        .map_or(now, |c| &c.last_transition_time)
        .to_owned();
    status.conditions = vec![Condition {
        type_: "Available".to_owned(),
        status: value.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: since,
        observed_generation: None,
    }];
    status
}

/// `instance` with new owners for its slots: all of `exchanges`, or the first that does not find the owner it expects.
pub(super) fn exchanged(
    instance: &Instance,
    exchanges: &[&Exchange],
) -> Result<Instance, StoreError> {
    let mut instance = instance.clone();
    for Exchange { change, told } in exchanges {
        let id = change.slot.to_string();
        let usage = instance
            .spec
            .device_usage
            .get(&id)
            .cloned()
            .unwrap_or_default();
        // A value nobody understands is somebody else's.
        let current = SlotOwner::from_usage(&usage).unwrap_or(Some(SlotOwner::Node(usage.clone())));
        if current != change.from && current != change.to {
            return Err(StoreError::SlotTaken {
                instance: key_of(&instance.metadata),
                slot: id,
                owner: usage,
            });
        }
        let annotation = format!("{}{}", names::TOLD_PREFIX, change.slot.index);
        let annotations = instance.metadata.annotations.get_or_insert_default();
        match told.as_ref().filter(|_| change.to.is_some()) {
            Some(told) => annotations.insert(annotation, told.clone()),
            None => annotations.remove(&annotation),
        };
        match &change.to {
            Some(owner) => instance.spec.device_usage.insert(id, owner.to_string()),
            None => instance.spec.device_usage.remove(&id),
        };
    }
    Ok(instance)
}

/// The status of a Configuration that has one node.
pub(super) fn status_of(
    report: &Report,
    node: &str,
    before: Option<&ConfigurationStatus>,
    now: &str,
) -> ConfigurationStatus {
    let (value, reason, message) = match report.problems.first() {
        None => (
            "True",
            "Working",
            "every device that is found is offered".to_owned(),
        ),
        Some(problem) => ("False", problem.reason.as_str(), problem.message.clone()),
    };
    let since = before
        .and_then(|status| status.conditions.iter().find(|c| c.status == value))
        .map_or(now, |c| &c.last_transition_time)
        .to_owned();
    let instances = i64::try_from(report.instances).unwrap_or(i64::MAX);
    ConfigurationStatus {
        observed_generation: None,
        conditions: vec![Condition {
            type_: "Ready".to_owned(),
            status: value.to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: since,
            observed_generation: None,
        }],
        instances,
        nodes: vec![NodeReport {
            name: node.to_owned(),
            instances,
            problems: report.problems.clone(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{names::ObjectKey, slot::SlotId, slot_table::SlotChange};

    fn camera() -> Instance {
        let mut instance = Instance::new("cam-1", Default::default());
        instance.spec.nodes = vec!["a".to_owned()];
        instance
    }

    fn exchange(from: Option<&str>, to: Option<&str>) -> Exchange {
        let owner = |o: &str| SlotOwner::Node(o.to_owned());
        Exchange {
            change: SlotChange {
                key: ObjectKey::new("default", "cam-1"),
                slot: SlotId::new("cam-1", 0),
                from: from.map(owner),
                to: to.map(owner),
            },
            told: Some("digest".to_owned()),
        }
    }

    #[test]
    fn a_slot_goes_only_from_the_owner_that_was_expected() {
        let claimed = exchanged(&camera(), &[&exchange(None, Some("a"))]).unwrap();
        assert_eq!(claimed.spec.device_usage["cam-1-0"], "a");
        assert_eq!(
            claimed.metadata.annotations.as_ref().unwrap()["told.akri.sh/0"],
            "digest"
        );

        let refused = exchanged(&claimed, &[&exchange(None, Some("b"))]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "slot cam-1-0 of Instance default/cam-1 was just taken by a"
        );

        let released = exchanged(&claimed, &[&exchange(Some("a"), None)]).unwrap();
        assert!(released.spec.device_usage.is_empty());
        assert!(released.metadata.annotations.unwrap().is_empty());
    }

    #[test]
    fn an_instance_is_available_while_one_node_sees_its_device() {
        let status = with_health(&InstanceStatus::default(), "a", true, "t1");
        let status = with_health(&status, "b", false, "t2");
        assert!(status.conditions[0].is_true());
        let gone = with_health(&status, "a", false, "t3");
        assert!(!gone.conditions[0].is_true());
        assert_eq!(gone.conditions[0].last_transition_time, "t3");
        assert_eq!(with_health(&gone, "a", false, "t4"), gone);
        for (status, is_healthy) in [
            (&status, true),
            (&status, false),
            (&gone, true),
            (&gone, false),
        ] {
            let is_same = with_health(status, "a", is_healthy, "t5") == *status;
            assert_eq!(says_health(status, "a", is_healthy), is_same);
        }
        assert!(!says_health(&gone, "c", false));
    }

    #[test]
    fn joining_twice_and_leaving_once_leaves_nobody() {
        let key = ObjectKey::new("default", "cam-1");
        let joined = changed(&camera(), &InstanceChange::Join(key.clone()), "b").unwrap();
        let joined = changed(&joined, &InstanceChange::Join(key.clone()), "b").unwrap();
        assert_eq!(joined.spec.nodes, ["a", "b"]);
        let left = changed(&joined, &InstanceChange::Leave(key), "b").unwrap();
        assert_eq!(left.spec.nodes, ["a"]);
    }
}
