//! The requests to claim and release slots, and the reasons why a claim is refused.
use crate::{
    agent::connections::ConnectionDigest,
    model::{
        instance_name::InstanceName,
        slot::SlotId,
        slot_table::{Claim, ClaimError, Resource, SlotChange, SlotTable},
    },
    store::StoreError,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};

/// The limit for a write of slots: an Allocate call is answered within 3 s, because the kubelet admits one Pod at
/// a time and waits without end.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
pub(in crate::agent) type Requests = mpsc::Sender<Request>;

/// A request to [`super::run`].
#[derive(Debug)]
pub(in crate::agent) enum Request {
    Claim(ClaimRequest),
    /// Releases slots that no container held in a look at the kubelet's records that began at uptime `begun`.
    Release {
        changes: Vec<SlotChange>,
        begun: Duration,
    },
    /// Claims free slots that containers used in a look that began at uptime `begun`.
    Adopt {
        changes: Vec<SlotChange>,
        begun: Duration,
    },
}

/// What a claim is for.
#[derive(Debug)]
pub(in crate::agent) enum Wanted {
    /// The containers of an Allocate call.
    Listed {
        resource: Resource,
        /// The ids that each container asks for.
        containers: Vec<Vec<String>>,
        /// Slots that this node holds by its other resource, and whose containers have ended.
        gone: BTreeSet<SlotId>,
    },
    /// A ResourceClaim.
    Claimed {
        uid: String,
        /// The device of each slot.
        devices: Vec<InstanceName>,
    },
}

impl Wanted {
    pub(super) fn plan(&self, table: &SlotTable) -> Result<Claim, ClaimError> {
        match self {
            Self::Listed {
                resource,
                containers,
                gone,
            } => table.plan_claim(resource, containers, gone),
            Self::Claimed { uid, devices } => table.plan_resource_claim(uid, devices),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed { resource, .. } => f.write_str(resource.name()),
            Self::Claimed { uid, .. } => write!(f, "claim {uid}"),
        }
    }
}

/// The claim of one Allocate call, or of one Prepare call for a ResourceClaim.
#[derive(Debug)]
pub(in crate::agent) struct ClaimRequest {
    pub(in crate::agent) wanted: Wanted,
    /// The digest that the container will get, by Instance.
    pub(in crate::agent) connections: BTreeMap<InstanceName, ConnectionDigest>,
    pub(in crate::agent) reply: oneshot::Sender<Result<Claim, Refusal>>,
}

/// The reason why a claim was not made.
#[derive(Debug, Clone, thiserror::Error)]
pub(in crate::agent) enum Refusal {
    #[error(transparent)]
    Slot(#[from] ClaimError),
    #[error("the claim could not be written: {0}")]
    Store(#[from] StoreError),
    #[error("the claim could not be written within {} s; it is tried again with the next Pod", WRITE_TIMEOUT.as_secs())]
    Timeout,
    #[error(
        "the devices behind these slots changed while they were looked at; the next try will see the new ones"
    )]
    Changed,
}

impl Refusal {
    /// Returns one of a few words, for metrics.
    pub(in crate::agent) fn word(&self) -> &'static str {
        match self {
            Self::Slot(ClaimError::Unknown { .. }) => "unknown_slot",
            Self::Slot(ClaimError::BeyondCapacity { .. }) => "beyond_capacity",
            Self::Slot(ClaimError::HeldElsewhere { .. }) => "held_elsewhere",
            Self::Slot(ClaimError::HeldHere { .. }) => "held_here",
            Self::Slot(ClaimError::Full { .. }) => "full",
            Self::Slot(ClaimError::SameDevice { .. }) => "same_device",
            Self::Slot(ClaimError::Twice { .. }) => "twice",
            Self::Slot(ClaimError::ByClaims { .. }) => "by_claims",
            Self::Slot(ClaimError::Busy { .. }) => "busy",
            Self::Slot(ClaimError::Unconfirmed { .. }) => "unconfirmed",
            Self::Store(StoreError::SlotTaken { .. }) => "held_elsewhere",
            Self::Store(StoreError::Gone(_)) => "device_gone",
            Self::Store(StoreError::Refused(_) | StoreError::Unavailable(_)) => "store",
            Self::Timeout => "timeout",
            Self::Changed => "device_changed",
        }
    }

    /// Returns whether the same call may succeed a little later.
    pub(in crate::agent) fn is_passing(&self) -> bool {
        match self {
            Self::Slot(error) => error.is_passing(),
            Self::Store(
                StoreError::SlotTaken { .. } | StoreError::Gone(_) | StoreError::Unavailable(_),
            )
            | Self::Timeout
            | Self::Changed => true,
            Self::Store(StoreError::Refused(_)) => false,
        }
    }
}
