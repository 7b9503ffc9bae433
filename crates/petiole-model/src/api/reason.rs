//! The reasons of conditions, problems and Events. `docs/troubleshooting.md` describes each of them.
use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident,)*) => {
        /// One word that names the cause of a condition, a problem or an Event.
        ///
        /// Objects carry reasons as text, because agents of another version may write other ones.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason {
            $($(#[$doc])* $reason,)*
        }

        impl Reason {
            /// All reasons, in alphabetical order.
            pub const ALL: &[Self] = &[$(Self::$reason,)*];

            /// Returns the word as objects carry it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$reason => stringify!($reason),)*
                }
            }
        }
    };
}

reasons! {
    AllocateRefused,
    BadDiscoveryDetails,
    BadName,
    BadSpec,
    BrokerCrashes,
    BrokerCreated,
    BrokerFailed,
    BrokerImage,
    BrokerNotStarted,
    BrokerRefused,
    BrokerSpecInvalid,
    BrokerUnschedulable,
    BrokersRun,
    BrokersRunOnFewer,
    BrokersStarting,
    ComesAndGoes,
    /// An older Configuration of another namespace has the same name.
    ConfigurationNameTaken,
    DeviceBack,
    DeviceFlaps,
    DeviceGone,
    DeviceGoneInUse,
    /// The API server refuses the ConfigMap with the list of devices, or it is not ours.
    DeviceListRefused,
    /// Not all devices fit into the ConfigMap.
    DeviceListTooLarge,
    DeviceSeen,
    /// A device may have no name in the cluster, or the API server refuses its Service.
    DeviceServiceRefused,
    DiscoveryFailed,
    DiscoveryIncomplete,
    DiscoveryPropertyUnreadable,
    Duplicate,
    Empty,
    EvictionRefused,
    Flapping,
    HandlerChanged,
    /// Another host announces a pinned device.
    IdentityChanged,
    InstanceDeleted,
    /// An Instance has another name than `spec.instanceName` says.
    InstanceNameNotGiven,
    /// Instances of other devices have the names that a device's Instance can get.
    InstanceNameTaken,
    MostNodesNotReady,
    NameTooLong,
    NoAgent,
    NoDevice,
    NoNodeSelected,
    NotAConfiguration,
    NotCreated,
    NotReported,
    OlderDefinition,
    OtherHost,
    /// A Pod that is no broker was evicted, because its device is gone.
    PodEvicted,
    /// A Pod that the kubelet refused was deleted.
    RefusedPodDeleted,
    ResourcePrefix,
    ResourceTaken,
    ServiceNameTaken,
    ServiceRefused,
    /// The API server does not take the devices that the scheduler is to give out.
    SlicesRefused,
    SlotHeldTwice,
    SlotsHeldByLostNode,
    /// The API server keeps no capacity of devices, so that the scheduler gives each to one claim.
    SlotsNotShared,
    SlotsNotWritten,
    SlotsReleased,
    StartRefused,
    TooManyConfigurations,
    TooManyDevices,
    TooManyNewDevices,
    TooManySlots,
    UnknownField,
    UnknownHandler,
    Unreadable,
    UnusedDiscoveryProperties,
    VariableRefused,
    Working,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq<Reason> for String {
    fn eq(&self, other: &Reason) -> bool {
        self == other.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::limits;

    #[test]
    fn reasons_are_sorted_and_fit_into_their_fields() {
        assert!(Reason::ALL.is_sorted_by_key(|reason| reason.as_str()));
        let fits = |reason: &Reason| reason.as_str().len() <= limits::WORD_MAX;
        assert!(Reason::ALL.iter().all(fits));
    }
}
