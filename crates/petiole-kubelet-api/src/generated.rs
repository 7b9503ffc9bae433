//! Contains the code that is generated from `proto/`: messages, clients and servers.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::too_many_lines,
    reason = "generated code"
)]

/// The device plugin API, `v1beta1`. Plugins call `Registration` on `kubelet.sock`, and the kubelet calls `DevicePlugin` on
/// the plugin's own socket in the same folder, `/var/lib/kubelet/device-plugins`.
///
/// Sources: `staging/src/k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto` of Kubernetes, and KEPs 3573 (device plugins)
/// and 4009 (`cdi_devices`). A refused call is a [`tonic::Status`]: the kubelet shows its message in the Pod's status.
pub mod device_plugin {
    tonic::include_proto!("v1beta1");

    /// The only version that the kubelet accepts in `RegisterRequest.version`.
    pub const VERSION: &str = "v1beta1";
    /// The value of `Device.health` for a device that may be allocated. Any other value is unhealthy to the kubelet.
    pub const HEALTHY: &str = "Healthy";
    /// What plugins say of all other devices.
    pub const UNHEALTHY: &str = "Unhealthy";
}

/// The pod resources API, `v1`: the ids of the devices that each container holds. The kubelet serves it at
/// `/var/lib/kubelet/pod-resources/kubelet.sock`, to root only.
///
/// Sources: `staging/src/k8s.io/kubelet/pkg/apis/podresources/v1/api.proto` of Kubernetes, and KEPs 606 and 2043.
pub mod pod_resources {
    tonic::include_proto!("v1");
}

/// The plugin registration API, `v1`. The kubelet asks each socket in `/var/lib/kubelet/plugins_registry` for the type of its
/// plugin, such as `CSIPlugin`, and then says whether it took the plugin.
///
/// Source: `staging/src/k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.proto` of Kubernetes.
pub mod plugin_registration {
    tonic::include_proto!("pluginregistration");
}

/// The container storage interface, `v1`, as far as the kubelet calls it when a driver registers.
///
/// Source: `csi.proto` of github.com/container-storage-interface/spec.
pub mod csi {
    tonic::include_proto!("csi.v1");
}
