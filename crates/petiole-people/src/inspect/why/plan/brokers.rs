//! Decides what is said of brokers: of their Pods, or else in the words of conditions and of the controller's Events. Pure.
use super::{
    super::finding::{Cause, Finding, counted, sentence},
    pod,
};
use crate::inspect::{
    events::last,
    pods::{is_ready, phase},
    snapshot::Snapshot,
    words::plural,
};
use k8s_openapi::{
    api::core::v1::{Event, Pod},
    jiff::Timestamp,
};
use petiole_model::{
    api::{
        condition::{Condition, ConditionStatus},
        reason::Reason,
    },
    model::{names::ObjectKey, typed_names::ConfigurationKey},
};

/// The most Pods that are explained, to find those that wait for the same. Each looks at all Pods.
const EXPLAINED: usize = 200;
/// Warnings of the controller about brokers that it creates, and about Services.
const OF_BROKERS: &[&str] = &[
    Reason::BrokerRefused.as_str(),
    Reason::BrokerSpecInvalid.as_str(),
];
const OF_SERVICES: &[&str] = &[
    Reason::ServiceNameTaken.as_str(),
    Reason::ServiceRefused.as_str(),
];

/// The sentence about one Pod, and the number of others that wait for the same.
pub(super) struct Alike<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) pod: &'a Pod,
    pub(super) findings: Vec<Finding>,
    others: usize,
}

impl Alike<'_> {
    /// Returns the findings. The first one says how many others there are.
    pub(super) fn counted(self, noun: &str) -> Vec<Finding> {
        let mut findings = self.findings;
        if let Some(first) = findings.first_mut()
            && self.others > 0
        {
            let others = plural(self.others, &format!("more {noun}"));
            first.text = format!("{} The same for {others}.", first.text);
        }
        findings
    }
}

/// Explains Pods, each cause once. What is not Petiole's is the same if the words are.
pub(super) fn alike<'a>(
    snapshot: &Snapshot,
    pods: &[(&'a ObjectKey, &'a Pod)],
    now: Timestamp,
) -> Vec<Alike<'a>> {
    let mut groups: Vec<Alike<'a>> = vec![];
    let kind = |findings: &[Finding]| {
        let first = findings.first()?;
        let text = (first.cause == Cause::OtherReason).then(|| first.text.clone());
        Some((first.cause, text))
    };
    for (key, pod) in pods.iter().copied().take(EXPLAINED) {
        let findings = pod::explain(snapshot, key, pod, now);
        let known = groups.iter_mut();
        let mut known = known.filter(|group| kind(&group.findings) == kind(&findings));
        match known.next() {
            Some(group) => group.others += 1,
            None => groups.push(Alike {
                key,
                pod,
                findings,
                others: 0,
            }),
        }
    }
    groups
}

/// Returns the troubles of brokers that are not ready, or else that a broker has no device because it asks for none.
pub(super) fn of_pods(
    snapshot: &Snapshot,
    namespace: &str,
    is_its: impl Fn(&Pod) -> bool,
    now: Timestamp,
) -> Vec<Finding> {
    let all = snapshot.pods.iter();
    let (ready, others): (Vec<_>, Vec<_>) = all
        .filter(|(key, pod)| key.namespace == namespace && is_its(pod))
        .partition(|(_, pod)| is_ready(pod));
    let mut troubled = others;
    troubled.retain(|(_, pod)| phase(pod) != "Succeeded");
    if troubled.is_empty() {
        // What one broker lacks, the others lack too.
        let without_device = |(_, pod): &(&ObjectKey, &Pod)| pod::lacks_request(snapshot, pod);
        troubled.extend(ready.into_iter().find(without_device));
    }
    let more = troubled.len().saturating_sub(EXPLAINED);
    let groups = alike(snapshot, &troubled, now).into_iter();
    let findings = groups.flat_map(|mut group| {
        if let Some(first) = group.findings.first_mut() {
            let subject = pod::subject(group.key, group.pod);
            first.text = format!("Its broker: {subject} {}", first.text);
        }
        group.counted("broker")
    });
    let mut findings: Vec<Finding> = findings.collect();
    findings.extend(counted(&findings, more, "brokers that are not ready"));
    findings
}

/// Returns what is said of brokers that are not ready: by the condition `ready`, or else by the controller's warnings about objects of
/// these names. A warning is older than a condition that says that all brokers run.
pub(super) fn said<'a>(
    snapshot: &Snapshot,
    of: &ConfigurationKey,
    ready: Option<&Condition>,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<Finding> {
    if let Some(condition) = ready.filter(|c| c.has_status(ConditionStatus::False)) {
        let text = format!(
            "Its brokers are not ready ({}): {}",
            condition.reason,
            sentence(&condition.message)
        );
        let finding = Finding::new(Cause::BrokerRefused, text);
        return Some(finding.then(remedy(of, &condition.message)));
    }
    let reasons: Vec<&str> = if ready.is_some_and(Condition::is_true) {
        OF_SERVICES.into()
    } else {
        [OF_BROKERS, OF_SERVICES].concat()
    };
    let mut names = names.into_iter();
    names.find_map(|name| warning(snapshot, of, name, &reasons))
}

/// Returns the controller's last warning about what it creates for an object.
fn warning(
    snapshot: &Snapshot,
    of: &ConfigurationKey,
    name: &str,
    reasons: &[&str],
) -> Option<Finding> {
    let namespace = &of.namespace;
    let is_it = |event: &Event| event.involved_object.name.as_deref() == Some(name);
    let event = last(snapshot, namespace, reasons, is_it)?;
    let reason = event.reason.as_deref().unwrap_or_default();
    let message = event.message.as_deref().unwrap_or_default();
    let kind = event.involved_object.kind.as_deref().unwrap_or("object");
    let text = format!(
        "The controller warned about {kind} {namespace}/{name} ({reason}): {}",
        sentence(message)
    );
    Some(Finding::new(Cause::BrokerRefused, text).then(remedy(of, message)))
}

/// Returns the command that shows or changes what keeps brokers from being created.
fn remedy(ConfigurationKey { namespace, name }: &ConfigurationKey, message: &str) -> String {
    if message.contains("exceeded quota") {
        format!("kubectl -n {namespace} describe resourcequota")
    } else {
        format!("kubectl -n {namespace} edit configuration {name}")
    }
}
