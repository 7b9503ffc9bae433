//! The reasons why a call of the kubelet is refused, with the message for the kubelet and one word for metrics.
use crate::{
    agent::{connections::MOVED, slots::Refusal},
    model::{container_nodes::NodesRefused, limits, resource_name::ResourceName},
};
use tonic::Status;

#[derive(Debug)]
pub(super) struct Denied {
    status: Status,
    /// The reason, as the label of a metric. There are only a few.
    word: &'static str,
}

impl Denied {
    pub(super) fn stopping() -> Self {
        Self {
            status: Status::unavailable("the agent is stopping"),
            word: "stopping",
        }
    }

    pub(super) fn too_late(seconds: u64) -> Self {
        Self {
            status: Status::unavailable(format!(
                "no claim within {seconds} s: the next try may find it done"
            )),
            word: "timeout",
        }
    }

    pub(super) fn not_seen(uptime_seconds: u64) -> Self {
        Self {
            status: Status::unavailable(format!(
                "the device was not seen since the agent started {uptime_seconds} s ago; it is offered again when it answers"
            )),
            word: "not_seen",
        }
    }

    pub(super) fn not_read() -> Self {
        Self {
            status: Status::unavailable(
                "the agent has just started, and has not read the Instances yet",
            ),
            word: "not_read",
        }
    }

    /// The device, or its Instance.
    pub(super) fn gone(message: String) -> Self {
        Self {
            status: Status::failed_precondition(message),
            word: "device_gone",
        }
    }

    /// The connection to the device of `whose` has changed since its container got the values.
    pub(super) fn moved(whose: &str) -> Self {
        Self {
            status: Status::failed_precondition(format!("the device of {whose} {MOVED}")),
            word: "device_changed",
        }
    }

    /// A container has the slot by a name that its resource had before.
    pub(super) fn former_name(id: &str, resource: &ResourceName) -> Self {
        Self {
            status: Status::failed_precondition(format!(
                "a container that still runs holds {id} as {resource}, which is what the resource was called before: delete its Pod, or ask again"
            )),
            word: "held_here",
        }
    }

    /// The container asks for more than the kubelet keeps for it.
    pub(super) fn too_large(devices: usize) -> Self {
        Self {
            status: Status::failed_precondition(format!(
                "the container would get more than {} bytes of environment, mounts and device nodes with its {devices} devices: give it fewer devices, or shorten brokerProperties",
                limits::ANSWER_BYTES_MAX
            )),
            word: "too_large",
        }
    }

    /// The container cannot have the device nodes as the Configuration says.
    pub(super) fn nodes(refused: &NodesRefused) -> Self {
        Self {
            status: Status::failed_precondition(refused.to_string()),
            word: "device_nodes",
        }
    }

    /// The CDI file of a device cannot be written, and without it the container would have no device.
    pub(super) fn no_cdi_file(why: &str) -> Self {
        Self {
            status: Status::unavailable(format!(
                "the CDI file that gives the container its device nodes cannot be written: {why}"
            )),
            word: "device_nodes",
        }
    }

    /// A fault of ours.
    pub(super) fn internal(message: String) -> Self {
        Self {
            status: Status::internal(message),
            word: "internal",
        }
    }

    pub(super) fn word(&self) -> &'static str {
        self.word
    }
}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        let status = if refusal.is_passing() {
            Status::unavailable(message)
        } else {
            Status::failed_precondition(message)
        };
        Self {
            status,
            word: refusal.word(),
        }
    }
}

impl From<Denied> for Status {
    fn from(denied: Denied) -> Self {
        denied.status
    }
}
