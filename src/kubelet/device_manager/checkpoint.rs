//! What the device manager keeps across restarts, byte for byte as the Go kubelet's `kubelet_internal_checkpoint`:
//! its JSON, and its checksum over Go's dump of the data. Pure; `keeper.rs` reads and writes the file.
use super::inventory::{Claim, Holder, Inventory};
use crate::proto::device_plugin::ContainerAllocateResponse;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use prost::Message as _;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::Duration,
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("not a checkpoint: {0}")]
    Json(#[from] serde_json::Error),
    #[error("corrupt: its checksum is {found}, its data has {expected}")]
    Checksum { found: u64, expected: u32 },
}

/// A claim that is left out, as by the Go kubelet; the others are good.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("the answer for {resource} of container {container} of Pod {pod_uid} cannot be read")]
pub(crate) struct UnreadableClaim {
    resource: String,
    pod_uid: String,
    container: String,
}

/// Go tells nil from empty, and so does the checksum: `None` is nil.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Data {
    pod_device_entries: Option<Vec<Entry>>,
    registered_devices: Option<BTreeMap<String, Option<Vec<String>>>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Entry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    #[serde(rename = "ContainerName")]
    container_name: String,
    #[serde(rename = "ResourceName")]
    resource_name: String,
    #[serde(rename = "DeviceIDs")]
    device_ids: Option<BTreeMap<i64, Option<Vec<String>>>>,
    /// Base64.
    #[serde(rename = "AllocResp")]
    alloc_resp: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: Data,
    checksum: u64,
}

/// What a checkpoint says.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Restored {
    pub(crate) claims: Vec<(String, Holder, Claim)>,
    pub(crate) resources: BTreeSet<String>,
    pub(crate) left_out: Vec<UnreadableClaim>,
}

impl Restored {
    /// Puts it into the inventory: the plugins as stopped ones, whose grace begins now.
    pub(crate) fn put_into<C>(self, inventory: &mut Inventory<C>, now: Duration) {
        for resource in &self.resources {
            inventory.restore_resource(resource, now);
        }
        for (resource, holder, claim) in self.claims {
            inventory.restore_claim(&resource, holder, claim);
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
    let checksum = u64::from(checksum(&data));
    let json = serde_json::to_string(&File { data, checksum });
    go_json(&json.expect("strings and numbers are always JSON")).into_bytes()
}

/// Go writes these as escapes, so that JSON may stand in HTML. Outside of strings there are none of them.
fn go_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

pub(crate) fn read(bytes: &[u8]) -> Result<Restored, Error> {
    let File {
        data,
        checksum: found,
    } = serde_json::from_slice(bytes)?;
    let expected = checksum(&data);
    if found != u64::from(expected) {
        return Err(Error::Checksum { found, expected });
    }
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
        alloc_resp: Some(BASE64_STANDARD.encode(response)),
    })
}

fn claim(entry: Entry) -> Result<(String, Holder, Claim), UnreadableClaim> {
    let bytes = BASE64_STANDARD.decode(entry.alloc_resp.unwrap_or_default());
    let response = bytes
        .ok()
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
    Ok((entry.resource_name, holder, claim))
}

/// FNV-1a, 32 bits, over the text that `dump.ForHash` of k8s.io/apimachinery makes of the data.
fn checksum(data: &Data) -> u32 {
    dump(data).bytes().fold(0x811c_9dc5, |hash: u32, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

fn dump(data: &Data) -> String {
    let entries = nil_or(data.pod_device_entries.as_ref(), |entries| {
        format!("[{}]", joined(entries.iter().map(dump_entry)))
    });
    let registered = nil_or(data.registered_devices.as_ref(), |devices| {
        format!(
            "map[{}]",
            joined(
                devices
                    .iter()
                    .map(|(name, ids)| format!("{name}:{}", dump_ids(ids.as_ref())))
            )
        )
    });
    format!(
        "(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){entries} \
         RegisteredDevices:(map[string][]string){registered}}}"
    )
}

fn dump_entry(entry: &Entry) -> String {
    let ids = nil_or(entry.device_ids.as_ref(), |by_node| {
        format!(
            "map[{}]",
            joined(
                by_node
                    .iter()
                    .map(|(node, ids)| format!("{node}:{}", dump_ids(ids.as_ref())))
            )
        )
    });
    let response = nil_or(entry.alloc_resp.as_ref(), |text| {
        let bytes = BASE64_STANDARD.decode(text).unwrap_or_default();
        let mut out = String::from("[");
        for (n, byte) in bytes.iter().enumerate() {
            let space = if n == 0 { "" } else { " " };
            write!(out, "{space}{byte}").expect("a String takes all");
        }
        out + "]"
    });
    format!(
        "{{PodUID:(string){} ContainerName:(string){} ResourceName:(string){} \
         DeviceIDs:(checkpoint.DevicesPerNUMA){ids} AllocResp:([]uint8){response}}}",
        entry.pod_uid, entry.container_name, entry.resource_name
    )
}

fn dump_ids(ids: Option<&Vec<String>>) -> String {
    nil_or(ids, |ids| format!("[{}]", ids.join(" ")))
}

fn nil_or<T>(value: Option<&T>, dump: impl FnOnce(&T) -> String) -> String {
    value.map_or_else(|| "<nil>".to_owned(), dump)
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Written by a Go kubelet 1.36.3.
    const SAMPLE: &str = r#"{"Data":{"PodDeviceEntries":[{"PodUID":"uid-1","ContainerName":"c","ResourceName":"akri.sh/cam-1","DeviceIDs":{"-1":["b"]},"AllocResp":"CgYKAUsSAVY="}],"RegisteredDevices":{"akri.sh/cam-1":["a","b"]}},"Checksum":2270218631}"#;

    fn inventory_of(restored: Restored) -> Inventory<()> {
        let mut inventory = Inventory::default();
        restored.put_into(&mut inventory, Duration::ZERO);
        inventory
    }

    #[test]
    fn a_checkpoint_of_the_go_kubelet_is_read() {
        let restored = read(SAMPLE.as_bytes()).unwrap();
        let (resource, holder, claim) = &restored.claims[0];
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
        let mut file: File = serde_json::from_str(SAMPLE).unwrap();
        let entries = file.data.pod_device_entries.as_mut().unwrap();
        let mut unreadable = entries[0].clone();
        unreadable.container_name = "d".to_owned();
        // A map's key that is no UTF-8.
        unreadable.alloc_resp = Some(BASE64_STANDARD.encode(b"\x0a\x06\x0a\x01\xff\x12\x01V"));
        entries.insert(0, unreadable);
        file.checksum = checksum(&file.data).into();
        let restored = read(&serde_json::to_vec(&file).unwrap()).unwrap();
        assert_eq!(restored.claims.len(), 1);
        assert_eq!(restored.claims[0].1.container, "c");
        assert_eq!(restored.left_out[0].container, "d");
        assert_eq!(restored.resources.len(), 1);
    }

    #[test]
    fn what_is_written_is_what_go_writes() {
        use crate::proto::device_plugin::{Device, HEALTHY};
        let mut inventory = inventory_of(read(SAMPLE.as_bytes()).unwrap());
        let endpoint = super::super::inventory::Endpoint {
            socket: "x".into(),
            generation: 1,
            client: Some(()),
            options: None,
            stopped: None,
        };
        inventory.connect("akri.sh/cam-1", endpoint);
        let devices = ["a", "b"].map(|id| Device {
            id: id.to_owned(),
            health: HEALTHY.to_owned(),
            topology: None,
        });
        inventory.list("akri.sh/cam-1", 1, devices.into());
        assert_eq!(String::from_utf8(write(&inventory)).unwrap(), SAMPLE);
    }

    #[test]
    fn checksums_are_those_of_go() {
        let entry = Entry {
            pod_uid: "uid-1".into(),
            container_name: "c".into(),
            resource_name: "akri.sh/cam-1".into(),
            device_ids: Some(BTreeMap::from([
                (0, Some(vec!["x".into(), "y".into()])),
                (-1, Some(vec!["b".into()])),
            ])),
            alloc_resp: Some(BASE64_STANDARD.encode([1, 2, 255])),
        };
        let registered = BTreeMap::from([
            (
                "akri.sh/cam-1".to_owned(),
                Some(vec!["a".to_owned(), "b".to_owned()]),
            ),
            ("z".to_owned(), Some(vec![])),
        ]);
        let cases = [
            (Some(vec![entry]), Some(registered), 3_884_684_246),
            (None, None, 1_944_006_890),
            (Some(vec![]), Some(BTreeMap::new()), 2_932_075_448),
        ];
        for (pod_device_entries, registered_devices, want) in cases {
            let data = Data {
                pod_device_entries,
                registered_devices,
            };
            assert_eq!(checksum(&data), want, "{}", dump(&data));
        }
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
        assert_eq!(read(&bytes).unwrap().claims[0].1, holder);
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
                (name, holder, Claim { ids: [(-1, ids)].into(), response: Some(response) })
            }).collect();
            let restored = Restored { claims, resources: registered, left_out: vec![] };
            let bytes = write(&inventory_of(read(&write(&inventory_of(restored))).unwrap()));
            prop_assert_eq!(write(&inventory_of(read(&bytes).unwrap())), bytes);
        }
    }
}
