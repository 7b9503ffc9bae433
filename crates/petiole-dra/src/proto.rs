//! Contains the code that is generated from `proto/`: messages, clients and servers, for those who test a driver.
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

/// The kubelet's API of DRA drivers, `v1`.
///
/// Source: `staging/src/k8s.io/kubelet/pkg/apis/dra/v1/api.proto` of Kubernetes, and KEP 4381.
pub mod dra {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
}

/// The API of the health of devices, `v1`.
///
/// Source: `staging/src/k8s.io/kubelet/pkg/apis/dra-health/v1/api.proto` of Kubernetes, and KEP 4680.
pub mod health {
    tonic::include_proto!("v1");
}
