//! Counts the objects of the cluster for the controller's metrics.
use super::world::World;
use crate::{
    api::{condition::Condition, instance::TROUBLES, names},
    model::typed_names::ConfigurationKey,
    telemetry::{
        cluster::{Census, Counts},
        metrics,
    },
};
use std::collections::BTreeMap;

/// The phases that a Pod can have, and one for a Pod that the scheduler puts on no node. That may be as users want it, so it is
/// none of those that an alert is about.
const PHASES: [&str; 6] = [
    "Pending",
    "Waiting",
    "Running",
    "Succeeded",
    "Failed",
    "Unknown",
];

/// Sets the metrics of a leader, which knows this world, or of a replica that waits for the Lease.
pub(super) fn count(world: Option<&World>) {
    metrics().set_broker_pods(&world.map(broker_pods).unwrap_or_default());
    let counts = world.map(census).unwrap_or_default();
    metrics().cluster.set(world.is_some(), &counts);
}

/// The broker Pods that have not ended, by Configuration and node.
fn broker_pods(world: &World) -> BTreeMap<(String, String), i64> {
    let mut counts = BTreeMap::new();
    for pod in world.pods.values().filter(|pod| !pod.has_ended()) {
        let configuration = pod.meta.labels.get(names::CONFIGURATION_LABEL);
        if let Some((configuration, node)) = configuration.zip(pod.node.as_ref()) {
            *counts
                .entry((configuration.clone(), node.to_string()))
                .or_default() += 1;
        }
    }
    counts
}

/// Counts what belongs to each Configuration. Everything that can be counted of a Configuration is there from the beginning,
/// with 0.
fn census(world: &World) -> Census {
    let mut census = Census::default();
    for (key, configuration) in &world.configurations {
        let status = configuration.status.as_ref();
        for condition in status.iter().flat_map(|status| &status.conditions) {
            let state = (condition.is_true(), condition.reason.clone());
            census
                .conditions
                .insert(labels(key, &condition.type_), state);
        }
        for report in status.iter().flat_map(|status| &status.nodes) {
            for problem in &report.problems {
                add(&mut census.problems, key, &problem.reason, 1);
            }
        }
        for state in ["available", "unavailable"] {
            add(&mut census.instances, key, state, 0);
        }
        for trouble in TROUBLES {
            add(&mut census.troubles, key, trouble.as_str(), 0);
        }
        if configuration.spec.broker_spec.is_some() {
            for phase in PHASES {
                add(&mut census.brokers, key, phase, 0);
            }
        }
    }
    count_instances(world, &mut census);
    for (key, pod) in &world.pods {
        if let Some(name) = pod.meta.labels.get(names::CONFIGURATION_LABEL) {
            let phase = if pod.waits_for_node() {
                Some("Waiting")
            } else {
                PHASES.into_iter().find(|phase| *phase == pod.phase)
            };
            let configuration = ConfigurationKey::new(&key.namespace, name.as_str());
            add(
                &mut census.brokers,
                &configuration,
                phase.unwrap_or("Pending"),
                1,
            );
        }
    }
    census
}

fn count_instances(world: &World, census: &mut Census) {
    for (key, instance) in &world.instances {
        let configuration = instance.spec.configuration_key(&key.namespace);
        let state = match instance.unavailable() {
            None => "available",
            Some(_) => "unavailable",
        };
        add(&mut census.instances, &configuration, state, 1);
        for trouble in TROUBLES {
            if instance.condition(trouble).is_some_and(Condition::is_true) {
                add(&mut census.troubles, &configuration, trouble.as_str(), 1);
            }
        }
    }
}

fn add(counts: &mut Counts, configuration: &ConfigurationKey, value: &str, by: usize) {
    *counts.entry(labels(configuration, value)).or_default() += by;
}

fn labels(configuration: &ConfigurationKey, value: &str) -> (String, String, String) {
    let ConfigurationKey { namespace, name } = configuration;
    (namespace.clone(), name.to_string(), value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            fixtures::{configuration, instance, key, pod},
            pod_state::Unscheduled,
        },
        *,
    };
    use serde_json::json;
    use std::sync::Arc;

    fn world() -> World {
        let mut world = World::default();
        let problem = json!({ "reason": "ResourceTaken", "message": "" });
        let reports = ["a", "b"].map(|node| json!({ "name": node, "problems": [problem.clone()] }));
        let cam = json!({
            "spec": { "brokerSpec": { "brokerPodSpec": {} } },
            "status": {
                "conditions": [
                    { "type": "Ready", "status": "False", "reason": "ResourceTaken", "lastTransitionTime": "" },
                    { "type": "BrokersReady", "status": "True", "reason": "Running", "lastTransitionTime": "" },
                ],
                "nodes": reports,
            },
        });
        world
            .configurations
            .insert(key("cam"), Arc::new(configuration("cam", cam)));
        let idle = Arc::new(configuration("idle", json!({})));
        world.configurations.insert(key("idle"), idle);
        for (name, kind, status) in [
            ("cam-1", "Available", "True"),
            ("cam-2", "Available", "False"),
            ("cam-3", "IdentityChanged", "True"),
        ] {
            let condition = json!({ "type": kind, "status": status, "reason": "Because", "lastTransitionTime": "" });
            let status = json!({ "status": { "conditions": [condition] } });
            world
                .instances
                .insert(key(name), Arc::new(instance(name, status)));
        }
        for (name, phase) in [
            ("a", "Running"),
            ("b", "Pending"),
            ("c", "Failed"),
            ("d", ""),
        ] {
            let mut pod = pod("cam-1", phase);
            pod.node = Some("n".into());
            world.pods.insert(key(name), Arc::new(pod));
        }
        let mut waits = pod("cam-2", "Pending");
        waits.unscheduled = Some(Unscheduled::default());
        world.pods.insert(key("e"), Arc::new(waits));
        world
    }

    fn of(name: &str, value: &str) -> (String, String, String) {
        labels(&key(name), value)
    }

    #[test]
    fn pods_are_counted_until_they_end() {
        let counted = ("cam".to_owned(), "n".to_owned());
        assert_eq!(broker_pods(&world()), BTreeMap::from([(counted, 3)]));
    }

    #[test]
    fn conditions_and_problems_of_configurations_are_counted() {
        let census = census(&world());
        let ready = (false, "ResourceTaken".to_owned());
        assert_eq!(census.conditions[&of("cam", "Ready")], ready);
        assert!(census.conditions[&of("cam", "BrokersReady")].0);
        let problems = [(of("cam", "ResourceTaken"), 2)];
        assert_eq!(census.problems, BTreeMap::from(problems));
    }

    #[test]
    fn an_instance_is_available_unless_its_condition_denies_it() {
        let census = census(&world());
        assert_eq!(census.instances[&of("cam", "available")], 2);
        assert_eq!(census.instances[&of("cam", "unavailable")], 1);
        assert_eq!(census.troubles[&of("cam", "IdentityChanged")], 1);
    }

    #[test]
    fn what_a_configuration_has_none_of_is_there_with_0() {
        let census = census(&world());
        assert_eq!(census.instances[&of("idle", "available")], 0);
        assert_eq!(census.troubles[&of("idle", "Flapping")], 0);
        assert_eq!(census.brokers[&of("cam", "Unknown")], 0);
        assert_eq!(census.brokers[&of("cam", "Pending")], 2);
        assert_eq!(census.brokers[&of("cam", "Waiting")], 1);
        assert!(!census.brokers.contains_key(&of("idle", "Running")));
    }
}
