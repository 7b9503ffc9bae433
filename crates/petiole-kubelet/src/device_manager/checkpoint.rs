//! Converts the inventory to the checkpoint and back, in the format of [`petiole_kubelet_api::checkpoint`]. Pure;
//! `checkpoint_file.rs` reads and writes the file.
use super::inventory::{Claim, Holder, Inventory};
use petiole_kubelet_api::{
    checkpoint::{Data, Entry, Error, encoded, verified, written},
    device_plugin::ContainerAllocateResponse,
};
use prost::Message as _;
use std::{collections::BTreeMap, time::Duration};

/// A claim that cannot be read. It is left out, as in the Go kubelet; the other claims are valid.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("Pod {pod_uid}, container {container}: the recorded answer for {resource} is unreadable")]
pub(crate) struct UnreadableClaim {
    resource: String,
    pod_uid: String,
    container: String,
}

pub(crate) fn write<C>(inventory: &Inventory<C>) -> Vec<u8> {
    let mut entries = Vec::new();
    let mut registered = BTreeMap::new();
    for (name, resource) in inventory.resources() {
        if resource.is_listed() {
            registered.insert(name.clone(), Some(resource.healthy().into_iter().collect()));
        }
        let answered = resource.holders().iter();
        entries.extend(answered.filter_map(|(holder, claim)| entry(name, holder, claim)));
    }
    let data = Data {
        pod_device_entries: Some(entries).filter(|entries| !entries.is_empty()),
        registered_devices: Some(registered),
    };
    written(data)
}

/// Adds the content of a checkpoint to the inventory, and returns the claims that are left out. The plugins become stopped ones,
/// whose grace period begins now.
pub(crate) fn read<C>(
    bytes: &[u8],
    inventory: &mut Inventory<C>,
    now: Duration,
) -> Result<Vec<UnreadableClaim>, Error> {
    let data = verified(bytes)?;
    for resource in data.registered_devices.unwrap_or_default().keys() {
        inventory.restore_resource(resource, now);
    }
    let mut left_out = vec![];
    for entry in data.pod_device_entries.unwrap_or_default() {
        let response = entry.response();
        let response =
            response.and_then(|bytes| ContainerAllocateResponse::decode(bytes.as_slice()).ok());
        let Some(response) = response else {
            left_out.push(UnreadableClaim {
                resource: entry.resource_name,
                pod_uid: entry.pod_uid,
                container: entry.container_name,
            });
            continue;
        };
        let ids = entry.device_ids.unwrap_or_default().into_iter();
        let claim = Claim {
            ids: ids
                .map(|(node, ids)| (node, ids.unwrap_or_default().into_iter().collect()))
                .collect(),
            response: Some(response),
        };
        let holder = Holder {
            pod_uid: entry.pod_uid,
            container: entry.container_name,
        };
        inventory.restore_claim(&entry.resource_name, holder, claim);
    }
    Ok(left_out)
}

fn entry(resource: &str, holder: &Holder, claim: &Claim) -> Option<Entry> {
    let response = claim.response.as_ref()?.encode_to_vec();
    let ids = claim.ids.iter();
    Some(Entry {
        pod_uid: holder.pod_uid.clone(),
        container_name: holder.container.clone(),
        resource_name: resource.to_owned(),
        device_ids: Some(
            ids.map(|(node, ids)| (*node, Some(ids.iter().cloned().collect())))
                .collect(),
        ),
        alloc_resp: Some(encoded(&response)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A checkpoint that a Go kubelet 1.36.3 wrote.
    const SAMPLE: &str = r#"{"Data":{"PodDeviceEntries":[{"PodUID":"uid-1","ContainerName":"c","ResourceName":"akri.sh/cam-1","DeviceIDs":{"-1":["b"]},"AllocResp":"CgYKAUsSAVY="}],"RegisteredDevices":{"akri.sh/cam-1":["a","b"]}},"Checksum":2270218631}"#;

    /// Returns the inventory of a checkpoint, without a claim that is left out.
    fn restored(bytes: &[u8]) -> Inventory<()> {
        let mut inventory = Inventory::default();
        let left_out = read(bytes, &mut inventory, Duration::ZERO).unwrap();
        assert_eq!(left_out, []);
        inventory
    }

    fn holder(pod_uid: &str, container: &str) -> Holder {
        Holder {
            pod_uid: pod_uid.to_owned(),
            container: container.to_owned(),
        }
    }

    #[test]
    fn a_checkpoint_of_the_go_kubelet_is_read() {
        let inventory = restored(SAMPLE.as_bytes());
        let names: Vec<&String> = inventory.resources().keys().collect();
        assert_eq!(names, ["akri.sh/cam-1"]);
        let resource = inventory.resource("akri.sh/cam-1").unwrap();
        assert!(resource.endpoint().is_some(), "it was registered");
        let claim = &resource.holders()[&holder("uid-1", "c")];
        assert_eq!(claim.device_ids(), ["b".to_owned()].into());
        assert_eq!(claim.response.as_ref().unwrap().envs["K"], "V");
    }

    #[test]
    fn a_claim_whose_answer_cannot_be_read_costs_no_other() {
        let mut data = verified(SAMPLE.as_bytes()).unwrap();
        let entries = data.pod_device_entries.as_mut().unwrap();
        let mut unreadable = entries[0].clone();
        unreadable.container_name = "d".to_owned();
        // This is a map whose key is not UTF-8.
        unreadable.alloc_resp = Some(encoded(b"\x0a\x06\x0a\x01\xff\x12\x01V"));
        entries.insert(0, unreadable);
        let mut inventory = Inventory::<()>::default();
        let left_out = read(&written(data), &mut inventory, Duration::ZERO).unwrap();
        assert_eq!(left_out[0].container, "d");
        let resource = inventory.resource("akri.sh/cam-1").unwrap();
        let holders: Vec<&Holder> = resource.holders().keys().collect();
        assert_eq!(holders, [&holder("uid-1", "c")]);
    }

    #[test]
    fn what_is_written_is_what_go_writes() {
        use petiole_kubelet_api::device_plugin::{Device, HEALTHY};
        let mut inventory = restored(SAMPLE.as_bytes());
        let endpoint = super::super::inventory::Endpoint {
            socket: "x".into(),
            generation: 1,
            client: Some(()),
            options: None,
            stopped: None,
        };
        inventory.connect("akri.sh/cam-1", endpoint).unwrap();
        let devices = ["a", "b"].map(|id| Device {
            id: id.to_owned(),
            health: HEALTHY.to_owned(),
            topology: None,
        });
        inventory.list("akri.sh/cam-1", 1, devices.into());
        assert_eq!(String::from_utf8(write(&inventory)).unwrap(), SAMPLE);
    }

    #[test]
    fn what_go_escapes_is_escaped_and_read_back() {
        let mut inventory = Inventory::<()>::default();
        inventory.restore_resource("x.io/r", Duration::ZERO);
        let holder = holder("<a&b>", "\u{2028}");
        let claim = Claim {
            response: Some(ContainerAllocateResponse::default()),
            ..Claim::default()
        };
        inventory.restore_claim("x.io/r", holder.clone(), claim);
        let bytes = write(&inventory);
        let text = String::from_utf8(bytes.clone()).unwrap();
        let want = r#""PodUID":"\u003ca\u0026b\u003e","ContainerName":"\u2028""#;
        assert!(text.contains(want), "{text}");
        let resources = restored(&bytes);
        assert!(
            resources
                .resource("x.io/r")
                .unwrap()
                .holders()
                .contains_key(&holder)
        );
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let changed = SAMPLE.replace("uid-1", "uid-2");
        assert!(matches!(
            read(
                changed.as_bytes(),
                &mut Inventory::<()>::default(),
                Duration::ZERO
            ),
            Err(Error::Checksum { .. })
        ));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            read(&bytes, &mut Inventory::<()>::default(), Duration::ZERO).ok();
        }

        #[test]
        fn what_is_written_is_read_back(
            entries in prop::collection::btree_map("[a-z]{1,5}", prop::collection::btree_set("[a-z0-9]{1,4}", 1..4), 0..5),
            registered in prop::collection::btree_set("[a-z]{1,5}", 0..5),
        ) {
            let mut inventory = Inventory::<()>::default();
            for name in &registered {
                inventory.restore_resource(name, Duration::ZERO);
            }
            for (name, ids) in entries {
                let response = ContainerAllocateResponse { envs: [("K".to_owned(), name.clone())].into(), ..Default::default() };
                let claim = Claim { ids: [(-1, ids)].into(), response: Some(response) };
                inventory.restore_claim(&name, holder(&format!("uid-{name}"), "c"), claim);
            }
            let bytes = write(&restored(&write(&inventory)));
            prop_assert_eq!(write(&restored(&bytes)), bytes);
        }
    }
}
