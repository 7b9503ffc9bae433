//! Converts the inventory to the checkpoint and back, in the format of [`petiole_kubelet_api::checkpoint`]. Pure;
//! `checkpoint_file.rs` reads and writes the file.
use super::inventory::{Claim, Holder, Inventory};
use petiole_kubelet_api::{
    checkpoint::{Data, Entry, Error, encoded, verified, written},
    device_plugin::ContainerAllocateResponse,
};
use prost::Message as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A claim that cannot be read. It is left out, as in the Go kubelet; the other claims are valid.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("Pod {pod_uid}, container {container}: the recorded answer for {resource} is unreadable")]
pub(crate) struct UnreadableClaim {
    resource: String,
    pod_uid: String,
    container: String,
}

/// The content of a checkpoint.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Restored {
    pub(crate) claims: Vec<RestoredClaim>,
    pub(crate) resources: BTreeSet<String>,
    pub(crate) left_out: Vec<UnreadableClaim>,
}

/// A claim from the checkpoint.
#[derive(Debug, PartialEq)]
pub(crate) struct RestoredClaim {
    pub(crate) resource: String,
    pub(crate) holder: Holder,
    pub(crate) claim: Claim,
}

impl Restored {
    /// Adds the content to the inventory. The plugins become stopped ones, whose grace period begins now.
    pub(crate) fn put_into<C>(self, inventory: &mut Inventory<C>, now: Duration) {
        for resource in &self.resources {
            inventory.restore_resource(resource, now);
        }
        for restored in self.claims {
            inventory.restore_claim(&restored.resource, restored.holder, restored.claim);
        }
    }
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

pub(crate) fn read(bytes: &[u8]) -> Result<Restored, Error> {
    let data = verified(bytes)?;
    let registered = data.registered_devices.unwrap_or_default();
    let mut restored = Restored {
        resources: registered.into_keys().collect(),
        ..Restored::default()
    };
    for entry in data.pod_device_entries.unwrap_or_default() {
        match claim(entry) {
            Ok(claim) => restored.claims.push(claim),
            Err(unreadable) => restored.left_out.push(unreadable),
        }
    }
    Ok(restored)
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

fn claim(entry: Entry) -> Result<RestoredClaim, UnreadableClaim> {
    let response = entry
        .response()
        .and_then(|bytes| ContainerAllocateResponse::decode(bytes.as_slice()).ok())
        .ok_or_else(|| UnreadableClaim {
            resource: entry.resource_name.clone(),
            pod_uid: entry.pod_uid.clone(),
            container: entry.container_name.clone(),
        })?;
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
    Ok(RestoredClaim {
        resource: entry.resource_name,
        holder,
        claim,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A checkpoint that a Go kubelet 1.36.3 wrote.
    const SAMPLE: &str = r#"{"Data":{"PodDeviceEntries":[{"PodUID":"uid-1","ContainerName":"c","ResourceName":"akri.sh/cam-1","DeviceIDs":{"-1":["b"]},"AllocResp":"CgYKAUsSAVY="}],"RegisteredDevices":{"akri.sh/cam-1":["a","b"]}},"Checksum":2270218631}"#;

    fn inventory_of(restored: Restored) -> Inventory<()> {
        let mut inventory = Inventory::default();
        restored.put_into(&mut inventory, Duration::ZERO);
        inventory
    }

    #[test]
    fn a_checkpoint_of_the_go_kubelet_is_read() {
        let restored = read(SAMPLE.as_bytes()).unwrap();
        let RestoredClaim {
            resource,
            holder,
            claim,
        } = &restored.claims[0];
        assert_eq!(resource, "akri.sh/cam-1");
        assert_eq!(
            (holder.pod_uid.as_str(), holder.container.as_str()),
            ("uid-1", "c")
        );
        assert_eq!(claim.device_ids(), ["b".to_owned()].into());
        assert_eq!(claim.response.as_ref().unwrap().envs["K"], "V");
        assert_eq!(restored.resources, ["akri.sh/cam-1".to_owned()].into());
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
        let restored = read(&written(data)).unwrap();
        assert_eq!(restored.claims.len(), 1);
        assert_eq!(restored.claims[0].holder.container, "c");
        assert_eq!(restored.left_out[0].container, "d");
        assert_eq!(restored.resources.len(), 1);
    }

    #[test]
    fn what_is_written_is_what_go_writes() {
        use petiole_kubelet_api::device_plugin::{Device, HEALTHY};
        let mut inventory = inventory_of(read(SAMPLE.as_bytes()).unwrap());
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
        let holder = Holder {
            pod_uid: "<a&b>".to_owned(),
            container: "\u{2028}".to_owned(),
        };
        let claim = Claim {
            response: Some(ContainerAllocateResponse::default()),
            ..Claim::default()
        };
        inventory.restore_claim("x.io/r", holder.clone(), claim);
        let bytes = write(&inventory);
        let text = String::from_utf8(bytes.clone()).unwrap();
        let want = r#""PodUID":"\u003ca\u0026b\u003e","ContainerName":"\u2028""#;
        assert!(text.contains(want), "{text}");
        assert_eq!(read(&bytes).unwrap().claims[0].holder, holder);
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let changed = SAMPLE.replace("uid-1", "uid-2");
        assert!(matches!(
            read(changed.as_bytes()),
            Err(Error::Checksum { .. })
        ));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            read(&bytes).ok();
        }

        #[test]
        fn what_is_written_is_read_back(
            entries in prop::collection::btree_map("[a-z]{1,5}", prop::collection::btree_set("[a-z0-9]{1,4}", 1..4), 0..5),
            registered in prop::collection::btree_set("[a-z]{1,5}", 0..5),
        ) {
            let claims = entries.into_iter().map(|(name, ids)| {
                let holder = Holder { pod_uid: format!("uid-{name}"), container: "c".into() };
                let response = ContainerAllocateResponse { envs: [("K".to_owned(), name.clone())].into(), ..Default::default() };
                RestoredClaim { resource: name, holder, claim: Claim { ids: [(-1, ids)].into(), response: Some(response) } }
            }).collect();
            let restored = Restored { claims, resources: registered, left_out: vec![] };
            let bytes = write(&inventory_of(read(&write(&inventory_of(restored))).unwrap()));
            prop_assert_eq!(write(&inventory_of(read(&bytes).unwrap())), bytes);
        }
    }
}
