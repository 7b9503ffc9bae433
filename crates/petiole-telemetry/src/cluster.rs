//! The metrics of the whole cluster, which the controller that leads writes.
use super::values::gauge;
use petiole_base::metrics::{Labels, State};
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;

/// Numbers by the namespace and the name of a Configuration, and one more label.
pub type Counts = BTreeMap<(String, String, String), usize>;

/// The numbers that a controller counts in the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    /// The conditions of each Configuration by type: whether each is true, and its reason.
    pub conditions: BTreeMap<(String, String, String), (bool, String)>,
    /// The problems that nodes have with each Configuration, by reason.
    pub problems: Counts,
    /// The Instances of each Configuration: `available` or `unavailable`.
    pub instances: Counts,
    /// The Instances of each Configuration for which a condition that reports a problem is true, by its type.
    pub troubles: Counts,
    /// The broker Pods of each Configuration by phase.
    pub brokers: Counts,
}

#[derive(Default)]
pub struct ClusterMetrics {
    leader: State<0>,
    conditions: State<4>,
    problems: State<3>,
    instances: State<3>,
    troubles: State<3>,
    brokers: State<3>,
}

impl ClusterMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "petiole_leader",
            "1 if this replica holds the Lease, and acts",
            self.leader.clone(),
        );
        registry.register(
            "petiole_configuration_condition",
            "1 if the condition of the Configuration is True, and 0 otherwise",
            self.conditions.clone(),
        );
        registry.register(
            "petiole_configuration_problems",
            "Problems that nodes have with the Configuration, by reason; one problem of three nodes is 3",
            self.problems.clone(),
        );
        registry.register(
            "petiole_instances",
            "Instances in the cluster; an Instance is available if a node sees its device",
            self.instances.clone(),
        );
        registry.register(
            "petiole_instance_conditions",
            "Instances for which a condition that reports a problem is True",
            self.troubles.clone(),
        );
        registry.register(
            "petiole_brokers",
            "Broker Pods by phase",
            self.brokers.clone(),
        );
    }

    /// Sets whether this replica leads, and what it counts if it does.
    pub fn set(&self, leads: bool, census: &Census) {
        self.leader.set([([], i64::from(leads))]);
        let conditions = census.conditions.iter();
        self.conditions.set(
            conditions.map(|((namespace, name, kind), (is_true, reason))| {
                let [namespace, configuration, kind] = labels([namespace, name, kind], "type");
                let reason = ("reason", reason.clone());
                (
                    [namespace, configuration, kind, reason],
                    i64::from(*is_true),
                )
            }),
        );
        self.problems.set(counted(&census.problems, "reason"));
        self.instances.set(counted(&census.instances, "state"));
        self.troubles.set(counted(&census.troubles, "type"));
        self.brokers.set(counted(&census.brokers, "phase"));
    }
}

fn counted(counts: &Counts, third: &'static str) -> impl Iterator<Item = (Labels<3>, i64)> {
    let counts = counts.iter();
    counts.map(move |((namespace, name, value), count)| {
        (labels([namespace, name, value], third), gauge(*count))
    })
}

fn labels([namespace, name, value]: [&String; 3], third: &'static str) -> Labels<3> {
    [
        ("namespace", namespace.clone()),
        ("configuration", name.clone()),
        (third, value.clone()),
    ]
}
