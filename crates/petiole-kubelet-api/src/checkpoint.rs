//! Reads and writes `kubelet_internal_checkpoint`, the file in which a kubelet records the devices of each container:
//! its JSON, byte for byte as Go writes it, and its checksum over Go's dump of the data.
//!
//! The plugins' answers stay in their stored form: base64 of a `ContainerAllocateResponse`.
//!
//! Sources, of Kubernetes 1.20 and later: `pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go` for the data,
//! `pkg/kubelet/checkpointmanager/checksum/checksum.go` for the checksum.
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt::{self, Write as _},
};

/// The name of the file in the kubelet's folder of device plugins.
pub const FILE: &str = "kubelet_internal_checkpoint";

/// The reason that a file is no checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not JSON, or has other fields.
    #[error("not a checkpoint: {0}")]
    Json(#[from] serde_json::Error),
    /// The data is not that which the checksum was computed of.
    #[error("corrupt: its checksum is {found}, its data has {expected}")]
    Checksum {
        /// The checksum in the file.
        found: u64,
        /// The checksum of the data in the file.
        expected: u32,
    },
}

/// The data of a checkpoint. `None` is Go's nil, which differs from an empty value, also in the checksum.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Data {
    /// The devices of each container, by resource.
    pub pod_device_entries: Option<Vec<Entry>>,
    /// The ids of all healthy devices, by the name of their resource.
    pub registered_devices: Option<BTreeMap<String, Option<Vec<String>>>>,
}

/// The devices of one resource that a container has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The `metadata.uid` of the Pod.
    #[serde(rename = "PodUID")]
    pub pod_uid: String,
    /// The name of the container in its Pod.
    #[serde(rename = "ContainerName")]
    pub container_name: String,
    /// The resource with its prefix, such as `example.com/camera`.
    #[serde(rename = "ResourceName")]
    pub resource_name: String,
    /// The ids of the devices, by NUMA node; -1 is a device without one.
    #[serde(rename = "DeviceIDs")]
    pub device_ids: Option<BTreeMap<i64, Option<Vec<String>>>>,
    /// The plugin's answer in base64.
    #[serde(rename = "AllocResp")]
    pub alloc_resp: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: Data,
    checksum: u64,
}

impl Entry {
    /// Iterates over the ids on all NUMA nodes. An id on several nodes is repeated.
    pub fn ids(&self) -> impl Iterator<Item = &String> {
        let by_node = self.device_ids.iter().flat_map(BTreeMap::values);
        by_node.flatten().flatten()
    }

    /// Returns the encoded answer of the plugin, or `None` if it is not base64.
    pub fn response(&self) -> Option<Vec<u8>> {
        let text = self.alloc_resp.as_deref().unwrap_or_default();
        BASE64_STANDARD.decode(text).ok()
    }
}

/// Encodes a plugin's answer for [`Entry::alloc_resp`].
pub fn encoded(response: &[u8]) -> String {
    BASE64_STANDARD.encode(response)
}

/// Parses a whole file without checking its checksum. [`Error::Json`] if it is no checkpoint.
pub fn parse(bytes: &[u8]) -> Result<Data, Error> {
    Ok(serde_json::from_slice::<File>(bytes)?.data)
}

/// Reads the entries of a file one by one, without checking its checksum, because a later kubelet may store more in each
/// entry. Only one is in memory at a time: the plugins' answers make up nearly all of a file, and may be of any size.
///
/// [`Error::Json`] if the rest of the file is no checkpoint, or has no `Data` or no `Checksum`: it says nothing then, whatever
/// entries were read before.
pub fn each_entry<'de>(
    json: &mut serde_json::Deserializer<impl serde_json::de::Read<'de>>,
    each: &mut dyn FnMut(Entry),
) -> Result<(), Error> {
    let mut found = Found::default();
    let file = Place {
        depth: 0,
        each,
        found: &mut found,
    };
    file.deserialize(&mut *json)?;
    json.end()?;
    match found {
        Found {
            data: true,
            checksum: true,
        } => Ok(()),
        Found { .. } => Err(serde_json::Error::custom("it has no Data or no Checksum").into()),
    }
}

/// The fields that every checkpoint has. A file without them says nothing of any container.
#[derive(Default)]
struct Found {
    data: bool,
    checksum: bool,
}

/// A place in a file: the file, its data, and the list of its entries.
struct Place<'a> {
    depth: usize,
    each: &'a mut dyn FnMut(Entry),
    found: &'a mut Found,
}

/// The fields that lead from each place to the next one.
const WAY: [&str; 2] = ["Data", "PodDeviceEntries"];

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.depth < WAY.len() {
            deserializer.deserialize_map(self)
        } else {
            deserializer.deserialize_option(self)
        }
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a checkpoint")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            self.found.checksum |= self.depth == 0 && key == "Checksum";
            if key != WAY[self.depth] {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            self.found.data = true;
            map.next_value_seed(Place {
                depth: self.depth + 1,
                each: &mut *self.each,
                found: &mut *self.found,
            })?;
        }
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(entry) = entries.next_element()? {
            (self.each)(entry);
        }
        Ok(())
    }
}

/// Parses a file whose checksum matches its data, as a kubelet does at its start; [`Error::Checksum`] if it does not match.
pub fn verified(bytes: &[u8]) -> Result<Data, Error> {
    let File {
        data,
        checksum: found,
    } = serde_json::from_slice(bytes)?;
    let expected = checksum(&data);
    if found != u64::from(expected) {
        return Err(Error::Checksum { found, expected });
    }
    Ok(data)
}

/// Returns the content of the file, with its checksum.
pub fn written(data: Data) -> Vec<u8> {
    let checksum = u64::from(checksum(&data));
    let json = serde_json::to_string(&File { data, checksum });
    go_json(&json.expect("strings and numbers are always JSON")).into_bytes()
}

/// Escapes the characters that Go escapes so that JSON may be embedded in HTML. They occur in strings only.
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

/// Returns FNV-1a, 32 bits, of the text that `dump.ForHash` of k8s.io/apimachinery makes of the data.
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
    fn an_entry_with_fields_of_a_later_kubelet_is_read_and_is_not_verified() {
        let text = r#"{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"akri.sh/cam","DeviceIDs":{"-1":["a"],"0":["b"]},"AllocResp":"Cg==","Since":1}],"RegisteredDevices":null},"Checksum":1}"#;
        let data = parse(text.as_bytes()).unwrap();
        let entry = &data.pod_device_entries.as_ref().unwrap()[0];
        assert_eq!(entry.ids().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(entry.response(), Some(vec![10]));
        let refused = verified(text.as_bytes()).unwrap_err();
        assert!(matches!(refused, Error::Checksum { .. }), "{refused}");
    }

    fn entries(text: &str) -> Result<Vec<Entry>, Error> {
        let (mut all, mut json) = (vec![], serde_json::Deserializer::from_str(text));
        each_entry(&mut json, &mut |entry| all.push(entry)).map(|()| all)
    }

    #[test]
    fn the_entries_of_a_file_are_read_one_by_one() {
        let entry = |id: &str| {
            format!(
                r#"{{"PodUID":"u","ContainerName":"c","ResourceName":"r","DeviceIDs":{{"-1":["{id}"]}},"AllocResp":"Cg=="}}"#
            )
        };
        let file = |entries: &str| {
            format!(
                r#"{{"Data":{{"RegisteredDevices":{{"r":["a","b"]}},"PodDeviceEntries":{entries}}},"Checksum":1}}"#
            )
        };
        let two = file(&format!("[{},{}]", entry("a"), entry("b")));
        let parsed = parse(two.as_bytes()).unwrap().pod_device_entries.unwrap();
        assert_eq!(entries(&two).unwrap(), parsed);
        assert_eq!(parsed.len(), 2);
        for empty in ["null", "[]"] {
            assert_eq!(entries(&file(empty)).unwrap(), vec![]);
        }
        // None of these says that no container has a device.
        let cut = &two[..two.len() - 1];
        for bad in [
            "",
            "{}",
            "[]",
            "null",
            r#"{"Data":{}}"#,
            r#"{"Checksum":1}"#,
            cut,
            &file("7"),
            &file(r#"[{}]"#),
        ] {
            assert!(entries(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            parse(&bytes).ok();
            verified(&bytes).ok();
        }
    }
}
