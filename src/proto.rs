//! Contains the code that is generated from `proto/`: messages, clients and servers of the kubelet's APIs.
#![allow(
    unreachable_pub,
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::too_many_lines,
    reason = "generated code"
)]

pub mod codec;
pub mod discovery;

/// The device plugin API, `v1beta1`. Plugins call `Registration`, and the kubelet calls `DevicePlugin`.
pub mod device_plugin {
    tonic::include_proto!("v1beta1");

    /// The only version that the kubelet accepts in `RegisterRequest.version`.
    pub const VERSION: &str = "v1beta1";
    /// The value of `Device.health` for a slot that may be allocated. Any other value is unhealthy to the kubelet.
    pub const HEALTHY: &str = "Healthy";
    pub const UNHEALTHY: &str = "Unhealthy";
}

/// The pod resources API, `v1`. It lists the device ids that each running container holds.
pub mod pod_resources {
    tonic::include_proto!("v1");
}

/// The plugin registration API, `v1`. The kubelet asks the sockets in `plugins_registry` for the type of their plugin.
pub mod plugin_registration {
    tonic::include_proto!("pluginregistration");
}

/// The container storage interface, `v1`, as far as the kubelet calls it when a driver registers.
pub mod csi {
    tonic::include_proto!("csi.v1");
}

/// The descriptors that gRPC reflection serves.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
