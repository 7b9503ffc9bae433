//! What the loop of the controller is told of the objects of each kind.
use super::world::{BrokerJob, BrokerPod, NodeState, OwnedService, OwnedSlice};
use crate::{
    api::{configuration::Configuration, instance::Instance, node_devices::NodeDevices},
    cluster::changes::{Change, Listed, version_of},
    model::{instance_name::InstanceName, typed_names::ConfigurationName},
    store::key_of,
};
use kube::Resource;
use std::sync::Arc;

/// Objects of one kind, from their watch or from an answer.
#[derive(Debug)]
pub(crate) enum News {
    Configurations(Vec<Change<Configuration, ConfigurationName>>),
    Instances(Vec<Change<Instance, InstanceName>>),
    Nodes(Vec<Change<NodeState>>),
    NodeDevices(Vec<Change<NodeDevices>>),
    Pods(Vec<Change<BrokerPod>>),
    Jobs(Vec<Change<BrokerJob>>),
    Services(Vec<Change<OwnedService>>),
    Slices(Vec<Change<OwnedSlice>>),
    /// All objects of a kind were listed anew, in this namespace or in all.
    Listed(&'static str, Option<String>),
}

/// Returns an object that the API server has answered with. `reduce` drops what plans do not read.
pub(super) fn answered<K: Resource, T, Name: From<String>>(
    object: K,
    reduce: impl FnOnce(K) -> T,
) -> Change<T, Name> {
    Change {
        key: key_of(object.meta()).typed(),
        version: version_of(object.meta()),
        object: Some(Arc::new(reduce(object))),
    }
}

/// The number of kinds.
pub(super) const KINDS: usize = 8;

/// Makes the News of one kind from its changes.
macro_rules! news {
    ($($kind:ident: $object:ident, $name:ident;)*) => {
        impl News {
            pub(super) fn kind(&self) -> &'static str {
                match self {
                    $(Self::$kind(_) => stringify!($kind),)*
                    Self::Listed(kind, _) => kind,
                }
            }
        }

        $(impl From<Vec<Change<$object, $name>>> for News {
            fn from(changes: Vec<Change<$object, $name>>) -> Self {
                Self::$kind(changes)
            }
        }

        impl From<Listed<$object>> for News {
            fn from(listed: Listed<$object>) -> Self {
                Self::Listed(stringify!($kind), listed.namespace)
            }
        })*
    };
}

news! {
    Configurations: Configuration, ConfigurationName;
    Instances: Instance, InstanceName;
    Nodes: NodeState, String;
    NodeDevices: NodeDevices, String;
    Pods: BrokerPod, String;
    Jobs: BrokerJob, String;
    Services: OwnedService, String;
    Slices: OwnedSlice, String;
}
