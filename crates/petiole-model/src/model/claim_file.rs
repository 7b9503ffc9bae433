//! Writes the CDI file by which the containers of a ResourceClaim get their devices, and reads from it what they have got. Pure.
use super::{
    container_edits::{ContainerEdits, SLOT_VARIABLE},
    container_nodes::CDI_VERSION,
    dra,
    slot::SlotId,
    slot_table::Use,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Returns the name of the CDI device that brings what a request of a claim gets.
pub fn device_name(uid: &str, request: usize) -> String {
    format!("{uid}-{request}")
}

/// Returns the UID of the claim of a CDI device, such as `akri.sh/claim=<uid>-0`.
pub fn claim_of(device: &str) -> Option<&str> {
    let name = device.strip_prefix(dra::CDI_KIND)?.strip_prefix('=')?;
    name.rsplit_once('-').map(|(uid, _)| uid)
}

/// Returns the text of the CDI file of a claim: a device for each of its requests.
pub fn text(uid: &str, edits: &[ContainerEdits]) -> String {
    let devices = edits.iter().enumerate().map(|(n, edits)| {
        json!({"name": device_name(uid, n), "containerEdits": container_edits(uid, edits)})
    });
    let devices: Vec<Value> = devices.collect();
    json!({"cdiVersion": CDI_VERSION, "kind": dra::CDI_KIND, "devices": devices}).to_string()
}

fn container_edits(uid: &str, edits: &ContainerEdits) -> Value {
    let env = edits
        .env
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    // CDI refuses a device without any edit.
    let claim = format!("AKRI_CLAIM={uid}");
    let nodes = edits.device_nodes.iter().map(|node| {
        json!({"path": node.container_path, "hostPath": node.host_path, "permissions": node.permissions})
    });
    let mounts = edits.mounts.iter().map(|mount| {
        let rights = if mount.read_only { "ro" } else { "rw" };
        json!({"hostPath": mount.host_path, "containerPath": mount.container_path, "options": ["rbind", rights]})
    });
    json!({
        "env": env.chain([claim]).collect::<Vec<_>>(),
        "deviceNodes": nodes.collect::<Vec<_>>(),
        "mounts": mounts.collect::<Vec<_>>(),
    })
}

/// Returns the slots that the containers of a claim were given, by the text of its CDI file.
pub fn use_of(uid: &str, text: &str) -> Use {
    let file: Value = serde_json::from_str(text).unwrap_or_default();
    let devices = file["devices"].as_array().into_iter().flatten();
    let env = devices.flat_map(|device| device["containerEdits"]["env"].as_array());
    let slots = env.flatten().filter_map(|variable| {
        let (name, slots) = variable.as_str()?.split_once('=')?;
        (name == SLOT_VARIABLE).then_some(slots)
    });
    let slots = slots.flat_map(|slots| slots.split(','));
    let slots: BTreeSet<SlotId> = slots.filter_map(|slot| slot.parse().ok()).collect();
    Use {
        ids: slots.iter().map(Into::into).collect(),
        claim: Some(uid.to_owned()),
        ..Use::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::device::{DeviceNode, Mount};

    fn edits(slots: &str) -> ContainerEdits {
        ContainerEdits {
            env: [(SLOT_VARIABLE.to_owned(), slots.to_owned())].into(),
            ..ContainerEdits::default()
        }
    }

    #[test]
    fn what_a_container_was_given_is_read_from_what_gives_it() {
        let mut with_all = edits("cam-1-0,cam-2-3");
        with_all.mounts = vec![Mount {
            container_path: "/data".to_owned(),
            host_path: "/mnt".to_owned(),
            read_only: true,
        }];
        with_all.device_nodes = vec![DeviceNode {
            container_path: "/dev/cam".to_owned(),
            host_path: "/dev/video0".to_owned(),
            permissions: "rw".to_owned(),
            links: vec![],
        }];
        let written = text(
            "u-1",
            &[with_all, edits("cam-1-1"), ContainerEdits::default()],
        );
        let used = use_of("u-1", &written);
        let ids: Vec<String> = used.ids.iter().map(ToString::to_string).collect();
        assert_eq!(ids, ["cam-1-0", "cam-1-1", "cam-2-3"]);
        assert_eq!(used.claim.as_deref(), Some("u-1"));
        let file: Value = serde_json::from_str(&written).unwrap();
        let first = &file["devices"][0];
        assert_eq!(first["name"], "u-1-0");
        assert_eq!(
            first["containerEdits"],
            json!({
                "env": ["AKRI_SLOT=cam-1-0,cam-2-3", "AKRI_CLAIM=u-1"],
                "deviceNodes": [{"path": "/dev/cam", "hostPath": "/dev/video0", "permissions": "rw"}],
                "mounts": [{"hostPath": "/mnt", "containerPath": "/data", "options": ["rbind", "ro"]}],
            })
        );
        assert_eq!(use_of("u-1", "no JSON").ids.len(), 0);
    }
}
