//! Merges the answers of the plugins of a container's resources. Pure.
use petiole_kubelet_api::device_plugin::{ContainerAllocateResponse, DeviceSpec, Mount};
use serde::Serialize;
use std::collections::BTreeMap;

/// The merged answers of all plugins. The environment is applied. The rest is only recorded, because the containers of
/// this kubelet are plain processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Edits {
    /// The environment is not shown, because it may contain credentials of a device.
    #[serde(skip)]
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) mounts: BTreeMap<String, RecordedMount>,
    pub(crate) devices: BTreeMap<String, RecordedDevice>,
    pub(crate) cdi_devices: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecordedMount {
    host_path: String,
    read_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecordedDevice {
    host_path: String,
    permissions: String,
}

/// The result of [`merge`].
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) edits: Edits,
    /// A message for each value that another resource has set before.
    pub(crate) conflicts: Vec<String>,
}

/// Merges answers by the kubelet's rules: entries with the same key, container path or CDI name conflict, and the first
/// one wins. The Go kubelet's order is random; here it is the order of resource names. Returns the conflicts beside the
/// edits.
pub(crate) fn merge<'a>(
    responses: impl IntoIterator<Item = (&'a str, &'a ContainerAllocateResponse)>,
) -> Merged {
    let mut edits = Edits::default();
    let mut conflicts = Vec::new();
    for (resource, response) in responses {
        let mut conflict = |what: &str, key: &str| {
            conflicts.push(format!(
                "{what} {key} of {resource} is set by another resource"
            ));
        };
        for (key, value) in &response.envs {
            if !first_wins(&mut edits.env, key, value.clone()) {
                conflict("variable", key);
            }
        }
        for (key, value) in &response.annotations {
            if !first_wins(&mut edits.annotations, key, value.clone()) {
                conflict("annotation", key);
            }
        }
        for mount in &response.mounts {
            if !first_wins(&mut edits.mounts, &mount.container_path, mount.into()) {
                conflict("mount", &mount.container_path);
            }
        }
        for device in &response.devices {
            if !first_wins(&mut edits.devices, &device.container_path, device.into()) {
                conflict("device", &device.container_path);
            }
        }
        for cdi in &response.cdi_devices {
            if !edits.cdi_devices.contains(&cdi.name) {
                edits.cdi_devices.push(cdi.name.clone());
            }
        }
    }
    Merged { edits, conflicts }
}

/// Inserts the value if the key is free. Returns `false` if the key has another value.
fn first_wins<V: PartialEq>(map: &mut BTreeMap<String, V>, key: &str, value: V) -> bool {
    match map.get(key) {
        Some(first) => *first == value,
        None => {
            map.insert(key.to_owned(), value);
            true
        }
    }
}

impl From<&Mount> for RecordedMount {
    fn from(mount: &Mount) -> Self {
        Self {
            host_path: mount.host_path.clone(),
            read_only: mount.read_only,
        }
    }
}

impl From<&DeviceSpec> for RecordedDevice {
    fn from(device: &DeviceSpec) -> Self {
        Self {
            host_path: device.host_path.clone(),
            permissions: device.permissions.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(env: &[(&str, &str)], cdi: &str) -> ContainerAllocateResponse {
        ContainerAllocateResponse {
            envs: env
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            cdi_devices: vec![petiole_kubelet_api::device_plugin::CdiDevice {
                name: cdi.to_owned(),
            }],
            ..Default::default()
        }
    }

    #[test]
    fn the_first_resource_wins_and_the_conflict_is_named() {
        let a = response(&[("K", "1"), ("SAME", "x")], "v/c=1");
        let b = response(&[("K", "2"), ("SAME", "x"), ("B", "b")], "v/c=1");
        let Merged { edits, conflicts } = merge([("a/a", &a), ("b/b", &b)]);
        let want = [("K", "1"), ("SAME", "x"), ("B", "b")];
        let want = want.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        assert_eq!(edits.env, want);
        assert_eq!(edits.cdi_devices, ["v/c=1"]);
        assert_eq!(conflicts, ["variable K of b/b is set by another resource"]);
    }

    #[test]
    fn annotations_mounts_and_device_nodes_of_two_resources_conflict_by_key_and_path() {
        let response =
            |value: &str, read_only: bool, permissions: &str| ContainerAllocateResponse {
                annotations: [("note".to_owned(), value.to_owned())].into(),
                mounts: vec![Mount {
                    container_path: "/in".to_owned(),
                    host_path: format!("/host/{value}"),
                    read_only,
                }],
                devices: vec![DeviceSpec {
                    container_path: "/dev/x".to_owned(),
                    host_path: "/dev/x".to_owned(),
                    permissions: permissions.to_owned(),
                }],
                ..ContainerAllocateResponse::default()
            };
        let (a, b) = (response("a", true, "rw"), response("b", false, "r"));
        let Merged { edits, conflicts } = merge([("a/a", &a), ("b/b", &b)]);
        let of = |kind: &str| format!("{kind} of b/b is set by another resource");
        assert_eq!(
            conflicts,
            [of("annotation note"), of("mount /in"), of("device /dev/x")]
        );
        assert_eq!(edits, merge([("a/a", &a)]).edits);
        assert_eq!(
            merge([("a/a", &a), ("b/b", &a)]).conflicts,
            Vec::<String>::new()
        );
    }
}
