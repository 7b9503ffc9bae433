//! Computes an Instance after a change. Pure.
use super::{Exchange, Health, InstanceChange, StoreError, instance_key};
use crate::{
    api::{
        condition::{Condition, ConditionStatus, ConditionType},
        instance::{HEALTHY, Instance, InstanceSpec, InstanceStatus, NodeHealth, UNHEALTHY},
        names,
        reason::Reason,
    },
    model::{
        slot::{SlotOwner, holders},
        slot_table::SlotChange,
        typed_names::NodeName,
    },
};

/// The most nodes that a condition names.
const NAMED: usize = 5;

/// Returns `instance` after `change` by `node`; `None` if the change deletes it.
pub fn changed(instance: &Instance, change: &InstanceChange, node: &str) -> Option<Instance> {
    let mut instance = instance.clone();
    match change {
        InstanceChange::Create(_) => {}
        InstanceChange::Join(_) => {
            if !instance.spec.names_node(node) {
                instance.spec.nodes.push(node.into());
            }
        }
        InstanceChange::Leave(_) => {
            instance.spec.nodes.retain(|n| n != node);
            if let Some(status) = &mut instance.status {
                status.nodes.retain(|n| n.name != node);
                let last = status.conditions.first();
                let last = last.map(|c| c.last_transition_time.clone());
                let now = last.unwrap_or_default();
                *status = with_availability(std::mem::take(status), &instance.spec, &now);
            }
        }
        InstanceChange::Describe {
            capacity,
            broker_properties,
            device_id,
            pin,
            connection,
            ..
        } => {
            instance.spec.capacity = *capacity;
            instance
                .spec
                .broker_properties
                .clone_from(broker_properties);
            let notes = [
                (names::DEVICE_ID, device_id),
                (names::PIN, pin),
                (names::CONNECTION, connection),
            ];
            for (key, value) in notes {
                if let Some(value) = value {
                    let annotations = instance.metadata.annotations.get_or_insert_default();
                    annotations.insert(key.to_owned(), value.clone());
                }
            }
        }
        InstanceChange::Health { health, now, .. } => {
            let status = instance.status.get_or_insert_default();
            let seen = with_health(status, node, health, now);
            *status = with_availability(seen, &instance.spec, now);
        }
        InstanceChange::Delete { .. } => return None,
    }
    Some(instance)
}

/// Returns an Instance of an earlier run in a folder, whose only node is `node`. If it has another name, the node was
/// renamed.
#[cfg(any(test, feature = "standalone"))]
pub(crate) fn adopted(instance: &Instance, node: &str) -> Instance {
    let mut instance = instance.clone();
    let is_others = |usage: &str| {
        let owner = SlotOwner::from_usage(usage);
        !owner.is_ok_and(|owner| owner.is_some_and(|owner| owner.node() == node))
    };
    // An Instance without nodes is kept only for its slots.
    if !instance.spec.nodes.is_empty() {
        instance.spec.nodes = vec![node.into()];
    }
    instance
        .spec
        .device_usage
        .retain(|_, usage| !is_others(usage));
    if let Some(status) = &mut instance.status {
        status.nodes.retain(|entry| entry.name == node);
    }
    instance
}

/// Returns whether [`with_health`] would change nothing but a message.
pub fn says_health(status: &InstanceStatus, node: &str, health: &Health) -> bool {
    let entry = status.nodes.iter().find(|entry| entry.name == node);
    entry.is_some_and(|entry| {
        entry.health == health.word()
            && entry.reason.as_deref() == health.reason()
            && (health.connection.is_none() || entry.connection == health.connection)
    })
}

impl Health {
    /// Returns the value of `health` in an Instance's status.
    fn word(&self) -> &'static str {
        if self.is_healthy { HEALTHY } else { UNHEALTHY }
    }

    fn reason(&self) -> Option<&'static str> {
        self.trouble.as_ref().map(|trouble| trouble.reason.as_str())
    }
}

/// Returns the status after `node` has checked the device.
pub fn with_health(
    status: &InstanceStatus,
    node: &str,
    health: &Health,
    now: &str,
) -> InstanceStatus {
    let mut status = status.clone();
    let before = status.nodes.iter().position(|entry| entry.name == node);
    let before = before.map(|n| status.nodes.remove(n));
    let is_same = |entry: &&NodeHealth| entry.health == health.word();
    status.nodes.push(NodeHealth {
        name: node.into(),
        health: health.word().to_owned(),
        last_transition_time: (before.as_ref().filter(is_same))
            .map_or(now, |entry| &entry.last_transition_time)
            .to_owned(),
        connection: (health.connection.clone()).or(before.and_then(|entry| entry.connection)),
        reason: health.reason().map(str::to_owned),
        message: health.trouble.as_ref().map(|t| t.message.clone()),
    });
    status.nodes.sort_by(|a, b| a.name.cmp(&b.name));
    status
}

/// Returns the nodes whose containers prevent the deletion of an Instance, as text; `None` if all its slots are free.
pub fn in_use_by(spec: &InstanceSpec) -> Option<String> {
    let holders: Vec<NodeName> = holders(&spec.device_usage).into_iter().collect();
    let named = holders[..holders.len().min(NAMED)].join(", ");
    match holders.len() {
        0 => None,
        1 => Some(format!("node {named}")),
        2..=NAMED => Some(format!("nodes {named}")),
        count => Some(format!("nodes {named} and {} more", count - NAMED)),
    }
}

/// Returns whether a node of an Instance sees the device. It does if the status says nothing else.
pub(crate) fn is_seen(status: &InstanceStatus, node: &str) -> bool {
    let mut entries = status.nodes.iter();
    entries.all(|entry| entry.name != node || entry.health == HEALTHY)
}

/// Returns the status after `node` has checked the device. Only unhealthy states are recorded.
pub(crate) fn with_exception(
    status: &InstanceStatus,
    node: &str,
    health: &Health,
    now: &str,
) -> InstanceStatus {
    let mut after = with_health(status, node, health, now);
    match health.is_healthy && health.trouble.is_none() {
        true => after.nodes.retain(|entry| entry.name != node),
        false => {
            let own = after.nodes.iter_mut().filter(|entry| entry.name == node);
            own.for_each(|entry| entry.connection = None);
        }
    }
    after
}

/// Returns whether [`with_exception`] would change nothing significant.
pub(crate) fn says_exception(status: &InstanceStatus, node: &str, health: &Health) -> bool {
    let entry = status.nodes.iter().find(|entry| entry.name == node);
    match entry {
        Some(entry) => entry.health == health.word() && entry.reason.as_deref() == health.reason(),
        None => health.is_healthy && health.trouble.is_none(),
    }
}

/// Returns `status` with conditions that describe its nodes. Devices that have always been healthy get no conditions.
pub(crate) fn with_conditions(
    status: InstanceStatus,
    spec: &InstanceSpec,
    now: &str,
) -> InstanceStatus {
    let mut entries = status.nodes.iter();
    let is_well = status.conditions.iter().all(is_of_brokers)
        && entries.all(|entry| entry.health == HEALTHY && entry.reason.is_none());
    match is_well && !spec.nodes.is_empty() {
        true => status,
        false => with_availability(status, spec, now),
    }
}

/// Returns the status with conditions that describe its nodes: `Available`, and `Flapping` and `IdentityChanged` where
/// they apply.
pub fn with_availability(
    mut status: InstanceStatus,
    spec: &InstanceSpec,
    now: &str,
) -> InstanceStatus {
    let is_available = spec.nodes.iter().any(|node| is_seen(&status, node));
    let flapping = trouble(
        &status,
        ConditionType::Flapping,
        Reason::Flapping,
        Reason::ComesAndGoes,
        now,
    );
    let identity = trouble(
        &status,
        ConditionType::IdentityChanged,
        Reason::IdentityChanged,
        Reason::OtherHost,
        now,
    );
    let in_use = in_use_by(spec).filter(|_| spec.nodes.is_empty());
    let (value, reason, message) = match in_use {
        _ if is_available => (
            ConditionStatus::True,
            Reason::DeviceSeen,
            "at least one node sees the device".to_owned(),
        ),
        Some(holders) => (
            ConditionStatus::False,
            Reason::DeviceGoneInUse,
            format!(
                "no node sees the device, and containers on {holders} hold slots of it; the Instance is deleted as soon as they are free: delete the Pods of these containers"
            ),
        ),
        None if identity.is_some() => (
            ConditionStatus::False,
            Reason::IdentityChanged,
            "another host announces the device, as condition IdentityChanged says; the Instance stays as it is".to_owned(),
        ),
        None if flapping.is_some() => (
            ConditionStatus::False,
            Reason::DeviceFlaps,
            "the device comes and goes, as condition Flapping says; the Instance is deleted when the device stays away for the grace period of its Configuration".to_owned(),
        ),
        None => (
            ConditionStatus::False,
            Reason::DeviceGone,
            "no node sees the device; the Instance is deleted when the grace period of its Configuration is over".to_owned(),
        ),
    };
    let available = Condition::new(
        ConditionType::Available,
        value,
        reason.as_str(),
        message,
        now,
    );
    let available = available.replacing(&status.conditions);
    let troubles = flapping.into_iter().chain(identity);
    status.conditions.retain(is_of_brokers);
    status
        .conditions
        .splice(0..0, [available].into_iter().chain(troubles));
    status
}

/// Returns whether the condition is the one that says nothing of nodes. Its writer is another.
fn is_of_brokers(condition: &Condition) -> bool {
    condition.type_ == ConditionType::BrokersReady.as_str()
}

/// Returns the condition for the nodes that report a trouble with the reason `trouble`.
fn trouble(
    status: &InstanceStatus,
    type_: ConditionType,
    trouble: Reason,
    reason: Reason,
    now: &str,
) -> Option<Condition> {
    let is_such = |entry: &&NodeHealth| entry.reason.as_deref() == Some(trouble.as_str());
    let mut entries = status.nodes.iter().filter(is_such);
    let (first, others) = (entries.next()?, entries.count());
    let message = first
        .message
        .as_deref()
        .unwrap_or("the node gives no details");
    let more = match others {
        0 => String::new(),
        1 => " (1 other node sees that too)".to_owned(),
        _ => format!(" ({others} other nodes see that too)"),
    };
    let condition = Condition::new(
        type_,
        ConditionStatus::True,
        reason.as_str(),
        format!("node {}: {message}{more}", first.name),
        now,
    );
    Some(condition.replacing(&status.conditions))
}

/// Returns `instance` with new owners for its slots: all of `exchanges`, or the first one whose expected owner is not
/// found.
pub(crate) fn exchanged(
    instance: &Instance,
    exchanges: &[&Exchange],
) -> Result<Instance, StoreError> {
    let mut instance = instance.clone();
    for Exchange {
        change,
        connection_digest,
    } in exchanges
    {
        let id = change.slot.to_string();
        let usage = instance
            .spec
            .device_usage
            .get(&id)
            .cloned()
            .unwrap_or_default();
        // A value that cannot be parsed is that of another owner.
        let current =
            SlotOwner::from_usage(&usage).unwrap_or(Some(SlotOwner::Node(usage.as_str().into())));
        if current != change.from && current != change.to {
            return Err(StoreError::SlotTaken {
                instance: instance_key(&instance.metadata),
                slot: id,
                owner: usage,
            });
        }
        write(&mut instance, change, connection_digest.as_ref());
    }
    Ok(instance)
}

/// Returns `instance` with new owners for its slots, whoever the present owners are.
pub(crate) fn forced<'a>(
    instance: &Instance,
    exchanges: impl IntoIterator<Item = &'a Exchange>,
) -> Instance {
    let mut instance = instance.clone();
    for Exchange {
        change,
        connection_digest,
    } in exchanges
    {
        write(&mut instance, change, connection_digest.as_ref());
    }
    instance
}

fn write(instance: &mut Instance, change: &SlotChange, connection_digest: Option<&String>) {
    let id = change.slot.to_string();
    let annotation = names::connection_annotation(change.slot.index);
    let annotations = instance.metadata.annotations.get_or_insert_default();
    match connection_digest.filter(|_| change.to.is_some()) {
        Some(connection_digest) => annotations.insert(annotation, connection_digest.clone()),
        None => annotations.remove(&annotation),
    };
    match &change.to {
        Some(owner) => instance.spec.device_usage.insert(id, owner.to_string()),
        None => instance.spec.device_usage.remove(&id),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::instance_name::InstanceKey, store::fixtures::exchange_of};

    fn camera() -> Instance {
        let mut instance = Instance::new("cam-1", Default::default());
        instance.metadata.namespace = Some("default".to_owned());
        instance.spec.nodes = vec!["a".into()];
        instance
    }

    #[test]
    fn a_slot_goes_only_from_the_owner_that_was_expected() {
        let claimed = exchanged(&camera(), &[&exchange_of(None, Some("a"))]).unwrap();
        assert_eq!(claimed.spec.device_usage["cam-1-0"], "a");
        assert_eq!(
            claimed.metadata.annotations.as_ref().unwrap()["told.akri.sh/0"],
            "digest"
        );

        let refused = exchanged(&claimed, &[&exchange_of(None, Some("b"))]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "slot cam-1-0 of Instance default/cam-1 was just taken by a"
        );

        let released = exchanged(&claimed, &[&exchange_of(Some("a"), None)]).unwrap();
        assert!(released.spec.device_usage.is_empty());
        assert!(released.metadata.annotations.unwrap().is_empty());
    }

    fn health(is_healthy: bool, connection: Option<&str>) -> Health {
        Health {
            is_healthy,
            connection: connection.map(str::to_owned),
            trouble: None,
        }
    }

    fn seen(status: &InstanceStatus, node: &str, health: &Health, now: &str) -> InstanceStatus {
        with_availability(with_health(status, node, health, now), &camera().spec, now)
    }

    #[test]
    fn an_instance_is_available_while_one_node_sees_its_device() {
        let (healthy, lost) = (health(true, None), health(false, None));
        let status = seen(&InstanceStatus::default(), "a", &healthy, "t1");
        let status = seen(&status, "b", &lost, "t2");
        assert!(status.conditions[0].is_true());
        let gone = seen(&status, "a", &lost, "t3");
        assert!(!gone.conditions[0].is_true());
        assert_eq!(gone.conditions[0].last_transition_time, "t3");
        assert_eq!(seen(&gone, "a", &lost, "t4"), gone);
        assert!(!says_health(&gone, "c", &lost));
    }

    #[test]
    fn the_condition_of_the_brokers_stays_and_is_no_reason_for_another() {
        let mut spec = camera().spec;
        spec.nodes = vec!["a".into()];
        let brokers = Condition::new(
            ConditionType::BrokersReady,
            ConditionStatus::False,
            "BrokerImage",
            String::new(),
            "t1",
        );
        let well = InstanceStatus {
            conditions: vec![brokers.clone()],
            ..InstanceStatus::default()
        };
        assert_eq!(with_conditions(well.clone(), &spec, "t2"), well);
        let gone = with_exception(&well, "a", &health(false, None), "t2");
        let gone = with_conditions(gone, &spec, "t2");
        let types: Vec<_> = gone.conditions.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(types, ["Available", "BrokersReady"]);
        assert_eq!(gone.conditions[1], brokers);
    }

    #[test]
    fn a_view_that_is_said_already_changes_nothing() {
        let views = [
            health(true, Some("x")),
            health(true, Some("y")),
            health(false, Some("x")),
            health(false, None),
        ];
        for before in &views {
            let status = with_health(&InstanceStatus::default(), "a", before, "t1");
            for now in &views {
                let is_same = with_health(&status, "a", now, "t2") == status;
                assert_eq!(
                    says_health(&status, "a", now),
                    is_same,
                    "{before:?} {now:?}"
                );
            }
        }
    }

    #[test]
    fn an_instance_that_every_node_left_says_whose_containers_keep_it() {
        let mut camera = camera();
        for n in 0..7 {
            let node = format!("n{n}");
            (camera.spec.device_usage).insert(format!("cam-1-{n}"), node);
        }
        let lost = health(false, None);
        let leave = InstanceChange::Leave(InstanceKey::new("default", "cam-1"));
        camera.status = Some(with_health(&InstanceStatus::default(), "a", &lost, "t1"));
        let condition = |camera: &Instance| camera.status.clone().unwrap().conditions.remove(0);
        let key = InstanceKey::new("default", "cam-1");
        let seen = InstanceChange::Health {
            key,
            health: lost,
            now: "t1".to_owned(),
        };
        let there = changed(&camera, &seen, "a").unwrap();
        assert_eq!(condition(&there).reason, "DeviceGone");
        let left = changed(&there, &leave, "a").unwrap();
        let said = condition(&left);
        assert_eq!(said.reason, "DeviceGoneInUse");
        assert_eq!(said.last_transition_time, "t1");
        let named = "containers on nodes n0, n1, n2, n3, n4 and 2 more hold slots";
        assert!(said.message.contains(named), "{}", said.message);
        assert_eq!(adopted(&left, "n0").spec.nodes, [""; 0]);
        assert_eq!(adopted(&there, "renamed").spec.nodes, ["renamed"]);
    }

    #[test]
    fn a_device_that_flaps_has_a_condition_for_as_long_as_a_node_says_so() {
        let flaps = |is_healthy, message: &str| Health {
            trouble: Some(crate::store::Trouble {
                reason: Reason::Flapping,
                message: message.to_owned(),
            }),
            ..health(is_healthy, None)
        };
        let said = |status: &InstanceStatus| -> Vec<String> {
            let said = |c: &Condition| format!("{} {} {}", c.type_, c.status, c.reason);
            status.conditions.iter().map(said).collect()
        };
        let held = flaps(false, "it went 3 times");
        let status = seen(&InstanceStatus::default(), "a", &held, "t1");
        let conditions = ["Available False DeviceFlaps", "Flapping True ComesAndGoes"];
        assert_eq!(said(&status), conditions);
        assert_eq!(status.conditions[1].message, "node a: it went 3 times");
        let status = seen(&status, "b", &flaps(true, "it went 4 times"), "t2");
        let flapping = &status.conditions[1];
        assert_eq!(flapping.last_transition_time, "t1");
        let message = "node a: it went 3 times (1 other node sees that too)";
        assert_eq!(flapping.message, message);
        // Another count is not a reason to write; the end of the condition is.
        assert!(says_health(&status, "b", &flaps(true, "it went 5 times")));
        assert!(!says_health(&status, "b", &health(true, None)));
        let calm = seen(&status, "a", &health(true, None), "t3");
        let calm = seen(&calm, "b", &health(true, None), "t3");
        assert_eq!(said(&calm), ["Available True DeviceSeen"]);
        assert!(calm.nodes.iter().all(|entry| entry.message.is_none()));
    }

    #[test]
    fn joining_twice_and_leaving_once_leaves_nobody() {
        let key = InstanceKey::new("default", "cam-1");
        let joined = changed(&camera(), &InstanceChange::Join(key.clone()), "b").unwrap();
        let joined = changed(&joined, &InstanceChange::Join(key.clone()), "b").unwrap();
        assert_eq!(joined.spec.nodes, ["a", "b"]);
        let left = changed(&joined, &InstanceChange::Leave(key), "b").unwrap();
        assert_eq!(left.spec.nodes, ["a"]);
    }
}
