//! What an older version has left on a node is read as it was meant: the agent's copy of the API server's objects, the state of an agent
//! without a cluster, and the kubelet's checkpoint of its device plugins. The files of `tests/data/0.1.0` are that version's own: the
//! suite `skew` writes them (SKEW_RECORD), and an agent of that version with `--standalone` wrote `state`.
use axum::http::{Request, Response};
use kube::{Client, client::Body};
use petiole::{
    api::instance::Instance,
    store::{
        Instances, Store as _,
        folder::{self, FolderStore},
        kubernetes::{self, KubernetesStore},
    },
};
use petiole_kubelet_api::checkpoint;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    convert::Infallible,
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/0.1.0")
        .join(path)
}

/// Copies a folder with the folders in it, because a store writes there.
fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copied(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Returns the names of Instances, each with the slots that are in use.
fn used(instances: &Instances) -> BTreeSet<(String, Vec<String>)> {
    let used = |instance: &Instance| {
        let usage = instance.spec.device_usage.iter();
        usage
            .filter(|(_, owner)| !owner.is_empty())
            .map(|(slot, owner)| format!("{slot} {owner}"))
            .collect()
    };
    let all = instances.iter();
    all.map(|(key, instance)| (key.name.to_string(), used(instance)))
        .collect()
}

/// Returns the same of the JSON or YAML that a file has, read without our types.
fn used_in(objects: &[Value]) -> BTreeSet<(String, Vec<String>)> {
    let used = |object: &Value| {
        let usage = object["spec"]["deviceUsage"].as_object();
        let mut used: Vec<String> = (usage.into_iter().flatten())
            .filter(|(_, owner)| *owner != "")
            .map(|(slot, owner)| format!("{slot} {}", owner.as_str().unwrap()))
            .collect();
        used.sort();
        used
    };
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    let all = objects.iter();
    all.map(|object| (name(object), used(object))).collect()
}

#[tokio::test]
async fn an_agent_begins_with_the_copy_that_an_older_one_has_left() {
    let state = TempDir::new().unwrap();
    copied(&data("mirror"), &state.path().join("mirror"));
    let nobody = tower::service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::empty()))
    });
    let store = KubernetesStore::new(
        Client::new(nobody, "default"),
        kubernetes::Settings {
            node_name: "node-1".into(),
            namespaces: vec![],
            state: state.path().to_owned(),
            max_configurations: 100,
        },
    );
    let earlier = store.unwrap().earlier();
    let text = fs::read_to_string(data("mirror/instances.json")).unwrap();
    let expected = used_in(&serde_json::from_str::<Vec<Value>>(&text).unwrap());
    assert!(expected.iter().any(|(_, used)| !used.is_empty()));
    assert_eq!(used(&earlier), expected);
}

#[test]
fn an_agent_without_a_cluster_begins_with_the_state_that_an_older_one_has_left() {
    let dir = TempDir::new().unwrap();
    copied(&data("state"), &dir.path().join("state"));
    let store = FolderStore::open(folder::Settings {
        node_name: "edge".into(),
        configurations: dir.path().join("configurations"),
        state: dir.path().join("state"),
    });
    let instances = store.unwrap().instances().borrow().clone();
    let files = fs::read_dir(data("state/instances")).unwrap();
    let objects = files.map(|file| {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        serde_saphyr::from_str(&text).unwrap()
    });
    let expected = used_in(&objects.collect::<Vec<Value>>());
    assert!(expected.iter().any(|(_, used)| !used.is_empty()));
    assert_eq!(used(&instances), expected);
}

/// Every slot that the objects say node-1 has is in the kubelet's books, by the ids that plugins of today list.
#[test]
fn the_checkpoint_that_the_kubelet_made_of_older_plugins_names_slots_of_today() {
    let bytes = fs::read(data("kubelet_internal_checkpoint")).unwrap();
    let books = checkpoint::verified(&bytes).unwrap();
    let entries = books.pod_device_entries.unwrap();
    let ids = entries.into_iter().flat_map(|entry| {
        let by_node = entry.device_ids.unwrap().into_values();
        by_node.flatten().flatten().collect::<Vec<_>>()
    });
    let held: BTreeSet<String> = ids.collect();
    let list: Value =
        serde_json::from_str(&fs::read_to_string(data("objects.json")).unwrap()).unwrap();
    let objects = list["items"].as_array().unwrap().iter();
    let instances: Vec<Value> = (objects.filter(|o| o["kind"] == "Instance").cloned()).collect();
    let claimed = used_in(&instances).into_iter().flat_map(|(_, used)| used);
    let own = claimed.filter_map(|used| Some(used.strip_suffix(" node-1")?.to_owned()));
    let own: BTreeSet<String> = own.collect();
    assert!(!own.is_empty());
    assert!(own.is_subset(&held), "{own:?} are not all in {held:?}");
}
