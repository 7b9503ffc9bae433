//! Generated from `proto/`: messages, clients and servers of the kubelet's APIs.
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

/// The device plugin API, `v1beta1`: plugins call `Registration`, the kubelet calls `DevicePlugin`.
pub mod device_plugin {
    tonic::include_proto!("v1beta1");

    /// The only version the kubelet accepts in `RegisterRequest.version`.
    pub const VERSION: &str = "v1beta1";
    /// `Device.health` of a slot that may be allocated. Anything else is unhealthy to the kubelet.
    pub const HEALTHY: &str = "Healthy";
    pub const UNHEALTHY: &str = "Unhealthy";
}

/// The pod resources API, `v1`: which device ids each running container holds.
pub mod pod_resources {
    tonic::include_proto!("v1");
}

/// The plugin registration API, `v1`: the kubelet asks sockets in `plugins_registry` what they are.
pub mod plugin_registration {
    tonic::include_proto!("pluginregistration");
}

/// The container storage interface, `v1`: what the kubelet asks a driver when it registers.
pub mod csi {
    tonic::include_proto!("csi.v1");
}

/// What gRPC reflection serves.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
