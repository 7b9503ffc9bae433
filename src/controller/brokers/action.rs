//! Defines what the plan of the brokers can do, and the broker that it is done to. Pure.
use crate::model::{instance_name::InstanceKey, names::ObjectKey, typed_names::ConfigurationKey};
use serde_json::Value;

/// A Pod or a Job, with the objects that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broker {
    pub(crate) key: ObjectKey,
    pub(crate) instance: InstanceKey,
    pub(crate) configuration: ConfigurationKey,
    /// The digest of the broker's Configuration now.
    pub(crate) digest: String,
}

/// The cause why a Pod is replaced. One does not use up the other's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// The device is reached differently.
    Moved,
    /// Other nodes than it names may take it.
    OtherNodes,
}

impl Cause {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Moved => "the device is reached differently",
            Self::OtherNodes => "other nodes may take it",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    CreatePod {
        broker: Broker,
        /// The uid of the Instance.
        owner: String,
        pod: Value,
        /// The ResourceClaimTemplate by which the Pod has its device, where the scheduler gives it out.
        claim: Option<Value>,
    },
    DeletePod {
        key: ObjectKey,
        uid: String,
        /// The version of a Pod that is one too many while it has no node: if it has got one meanwhile it stays.
        version: Option<String>,
        /// True if no container of it has begun: its kubelet may end it minutes later, when it has pulled its images. It has a version,
        /// too.
        is_forced: bool,
        why: &'static str,
    },
    /// Deletes a Pod that was given another way to the device, or that other nodes could take. The next one is created once it
    /// has gone.
    ReplacePod {
        key: ObjectKey,
        uid: String,
        /// The version of a Pod that has no node: if it has got one meanwhile it stays.
        version: Option<String>,
        cause: Cause,
    },
    /// Asks the API server whether it would create a Pod of a new broker spec, before Pods of the old one are replaced.
    TryPod { broker: Broker, pod: Value },
    /// Creates the Job, then remembers its generation in the status of the Instance.
    CreateJob {
        broker: Broker,
        owner: String,
        job: Value,
        claim: Option<Value>,
        generation: i64,
    },
    DeleteJob {
        key: ObjectKey,
        uid: String,
        why: &'static str,
    },
    /// Remembers in the status of the Instance that there is a Job.
    Remember {
        instance: InstanceKey,
        owner: String,
        generation: i64,
    },
}
