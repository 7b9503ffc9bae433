//! Decides why a Configuration has no devices. Pure.
use super::{
    super::finding::{Cause, Finding, sentence},
    agents::{agent_trouble, controller_trouble},
};
use crate::inspect::{
    nodes::is_lost,
    pods::{DAEMON_SETS, label, node_of},
    snapshot::Snapshot,
    words::listed,
};
use petiole_model::{
    api::{
        condition::{Condition, ConditionStatus, ConditionType},
        configuration::Configuration,
        names::BUILT_IN_HANDLERS,
        node_devices::NodeDevicesSpec,
        reason::Reason,
    },
    model::typed_names::ConfigurationKey,
};

const AGENTS: &str = "kubectl get pods -A -o wide -l app.kubernetes.io/component=agent";
/// The label of the chart's Pods that has the name of the release.
const RELEASE: &str = "app.kubernetes.io/instance";
/// The release and its namespace, as the pages install it.
const CHART_DEFAULT: &str = "petiole";

/// Returns why the nodes do not use a Configuration as it is written, in the words of its condition.
pub(super) fn problem(
    snapshot: &Snapshot,
    key: &ConfigurationKey,
    configuration: &Configuration,
) -> Option<Finding> {
    let ready = configuration.condition(ConditionType::Ready);
    let Some(ready) = ready.filter(|ready| !ready.has_status(ConditionStatus::Unknown)) else {
        return Some(not_reported(snapshot, key, configuration));
    };
    if ready.is_true() {
        return None;
    }
    let text = format!(
        "Configuration {key} is not ready ({}): {}",
        ready.reason,
        sentence(&ready.message)
    );
    let ConfigurationKey { namespace, name } = key;
    let (advice, next) = match remedy(ready) {
        Remedy::Agents => (String::new(), AGENTS.to_owned()),
        Remedy::Replace => (
            " Neither its name nor its handler can be changed in place: delete it, and apply it again corrected.".to_owned(),
            format!("kubectl -n {namespace} delete configuration {name}"),
        ),
        Remedy::Handler => (
            " A handler that is a program of its own registers where the chart's handlers.enabled is true. A mistyped name cannot be changed in place: delete the Configuration, and apply it again.".to_owned(),
            upgrade(snapshot, "handlers.enabled"),
        ),
        Remedy::Chart => (held_up(snapshot), of_chart(snapshot, &ready.message)),
        Remedy::Edit => (
            String::new(),
            format!("kubectl -n {namespace} edit configuration {name}"),
        ),
    };
    let finding = Finding::new(Cause::ConfigurationProblem, text + &advice);
    Some(finding.then(next))
}

/// Returns what is said of the devices of a Configuration that agents cannot use as it is. Those that have started since do not look
/// for its devices, and show what was known last.
pub(super) fn unused(
    snapshot: &Snapshot,
    key: &ConfigurationKey,
    configuration: &Configuration,
) -> Option<Finding> {
    let ready = configuration.condition(ConditionType::Ready)?;
    let unusable = [
        Reason::BadSpec,
        Reason::BadDiscoveryDetails,
        Reason::UnknownHandler,
        Reason::HandlerChanged,
    ];
    if ready.is_true() || !unusable.iter().any(|reason| ready.reason == *reason) {
        return None;
    }
    let finding = problem(snapshot, key, configuration)?;
    let text = format!(
        "{} Agents that have started since then do not look for its devices: whether this one is there is not known.",
        finding.text
    );
    Some(Finding { text, ..finding })
}

/// Returns whether a finding only repeats what the condition of a Configuration that is not ready says.
pub(super) fn repeats(configuration: &Configuration, finding: &Finding) -> bool {
    let ready = configuration.condition(ConditionType::Ready);
    let ready = ready.filter(|ready| ready.has_status(ConditionStatus::False));
    ready.is_some_and(|ready| {
        let message = ready.message.trim();
        !message.is_empty() && finding.text.contains(message)
    })
}

/// The object that has to be changed for a Configuration to work.
enum Remedy {
    Agents,
    /// The Configuration, in a field that cannot be changed.
    Replace,
    /// The values of the chart, where the handler is a program of its own.
    Handler,
    /// The values of the chart.
    Chart,
    Edit,
}

fn remedy(ready: &Condition) -> Remedy {
    let is_one_of = |reasons: &[Reason]| reasons.iter().any(|reason| ready.reason == *reason);
    let replaced = [
        Reason::BadName,
        Reason::ConfigurationNameTaken,
        Reason::HandlerChanged,
        Reason::InstanceNameTaken,
        Reason::NameTooLong,
    ];
    // Other messages that name a value of the chart name a field of the Configuration first.
    let of_chart = [
        Reason::BadDiscoveryDetails,
        Reason::DiscoveryPropertyUnreadable,
    ];
    if is_one_of(&[Reason::NoAgent]) {
        Remedy::Agents
    } else if is_one_of(&replaced) {
        Remedy::Replace
    } else if is_one_of(&[Reason::UnknownHandler]) {
        Remedy::Handler
    } else if is_one_of(&of_chart) && ready.message.contains("the chart") {
        Remedy::Chart
    } else {
        Remedy::Edit
    }
}

/// Returns the command for the chart's value that a message names. The chart refuses udev and probe without a list, which only the
/// user knows.
fn of_chart(snapshot: &Snapshot, message: &str) -> String {
    let off = [
        (
            "no device of udev is allowed",
            "udev.enabled",
            "udev.subsystems={SUBSYSTEM}",
        ),
        (
            "no host may be probed",
            "probe.enabled",
            "probe.networks={NETWORK},probe.clusterNetworks={PODS,SERVICES}",
        ),
    ];
    match off.iter().find(|(said, _, _)| message.contains(said)) {
        Some((_, enabled, list)) => format!("{} --set '{list}'", upgrade(snapshot, enabled)),
        None => print_values(snapshot),
    }
}

/// Returns the command that sets a value of the chart to true.
fn upgrade(snapshot: &Snapshot, value: &str) -> String {
    let (namespace, release) = release(snapshot);
    format!(
        "helm upgrade {release} charts/petiole --namespace {namespace} --reset-then-reuse-values --set {value}=true"
    )
}

/// Returns what keeps a value that was set from reaching the agents: an update waits for nodes that are not ready.
fn held_up(snapshot: &Snapshot) -> String {
    let nodes = snapshot
        .own_pods("agent")
        .filter_map(|(_, pod)| node_of(pod));
    let lost: Vec<&str> = nodes.filter(|node| is_lost(snapshot, node)).collect();
    if lost.is_empty() {
        String::new()
    } else {
        format!(
            " If the value is set already, the update of the agents may wait for {}, which cannot be reached.",
            listed(&lost)
        )
    }
}

/// Returns the command that prints the values of the chart. To set a value that is a list would replace the list.
fn print_values(snapshot: &Snapshot) -> String {
    let (namespace, release) = release(snapshot);
    format!("helm get values {release} --namespace {namespace} --all")
}

/// Returns the namespace and the name of the release.
fn release(snapshot: &Snapshot) -> (&str, &str) {
    let Some((key, pod)) = snapshot.own_pods("agent").next() else {
        return (CHART_DEFAULT, CHART_DEFAULT);
    };
    let release = label(pod, RELEASE).map_or(CHART_DEFAULT, String::as_str);
    (&key.namespace, release)
}

fn not_reported(
    snapshot: &Snapshot,
    key: &ConfigurationKey,
    configuration: &Configuration,
) -> Finding {
    let ConfigurationKey { namespace, .. } = key;
    if let Some(watched) = snapshot.watched()
        && !snapshot.is_watched(namespace)
    {
        let text = format!(
            "Configuration {key} is in a namespace that no agent reads: those are {watched}. Apply it in one of them, or add {namespace} to watchNamespaces of the chart."
        );
        let finding = Finding::new(Cause::NotReported, text);
        return finding.then(print_values(snapshot));
    }
    if let Some(trouble) = controller_trouble(snapshot) {
        return trouble;
    }
    let has_agent = snapshot.own_pods("agent").next().is_some();
    if !has_agent && !snapshot.hidden.pods {
        let text =
            format!("No agent runs, so nobody looks for the devices of Configuration {key}.");
        return Finding::new(Cause::NotReported, text).then(DAEMON_SETS);
    }
    let late = late_nodes(snapshot, key, configuration);
    let trouble = late
        .iter()
        .find_map(|node| Some((node, agent_trouble(snapshot, node)?)));
    if let Some((node, trouble)) = trouble {
        let text = format!(
            "{} Configuration {key} has changed, and waits for that node to look at it again. Delete the NodeDevices of a node that is to have no agent.",
            trouble.text
        );
        return Finding::new(trouble.cause, text)
            .then(format!("kubectl delete nodedevices {node}"));
    }
    let text = match late.as_slice() {
        [] => format!("No node has reported about Configuration {key} yet"),
        some => format!(
            "Configuration {key} has changed, and these nodes have not looked at it again yet: {}",
            listed(some)
        ),
    };
    let text = format!("{text}: agents report within seconds.");
    Finding::new(Cause::NotReported, text).then(AGENTS)
}

/// Returns the nodes that have validated an earlier generation of a Configuration last.
fn late_nodes<'a>(
    snapshot: &'a Snapshot,
    key: &ConfigurationKey,
    configuration: &Configuration,
) -> Vec<&'a str> {
    let is_late = |devices: &NodeDevicesSpec| {
        let view = devices.view_of(key);
        view.is_some_and(|view| view.is_late(configuration))
    };
    let nodes = snapshot.node_devices.iter();
    let late = nodes.filter(|(_, devices)| is_late(devices));
    late.map(|(node, _)| node.as_str()).collect()
}

/// Returns why a Configuration that is ready has no Instance.
pub(super) fn no_device(
    snapshot: &Snapshot,
    key: &ConfigurationKey,
    configuration: &Configuration,
) -> Finding {
    let looks = snapshot.node_devices.iter();
    let looks: Vec<(&String, bool)> = looks
        .filter_map(|(node, devices)| Some((node, devices.view_of(key)?.complete)))
        .collect();
    let late: Vec<&str> = looks
        .iter()
        .filter(|look| !look.1)
        .map(|look| look.0.as_str())
        .collect();
    if !late.is_empty() {
        let nodes = listed(&late);
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
        some => listed(some),
    };
    let text = format!(
        "Configuration {key} is ready, and its handler {handler} finds no device (looked on: {by}). Check that the device is on, that it is in a node or in the network of one, and the filters in discoveryDetails"
    );
    if !BUILT_IN_HANDLERS.contains(&handler.as_str()) {
        let text = text + ", and read the log of the handler, which is a program of its own.";
        return Finding::new(Cause::NoDevice, text);
    }
    let has_agent = |node: &&&str| snapshot.agent_on(node).is_some();
    let Some(node) = nodes.iter().find(has_agent) else {
        return Finding::new(Cause::NoDevice, text + ".");
    };
    let text = text + "; this runs the handler on a node and prints what it finds.";
    Finding::new(Cause::NoDevice, text).then(format!(
        "kubectl -n {} get configuration {} -o yaml | kubectl petiole discover {handler} --node {node} --details - --for 10s",
        key.namespace, key.name
    ))
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
