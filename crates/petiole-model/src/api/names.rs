//! Every name of ours that others see: API group, labels, annotations, resource prefix. Defined once.
use crate::model::names::shortened;

/// The API group of Configuration and Instance, and the prefix of the resources made from them.
pub const GROUP: &str = "akri.sh";
pub const VERSION: &str = "v0";
pub const API_VERSION: &str = "akri.sh/v0";

/// Annotation of an Instance: the whole device id that the digest in its name was made of.
pub const DEVICE_ID: &str = "akri.sh/device-id";

/// Annotation of an Instance: the host and the networks of its device when it was found first, where its Configuration
/// pins them.
pub const PIN: &str = "akri.sh/pin";

/// Annotation of an Instance of a device that one node alone has: a digest of how the device is reached. A broker with
/// another digest is replaced.
pub const CONNECTION: &str = "akri.sh/connection";

/// Annotations of an Instance, one for each slot in use: a digest of the values that connect its container to
/// the device. The kubelet repeats the first answer at each restart of the container; the digest shows whether that
/// answer is still valid.
pub const SLOT_CONNECTION_PREFIX: &str = "told.akri.sh/";

/// Returns the annotation of that kind for one slot.
pub fn connection_annotation(slot: u32) -> String {
    format!("{SLOT_CONNECTION_PREFIX}{slot}")
}

/// Annotation of a broker: the digest of [`SLOT_CONNECTION_PREFIX`], for its one device.
pub const BROKER_CONNECTION: &str = "told.akri.sh/connection";

/// Annotation of a broker: a digest of what its Configuration said when it was created.
pub const BROKER_DIGEST: &str = "akri.sh/broker-digest";

/// Annotation of a rendered static Pod: the number of the try, from the second on. The kubelet took, or refused, those
/// before without their device.
pub const ATTEMPT: &str = "akri.sh/attempt";

/// Annotation of a Service: a digest of the spec it was made from.
pub const RENDERED: &str = "akri.sh/rendered";

/// The agents' field manager: one for all of them, so that the bookkeeping of the API server does not grow by the node.
pub const AGENT_MANAGER: &str = "petiole-agent";

/// The controller's field manager.
pub const CONTROLLER_MANAGER: &str = "petiole-controller";

/// The name of a broker's resource in a Configuration. The resource of the Instance replaces it.
pub const PLACEHOLDER: &str = "{{PLACEHOLDER}}";

/// Label of everything that is made for Configurations and Instances; its value is [`GROUP`].
pub const CONTROLLER_LABEL: &str = "controller";

/// Kubernetes' labels of an EndpointSlice: who writes it, its Service, and that the Service is headless, so that no proxy reads it.
pub const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
pub const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// Labels of broker Pods.
pub const CONFIGURATION_LABEL: &str = "akri.sh/configuration";
pub const INSTANCE_LABEL: &str = "akri.sh/instance";
pub const TARGET_NODE_LABEL: &str = "akri.sh/target-node";

/// Prefix of an Instance's labels, one for each node that sees its device: what an agent's watch selects.
pub const NODE_LABEL_PREFIX: &str = "node.akri.sh/";

/// The label by which an agent's watch finds the Instances of its node.
pub fn node_label(node: &str) -> String {
    format!("{NODE_LABEL_PREFIX}{}", node_in_label(node))
}

/// A node as that label has it: the part of a label after its prefix has 63 characters at most.
pub fn node_in_label(node: &str) -> String {
    shortened(node, 63)
}

/// The longest name of a Configuration, in characters: the longest resource name (63) less `-` and the ten digits of
/// a long digest. Beyond it: agents do not use it (`BadSpec`).
pub const CONFIGURATION_NAME_LIMIT: usize = 52;

/// Kubernetes' taint by which an operator says that a node is shut down and none of its containers runs.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The taint that Kubernetes gives to a cordoned Node, a moment after it is cordoned.
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The discovery handlers of the agent. Others are programs of their own.
pub const BUILT_IN_HANDLERS: &[&str] = &[
    "zeroconf",
    "cdi",
    "udev",
    "paths",
    "onvif",
    "opcua",
    "mqtt",
    "probe",
    "debugEcho",
];
