//! Decides why a Configuration has no devices. Pure.
use super::{
    super::finding::{Cause, Finding, sentence},
    agents::{agent_trouble, controller_trouble},
};
use crate::{
    api::{
        condition::{Condition, ConditionStatus, ConditionType},
        configuration::Configuration,
        reason::Reason,
    },
    inspect::snapshot::Snapshot,
    model::typed_names::ConfigurationKey,
};

/// Returns why the nodes do not use a Configuration as it is written, in the words of its condition.
pub(super) fn problem(
    snapshot: &Snapshot,
    key: &ConfigurationKey,
    configuration: &Configuration,
) -> Option<Finding> {
    let status = configuration.status.as_ref();
    let ready = status.and_then(|s| Condition::of_type(&s.conditions, ConditionType::Ready));
    let Some(ready) = ready.filter(|ready| !ready.has_status(ConditionStatus::Unknown)) else {
        return Some(not_reported(snapshot, key));
    };
    if ready.is_true() {
        return None;
    }
    let text = format!(
        "Configuration {key} is not ready ({}): {}",
        ready.reason,
        sentence(&ready.message)
    );
    let finding = Finding::new(Cause::ConfigurationProblem, text);
    Some(finding.then(next(key, &ready.reason)))
}

/// Returns the command for the problem with this reason. The name and the handler of a Configuration cannot be changed.
fn next(ConfigurationKey { namespace, name }: &ConfigurationKey, reason: &String) -> String {
    let is_fixed = [
        Reason::BadName,
        Reason::ConfigurationNameTaken,
        Reason::HandlerChanged,
        Reason::InstanceNameTaken,
        Reason::NameTooLong,
        Reason::UnknownHandler,
    ];
    if *reason == Reason::NoAgent {
        return "kubectl get pods -A -o wide -l app.kubernetes.io/component=agent".to_owned();
    }
    match is_fixed.into_iter().any(|fixed| *reason == fixed) {
        true => format!("kubectl -n {namespace} delete configuration {name}"),
        false => format!("kubectl -n {namespace} edit configuration {name}"),
    }
}

fn not_reported(snapshot: &Snapshot, key: &ConfigurationKey) -> Finding {
    if let Some(trouble) = controller_trouble(snapshot) {
        return trouble;
    }
    let has_agent = snapshot.own_pods("agent").next().is_some();
    let text = match has_agent || snapshot.hidden.pods {
        false => format!("No agent runs, so nobody looks for the devices of Configuration {key}."),
        true => format!(
            "No node has reported about Configuration {key} yet: agents report within seconds."
        ),
    };
    Finding::new(Cause::NotReported, text)
        .then("kubectl get pods -A -o wide -l app.kubernetes.io/component=agent")
}

/// Returns why a Configuration that is ready has no Instance.
pub(super) fn no_device(
    snapshot: &Snapshot,
    key: &ConfigurationKey,
    configuration: &Configuration,
) -> Finding {
    let view = |devices: &'_ crate::api::node_devices::NodeDevicesSpec| {
        let views = devices.configurations.iter();
        let mut its = views.filter(|view| view.namespace == key.namespace && view.name == key.name);
        its.next().map(|view| view.complete)
    };
    let looks = snapshot.node_devices.iter();
    let looks: Vec<(&String, bool)> = looks
        .filter_map(|(node, devices)| Some((node, view(devices)?)))
        .collect();
    let late: Vec<&str> = looks
        .iter()
        .filter(|look| !look.1)
        .map(|look| look.0.as_str())
        .collect();
    if !late.is_empty() {
        let nodes = late.join(", ");
        let text = format!(
            "The agents of {nodes} have not looked everywhere yet for Configuration {key}."
        );
        return Finding::new(Cause::StillLooking, text)
            .then(format!("kubectl -n {} get instances -w", key.namespace));
    }
    let nodes: Vec<&str> = looks.iter().map(|look| look.0.as_str()).collect();
    let handler = &configuration.spec.discovery_handler.name;
    let by = match nodes.as_slice() {
        [] if snapshot.hidden.node_devices => "the nodes that run an agent".to_owned(),
        [] => "no node".to_owned(),
        some => some.join(", "),
    };
    let text = format!(
        "Configuration {key} is ready, and its handler {handler} finds no device (looked on: {by}). Check that the device is on, that it is in the network of a node, and the filters in discoveryDetails; this runs the handler on a node and prints what it finds."
    );
    let has_agent = |node: &&&str| snapshot.agent_on(node).is_some();
    let finding = Finding::new(Cause::NoDevice, text);
    match nodes.iter().find(has_agent) {
        Some(node) => finding.then(format!(
            "kubectl -n {} get configuration {} -o yaml | kubectl petiole discover {handler} --node {node} --details - --for 10s",
            key.namespace, key.name
        )),
        None => finding,
    }
}

/// Returns why a node does not look for the devices of a Configuration.
pub(super) fn not_looked_for(
    snapshot: &Snapshot,
    key: &ConfigurationKey,
    configuration: &Configuration,
    node: &str,
) -> Option<Finding> {
    let labels = snapshot.nodes.get(node)?.metadata.labels.clone();
    if !configuration.selects(&labels.unwrap_or_default()) {
        let wanted = configuration.spec.node_selector.iter();
        let wanted: Vec<_> = wanted
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let text = format!(
            "Node {node} does not look for devices of Configuration {key}: spec.nodeSelector wants {}.",
            wanted.join(",")
        );
        let next = format!("kubectl label node {node} {}", wanted.join(" "));
        return Some(Finding::new(Cause::NodeNotSelected, text).then(next));
    }
    agent_trouble(snapshot, node)
}
