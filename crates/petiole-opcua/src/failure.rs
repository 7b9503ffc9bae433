//! Defines why a conversation ended before its questions were answered. Pure.
use crate::{answer::Question, binary::Malformed, status::Status};
use std::fmt;

/// The step of a conversation that a server was at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Hello and Acknowledge.
    Hello,
    /// OpenSecureChannel.
    Open,
    /// A question.
    Ask(Question),
    /// The conversation is over.
    Closed,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello => f.write_str("Hello"),
            Self::Open => f.write_str("OpenSecureChannel"),
            Self::Ask(question) => write!(f, "{question}"),
            Self::Closed => f.write_str("CloseSecureChannel"),
        }
    }
}

/// Why a conversation ended before its questions were answered: the step, and the reason in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The step at which it ended.
    pub step: Step,
    /// The reason.
    pub reason: Reason,
}

/// The reason of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The server ended the conversation with this status, and a text of its own, which may be empty.
    Refused(Status, String),
    /// These bytes are no message of OPC UA: the port may be another program's.
    NotOpcUa,
    /// The server sent a message at a time at which the protocol has another one.
    Unexpected(&'static str),
    /// A value could not be read, or was beyond a bound.
    Malformed(Malformed),
    /// The server closed the connection.
    HungUp,
    /// The server takes only requests that are smaller than ours.
    SmallBuffer(u32),
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = self.step;
        match &self.reason {
            Reason::Refused(status, text) if text.is_empty() => {
                write!(f, "the server answered {step} with {status}")
            }
            Reason::Refused(status, text) => {
                write!(f, "the server answered {step} with {status} ({text:?})")
            }
            Reason::NotOpcUa => write!(
                f,
                "what answered {step} does not speak OPC UA over TCP (opc.tcp)"
            ),
            Reason::Unexpected(what) => write!(f, "the server answered {step} with {what}"),
            Reason::Malformed(why) => write!(f, "the server's answer to {step} is unusable: {why}"),
            Reason::HungUp => write!(
                f,
                "the server closed the connection instead of answering {step}"
            ),
            Reason::SmallBuffer(bytes) => write!(
                f,
                "the server takes messages of {bytes} bytes at most, and the request after {step} is longer"
            ),
        }
    }
}
