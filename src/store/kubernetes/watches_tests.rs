use super::*;
use crate::store::{
    interface::{Instances, Store as _},
    kubernetes::{KubernetesStore, Settings, inner::FIRST_LIST},
};
use axum::{
    body::Body as Answer,
    http::{Request, Response},
};
use futures::{channel::mpsc, stream};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    fs, io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::{sync::watch, time::timeout};

type Events = mpsc::UnboundedSender<Result<String, io::Error>>;

/// Returns a client whose first watch has the events that are sent, and whose other requests are never answered.
fn server() -> (Client, Events) {
    let (events, sent) = mpsc::unbounded();
    let sent = Arc::new(Mutex::new(Some(sent)));
    let answer = move |_: Request<Body>| {
        let sent = sent.lock().unwrap_or_else(PoisonError::into_inner).take();
        let sent = sent.map_or_else(
            || stream::pending().right_stream(),
            |sent| sent.left_stream(),
        );
        let response = Response::new(Answer::from_stream(sent));
        async { Ok::<_, Infallible>(response) }
    };
    (Client::new(tower::service_fn(answer), "default"), events)
}

fn send(events: &Events, kind: &str, object: &Value) {
    // The type comes first, as the API server sends it: an object that came before it would be buffered, which a raw value
    // cannot be read from.
    let line = format!("{{\"type\": \"{kind}\", \"object\": {object}}}\n");
    events.unbounded_send(Ok(line)).unwrap();
}

/// The Instance `cam` that `node-a` and others see, with the slots that `node-b` holds.
fn camera(version: u32, others: &[&str], nodes: &[&str]) -> Value {
    let held: Value = others.iter().map(|slot| (*slot, "node-b")).collect();
    json!({
        "apiVersion": "akri.sh/v0", "kind": "Instance",
        "metadata": {"name": "cam", "namespace": "default", "uid": "cam", "resourceVersion": version.to_string()},
        "spec": {"configurationName": "cam", "cdiName": "", "capacity": 3, "nodes": nodes, "deviceUsage": held},
    })
}

fn end_of_list() -> Value {
    json!({
        "apiVersion": "akri.sh/v0", "kind": "Instance",
        "metadata": {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}},
    })
}

/// Waits for a publication. Returns how long it took, and the version of the Instance.
async fn published(instances: &mut watch::Receiver<Arc<Instances>>) -> (Duration, String) {
    let began = Instant::now();
    let changed = timeout(10 * BETWEEN_OTHERS, instances.changed()).await;
    changed.expect("a publication").unwrap();
    let known = instances.borrow_and_update().clone();
    let camera = known.values().next().expect("an Instance");
    let version = camera.metadata.resource_version.clone();
    (began.elapsed(), version.unwrap_or_default())
}

fn store(client: Client, state: &Path) -> KubernetesStore {
    let settings = Settings {
        node_name: "node-a".into(),
        namespaces: vec![],
        state: state.to_owned(),
        max_configurations: 100,
    };
    KubernetesStore::new(client, settings).unwrap()
}

#[tokio::test(start_paused = true)]
async fn slots_of_other_nodes_are_published_together_and_what_concerns_this_node_at_once() {
    const BOTH: &[&str] = &["node-a", "node-b"];
    let state = tempfile::tempdir().unwrap();
    let (client, events) = server();
    let store = store(client, state.path());
    let (mut instances, mut news) = (store.instances(), store.news());
    let shutdown = CancellationToken::new();
    let test = async {
        send(&events, "ADDED", &camera(1, &["cam-0"], BOTH));
        send(&events, "BOOKMARK", &end_of_list());
        assert_eq!(published(&mut instances).await.1, "1");
        assert!(news.has_changed().unwrap());
        news.mark_unchanged();

        send(&events, "MODIFIED", &camera(2, &["cam-0", "cam-1"], BOTH));
        send(&events, "MODIFIED", &camera(3, &["cam-1", "cam-2"], BOTH));
        let (took, version) = published(&mut instances).await;
        assert_eq!(version, "3", "both changes at once");
        assert!(!took.is_zero() && took <= BETWEEN_OTHERS, "{took:?}");
        let quiet = timeout(2 * BETWEEN_OTHERS, instances.changed()).await;
        assert!(quiet.is_err(), "nothing is published twice");

        send(&events, "MODIFIED", &camera(4, &["cam-1"], BOTH));
        let published_4 = published(&mut instances).await;
        assert_eq!(
            published_4,
            (Duration::ZERO, "4".to_owned()),
            "after a pause"
        );
        assert!(
            !news.has_changed().unwrap(),
            "other nodes' slots are no news"
        );

        send(&events, "MODIFIED", &camera(5, &["cam-1"], &["node-a"]));
        let published_5 = published(&mut instances).await;
        assert_eq!(
            published_5,
            (Duration::ZERO, "5".to_owned()),
            "news do not wait"
        );
        assert!(news.has_changed().unwrap());
    };
    tokio::select! {
        ended = store.inner.follow_instances(&shutdown) => panic!("the watch ended: {ended:?}"),
        () = test => {}
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_api_server_the_agent_begins_with_its_last_run_and_a_list_replaces_that() {
    let state = tempfile::tempdir().unwrap();
    fs::create_dir(state.path().join("mirror")).unwrap();
    let written = json!([camera(1, &[], &["node-a"])]).to_string();
    fs::write(state.path().join("mirror/instances.json"), written).unwrap();
    let (client, events) = server();
    let store = store(client, state.path());
    let mut instances = store.instances();
    assert!(instances.borrow().is_empty(), "not before `run`");
    assert_eq!(store.earlier().len(), 1);
    let shutdown = CancellationToken::new();
    let test = async {
        let began = store.inner.begin_without_server(&shutdown);
        timeout(2 * FIRST_LIST, began).await.unwrap().unwrap();
        assert_eq!(published(&mut instances).await.1, "1");
        assert!(store.earlier().is_empty(), "it is kept once");

        send(&events, "BOOKMARK", &end_of_list());
        let listed = timeout(FIRST_LIST, instances.changed()).await;
        listed.expect("a publication").unwrap();
        assert!(instances.borrow().is_empty(), "the camera is gone");
    };
    tokio::select! {
        ended = store.inner.follow_instances(&shutdown) => panic!("the watch ended: {ended:?}"),
        () = test => {}
    }
}
