//! The device manager's checkpoint, `kubelet_internal_checkpoint`: which container holds which device ids, and which
//! are healthy. Byte for byte as the Go kubelet writes it (1.20 and later), so that one continues where the other
//! stopped. Decides nothing: restoring from it is the device manager's.
use crate::files;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    fs, io,
    path::{Path, PathBuf},
};

/// `kubelet_internal_checkpoint`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Checkpoint {
    /// In an order of no meaning, which is kept: the checksum is over it.
    pub(super) entries: Vec<Entry>,
    /// The healthy device ids of each resource name.
    pub(super) registered: BTreeMap<String, Vec<String>>,
}

/// The devices of one resource that a container holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) pod_uid: String,
    pub(super) container: String,
    pub(super) resource: String,
    /// By NUMA node, -1 for none. A device on two nodes is under both.
    pub(super) device_ids: BTreeMap<i64, Vec<String>>,
    /// The `ContainerAllocateResponse`, encoded.
    pub(super) alloc_resp: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum CheckpointError {
    #[error("not the JSON of a checkpoint")]
    Json(#[source] serde_json::Error),
    #[error("checksum {found} is found, but the data's is {expected}")]
    Checksum { found: u64, expected: u32 },
    #[error("{path}: corrupt checkpoint", path = path.display())]
    Corrupt {
        path: PathBuf,
        #[source]
        source: Box<CheckpointError>,
    },
    #[error("{path}: cannot read the checkpoint", path = path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Checkpoint {
    pub(super) fn to_json(&self) -> String {
        let data = Data::from(self);
        let file = File {
            checksum: data.checksum().into(),
            data,
        };
        let json =
            serde_json::to_string(&file).expect("keys are strings and nothing else can fail");
        // Go's encoding/json escapes these for the sake of HTML. They are found in strings alone.
        json.replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026")
            .replace('\u{2028}', "\\u2028")
            .replace('\u{2029}', "\\u2029")
    }

    pub(super) fn from_json(json: &str) -> Result<Self, CheckpointError> {
        let file: File = serde_json::from_str(json).map_err(CheckpointError::Json)?;
        let expected = file.data.checksum();
        if file.checksum != u64::from(expected) {
            return Err(CheckpointError::Checksum {
                found: file.checksum,
                expected,
            });
        }
        Ok(file.data.into())
    }

    /// `None` when there is no such file. Errors name the path.
    pub(super) fn load(path: &Path) -> Result<Option<Self>, CheckpointError> {
        let corrupt = |source| CheckpointError::Corrupt {
            path: path.to_owned(),
            source: Box::new(source),
        };
        match fs::read(path) {
            // Bytes that are no UTF-8 are no JSON.
            Ok(bytes) => match str::from_utf8(&bytes) {
                Ok(json) => Self::from_json(json).map(Some).map_err(corrupt),
                Err(error) => Err(corrupt(CheckpointError::Json(serde_json::Error::custom(
                    error,
                )))),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(CheckpointError::Read {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// Replaces the file at `path`. Errors name the path.
    pub(super) fn store(&self, path: &Path) -> io::Result<()> {
        files::write_atomically(path, self.to_json().as_bytes(), 0o600)
    }
}

// The types below are those of the kubelet's `checkpoint` package. `None` is Go's nil, which is `null` in JSON, and is
// told apart from what is empty because the checksum does. What is not there is Go's zero value.

#[derive(Serialize, Deserialize)]
struct File {
    #[serde(rename = "Data", default)]
    data: Data,
    #[serde(rename = "Checksum", default)]
    checksum: u64,
}

/// `checkpointData`
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Data {
    pod_device_entries: Option<Vec<PodDevicesEntry>>,
    registered_devices: Option<BTreeMap<String, Option<Vec<String>>>>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct PodDevicesEntry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    #[serde(rename = "ContainerName")]
    container_name: String,
    #[serde(rename = "ResourceName")]
    resource_name: String,
    #[serde(rename = "DeviceIDs", serialize_with = "serialize_in_text_order")]
    device_ids: Option<BTreeMap<i64, Option<Vec<String>>>>,
    #[serde(
        rename = "AllocResp",
        serialize_with = "serialize_base64",
        deserialize_with = "deserialize_base64"
    )]
    alloc_resp: Option<Vec<u8>>,
}

/// Go sorts the keys of an object as texts: node 10 comes before node 2.
fn serialize_in_text_order<S: Serializer>(
    by_node: &Option<BTreeMap<i64, Option<Vec<String>>>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    by_node
        .as_ref()
        .map(|by_node| {
            by_node
                .iter()
                .map(|(node, ids)| (node.to_string(), ids))
                .collect::<BTreeMap<_, _>>()
        })
        .serialize(serializer)
}

fn serialize_base64<S: Serializer>(
    bytes: &Option<Vec<u8>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    bytes
        .as_ref()
        .map(|bytes| BASE64_STANDARD.encode(bytes))
        .serialize(serializer)
}

fn deserialize_base64<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<u8>>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| {
        BASE64_STANDARD
            .decode(&text)
            .map_err(|e| D::Error::custom(format!("AllocResp {text:?}: {e}")))
    })
    .transpose()
}

impl From<&Checkpoint> for Data {
    fn from(checkpoint: &Checkpoint) -> Self {
        let entries = checkpoint.entries.iter().map(|entry| PodDevicesEntry {
            pod_uid: entry.pod_uid.clone(),
            container_name: entry.container.clone(),
            resource_name: entry.resource.clone(),
            device_ids: Some(
                entry
                    .device_ids
                    .iter()
                    .map(|(node, ids)| (*node, Some(ids.clone())))
                    .collect(),
            ),
            alloc_resp: Some(entry.alloc_resp.clone()),
        });
        let registered = checkpoint.registered.iter();
        Self {
            // The kubelet appends to a nil slice, so no entries are `null`; its maps and sets are made first.
            pod_device_entries: (!checkpoint.entries.is_empty()).then(|| entries.collect()),
            registered_devices: Some(
                registered
                    .map(|(resource, ids)| (resource.clone(), Some(ids.clone())))
                    .collect(),
            ),
        }
    }
}

impl From<Data> for Checkpoint {
    fn from(data: Data) -> Self {
        let entries = data.pod_device_entries.unwrap_or_default().into_iter();
        let registered = data.registered_devices.unwrap_or_default().into_iter();
        Self {
            entries: entries
                .map(|entry| Entry {
                    pod_uid: entry.pod_uid,
                    container: entry.container_name,
                    resource: entry.resource_name,
                    device_ids: entry
                        .device_ids
                        .unwrap_or_default()
                        .into_iter()
                        .map(|(node, ids)| (node, ids.unwrap_or_default()))
                        .collect(),
                    alloc_resp: entry.alloc_resp.unwrap_or_default(),
                })
                .collect(),
            registered: registered
                .map(|(resource, ids)| (resource, ids.unwrap_or_default()))
                .collect(),
        }
    }
}

impl Data {
    /// FNV-1a of 32 bits over the text that Go's `dump.ForHash` makes of the data.
    fn checksum(&self) -> u32 {
        self.to_string().bytes().fold(0x811c_9dc5, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
    }
}

/// `dump.ForHash`: a field's type is said, that of a list's or map's elements is not. Strings have no quotes.
impl Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){} \
             RegisteredDevices:(map[string][]string){}}}",
            list(self.pod_device_entries.as_deref()),
            map(self.registered_devices.as_ref()),
        )
    }
}

impl Display for PodDevicesEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{{PodUID:(string){} ContainerName:(string){} ResourceName:(string){} \
             DeviceIDs:(checkpoint.DevicesPerNUMA){} AllocResp:([]uint8){}}}",
            self.pod_uid,
            self.container_name,
            self.resource_name,
            map(self.device_ids.as_ref()),
            list(self.alloc_resp.as_deref()),
        )
    }
}

const NIL: &str = "<nil>";

fn list<T: Display>(items: Option<&[T]>) -> String {
    items.map_or(NIL.to_owned(), |items| format!("[{}]", spaced(items)))
}

fn map<K: Display>(lists: Option<&BTreeMap<K, Option<Vec<String>>>>) -> String {
    lists.map_or(NIL.to_owned(), |lists| {
        let items = lists
            .iter()
            .map(|(key, items)| format!("{key}:{}", list(items.as_deref())));
        format!("map[{}]", spaced(items))
    })
}

fn spaced<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<_> = items.into_iter().map(|item| item.to_string()).collect();
    items.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// As a Go kubelet wrote it.
    const SAMPLE: &str = r#"{"Data":{"PodDeviceEntries":[{"PodUID":"uid-1","ContainerName":"c","ResourceName":"akri.sh/cam-1","DeviceIDs":{"-1":["b"]},"AllocResp":"CgYKAUsSAVY="}],"RegisteredDevices":{"akri.sh/cam-1":["a","b"]}},"Checksum":2270218631}"#;

    fn strings(strings: &[&str]) -> Vec<String> {
        strings.iter().map(ToString::to_string).collect()
    }

    fn sample() -> Checkpoint {
        Checkpoint {
            entries: vec![Entry {
                pod_uid: "uid-1".into(),
                container: "c".into(),
                resource: "akri.sh/cam-1".into(),
                device_ids: [(-1, strings(&["b"]))].into(),
                alloc_resp: b"\x0a\x06\x0a\x01K\x12\x01V".into(),
            }],
            registered: [("akri.sh/cam-1".into(), strings(&["a", "b"]))].into(),
        }
    }

    fn sealed(data: &str, checksum: u32) -> String {
        format!(r#"{{"Data":{data},"Checksum":{checksum}}}"#)
    }

    #[test]
    fn a_checkpoint_of_the_go_kubelet_is_read_and_written_byte_for_byte() {
        assert_eq!(Checkpoint::from_json(SAMPLE).unwrap(), sample());
        assert_eq!(sample().to_json(), SAMPLE);
    }

    #[test]
    fn checksums_are_those_of_go() {
        let mut several = sample();
        several.entries[0]
            .device_ids
            .insert(0, strings(&["x", "y"]));
        several.entries[0].alloc_resp = vec![1, 2, 255];
        several.registered.insert("z".into(), vec![]);
        let json = several.to_json();
        assert!(
            json.ends_with(r#","z":[]}},"Checksum":3884684246}"#),
            "{json}"
        );
        assert_eq!(Checkpoint::from_json(&json).unwrap(), several);

        for (data, checksum) in [
            (
                r#"{"PodDeviceEntries":null,"RegisteredDevices":null}"#,
                1_944_006_890,
            ),
            (
                r#"{"PodDeviceEntries":[],"RegisteredDevices":{}}"#,
                2_932_075_448,
            ),
            ("{}", 1_944_006_890),
        ] {
            let read = Checkpoint::from_json(&sealed(data, checksum)).unwrap();
            assert_eq!(read, Checkpoint::default(), "{data}");
        }
    }

    #[test]
    fn no_entries_are_written_as_null_and_no_ids_as_an_empty_list() {
        let stopped = Checkpoint {
            entries: vec![],
            registered: [("akri.sh/cam-1".into(), vec![])].into(),
        };
        let json = stopped.to_json();
        assert!(
            json.starts_with(
                r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"akri.sh/cam-1":[]}},"#
            ),
            "{json}"
        );
        assert_eq!(Checkpoint::from_json(&json).unwrap(), stopped);
    }

    #[test]
    fn nodes_are_sorted_as_texts_and_characters_escaped_as_by_go() {
        let mut checkpoint = sample();
        checkpoint.entries[0].device_ids = [-1, 2, 10]
            .map(|node| (node, strings(&["<&>\u{2028}é\u{7}"])))
            .into();
        let json = checkpoint.to_json();
        let ids = r#"["\u003c\u0026\u003e\u2028é\u0007"]"#;
        let by_node = format!(r#""DeviceIDs":{{"-1":{ids},"10":{ids},"2":{ids}}}"#);
        assert!(json.contains(&by_node), "{json}");
        assert!(
            Data::from(&checkpoint)
                .to_string()
                .contains(" 2:[<&>\u{2028}é\u{7}] 10:[")
        );
        assert_eq!(Checkpoint::from_json(&json).unwrap(), checkpoint);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let wrong = SAMPLE.replace("2270218631", "2270218632");
        assert_eq!(
            Checkpoint::from_json(&wrong).unwrap_err().to_string(),
            "checksum 2270218632 is found, but the data's is 2270218631"
        );
        // Before 1.20 the ids were a plain list.
        let old = SAMPLE.replace(r#"{"-1":["b"]}"#, r#"["b"]"#);
        assert!(matches!(
            Checkpoint::from_json(&old),
            Err(CheckpointError::Json(_))
        ));
        let Err(CheckpointError::Json(error)) =
            Checkpoint::from_json(&SAMPLE.replace("CgYKAUsSAVY=", "CgYKAUsSAVY"))
        else {
            panic!("base64 without padding is taken");
        };
        assert!(
            error.to_string().starts_with(r#"AllocResp "CgYKAUsSAVY":"#),
            "{error}"
        );
    }

    #[test]
    fn a_flipped_bit_is_refused() {
        for at in 0..SAMPLE.len() {
            for bit in 0..7 {
                let mut bytes = SAMPLE.as_bytes().to_vec();
                bytes[at] ^= 1 << bit;
                let json = String::from_utf8(bytes).unwrap();
                assert!(Checkpoint::from_json(&json).is_err(), "{json}");
            }
        }
    }

    #[test]
    fn a_stored_checkpoint_is_loaded_and_is_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubelet_internal_checkpoint");
        assert_eq!(Checkpoint::load(&path).unwrap(), None);
        sample().store(&path).unwrap();
        assert_eq!(Checkpoint::load(&path).unwrap(), Some(sample()));
        assert_eq!(fs::read_to_string(&path).unwrap(), SAMPLE);
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn errors_of_files_name_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        for corrupt in [&b""[..], b"{", b"\"\xff\"", b"{\"Data\":{},\"Checksum\":1}"] {
            fs::write(&path, corrupt).unwrap();
            let error = Checkpoint::load(&path).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{}: corrupt checkpoint", path.display())
            );
        }
        let error = Checkpoint::load(dir.path()).unwrap_err();
        assert!(matches!(&error, CheckpointError::Read { path, .. } if path == dir.path()));
        let error = sample().store(&path.join("below")).unwrap_err();
        assert!(
            error.to_string().starts_with(path.to_str().unwrap()),
            "{error}"
        );
    }

    fn ids() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec(any::<String>(), 0..3)
    }

    prop_compose! {
        fn entry()(
            (pod_uid, container, resource) in any::<(String, String, String)>(),
            device_ids in prop::collection::btree_map(any::<i64>(), ids(), 0..3),
            alloc_resp: Vec<u8>,
        ) -> Entry {
            Entry { pod_uid, container, resource, device_ids, alloc_resp }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            entries in prop::collection::vec(entry(), 0..4),
            registered in prop::collection::btree_map(any::<String>(), ids(), 0..4),
        ) {
            let checkpoint = Checkpoint { entries, registered };
            prop_assert_eq!(Checkpoint::from_json(&checkpoint.to_json()).unwrap(), checkpoint);
        }
    }
}
