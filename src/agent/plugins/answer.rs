//! Converts what a container gets to the kubelet's format. Pure.
use crate::{
    model::container_edits::ContainerEdits,
    proto::device_plugin::{CdiDevice, ContainerAllocateResponse, DeviceSpec, Mount},
};
use std::collections::BTreeMap;

pub(super) fn to_wire(edits: ContainerEdits) -> ContainerAllocateResponse {
    ContainerAllocateResponse {
        envs: edits.env,
        mounts: edits
            .mounts
            .into_iter()
            .map(|m| Mount {
                container_path: m.container_path,
                host_path: m.host_path,
                read_only: m.read_only,
            })
            .collect(),
        devices: edits
            .device_nodes
            .into_iter()
            .map(|n| DeviceSpec {
                container_path: n.container_path,
                host_path: n.host_path,
                permissions: n.permissions,
            })
            .collect(),
        annotations: BTreeMap::new(),
        cdi_devices: edits
            .cdi_devices
            .into_iter()
            .map(|name| CdiDevice { name })
            .collect(),
    }
}
