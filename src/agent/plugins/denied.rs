//! The reasons why a call of the kubelet is refused, with the message for the kubelet and one word for metrics.
use crate::{
    agent::{connections::MOVED, slots::Refusal},
    model::{container_nodes::NodesRefused, limits, resource_name::ResourceName},
};
use thiserror::Error;
use tonic::{Code, Status};

#[derive(Debug, Error)]
pub(super) enum Denied {
    #[error("the agent is stopping")]
    Stopping,
    #[error("no claim within {seconds} s: the next try may find it done")]
    TooLate { seconds: u64 },
    #[error(
        "the device was not seen since the agent started {uptime_seconds} s ago; it is offered again when it answers"
    )]
    NotSeen { uptime_seconds: u64 },
    #[error("the agent has just started, and has not read the Instances yet")]
    NotRead,
    /// The device is gone, or its Instance.
    #[error("{0}")]
    Gone(String),
    /// The connection to the device has changed since its container got the values.
    #[error("the device of {whose} {MOVED}")]
    Moved { whose: String },
    /// A container has the slot by a name that its resource had before.
    #[error(
        "a container that still runs holds {id} as {resource}, which is what the resource was called before: delete its Pod, or ask again"
    )]
    FormerName { id: String, resource: ResourceName },
    /// The container asks for more than the kubelet keeps for it.
    #[error(
        "the container would get more than {} bytes of environment, mounts and device nodes with its {devices} devices: give it fewer devices, or shorten brokerProperties",
        limits::ANSWER_BYTES_MAX
    )]
    TooLarge { devices: usize },
    /// The container cannot have the device nodes as the Configuration says.
    #[error(transparent)]
    Nodes(#[from] NodesRefused),
    /// Without its CDI file the container would have no device.
    #[error("the CDI file that gives the container its device nodes cannot be written: {0}")]
    NoCdiFile(String),
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A fault of ours.
    #[error("{0}")]
    Internal(String),
}

impl Denied {
    /// Returns the reason as the label of a metric. There are only a few.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Stopping => "stopping",
            Self::TooLate { .. } => "timeout",
            Self::NotSeen { .. } => "not_seen",
            Self::NotRead => "not_read",
            Self::Gone(_) => "device_gone",
            Self::Moved { .. } => "device_changed",
            Self::FormerName { .. } => "held_here",
            Self::TooLarge { .. } => "too_large",
            Self::Nodes(_) | Self::NoCdiFile(_) => "device_nodes",
            Self::Refused(refusal) => refusal.word(),
            Self::Internal(_) => "internal",
        }
    }

    fn code(&self) -> Code {
        let is_passing = match self {
            Self::Internal(_) => return Code::Internal,
            Self::Refused(refusal) => refusal.is_passing(),
            Self::Stopping
            | Self::TooLate { .. }
            | Self::NotSeen { .. }
            | Self::NotRead
            | Self::NoCdiFile(_) => true,
            Self::Gone(_)
            | Self::Moved { .. }
            | Self::FormerName { .. }
            | Self::TooLarge { .. }
            | Self::Nodes(_) => false,
        };
        if is_passing {
            Code::Unavailable
        } else {
            Code::FailedPrecondition
        }
    }
}

impl From<Denied> for Status {
    fn from(denied: Denied) -> Self {
        Self::new(denied.code(), denied.to_string())
    }
}
