use super::*;
use crate::{
    model::{
        slot::{SlotId, SlotOwner},
        slot_table::SlotChange,
    },
    store::{
        Store as _,
        kubernetes::{KubernetesStore, Settings},
    },
};
use axum::http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::json;
use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

/// The API server refuses patches of Instances whose names contain this text, and patches of any second slot.
const POISONED: &str = "poisoned";

fn camera(name: &str) -> Instance {
    let object = json!({
        "apiVersion": "akri.sh/v0", "kind": "Instance",
        "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"},
        "spec": {"configurationName": "cam", "cdiName": "", "capacity": 2, "nodes": ["node-a"]},
    });
    serde_json::from_value(object).unwrap()
}

/// The patched Instances in order, including those that were refused.
type Patched = Arc<Mutex<Vec<String>>>;

fn server(patched: Patched) -> Client {
    let answer = move |request: Request<Body>| {
        let patched = patched.clone();
        async move {
            let name = request.uri().path().rsplit('/').next().unwrap().to_owned();
            let body = request.into_body().collect_bytes().await.unwrap();
            let body = String::from_utf8(body.to_vec()).unwrap();
            patched.lock().unwrap().push(name.clone());
            let refused = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
                "reason": "Forbidden", "message": "a policy says no",
            });
            let is_refused = name.contains(POISONED) || body.contains("-1\"");
            let (status, object) = match is_refused {
                true => (403, refused),
                false => (200, json!(camera(&name))),
            };
            let response = Response::builder().status(status);
            let body = Body::from(serde_json::to_vec(&object).unwrap());
            Ok::<_, Infallible>(response.body(body).unwrap())
        }
    };
    Client::new(tower::service_fn(answer), "default")
}

fn claim(name: &str, index: u32) -> Exchange {
    Exchange {
        change: SlotChange {
            key: InstanceKey::new("default", name),
            slot: SlotId::new(name, index),
            from: None,
            to: Some(SlotOwner::Node("node-a".into())),
        },
        connection_digest: None,
    }
}

/// Returns a store that knows these Instances, each with a claim that is not written yet.
fn store(names: &[&str], pending: u32) -> (KubernetesStore, Patched, tempfile::TempDir) {
    let state = tempfile::tempdir().unwrap();
    let settings = Settings {
        node_name: "node-a".into(),
        namespaces: vec![],
        state: state.path().to_owned(),
        max_configurations: 100,
    };
    let patched = Patched::default();
    let store = KubernetesStore::new(server(patched.clone()), settings).unwrap();
    for name in names {
        let key = InstanceKey::new("default", *name);
        store.inner.change(|known| {
            known.read(camera(name));
            known.postpone(&key, &[&claim(name, pending)]);
        });
    }
    (store, patched, state)
}

#[tokio::test]
async fn a_write_that_the_server_refuses_keeps_no_other_from_being_written_and_is_given_up() {
    let (store, patched, _state) = store(&["a-poisoned", "b", "c-poisoned", "d"], 0);
    assert!(
        store.inner.flush_pending().await,
        "nothing is left to be written"
    );
    let mut names = patched.lock().unwrap().clone();
    names.sort();
    assert_eq!(names, ["a-poisoned", "b", "c-poisoned", "d"]);
    assert!(!store.inner.change(|known| known.is_pending()));
    assert!(store.inner.flush_pending().await);
    assert_eq!(patched.lock().unwrap().len(), 4, "and is not tried again");
}

#[tokio::test]
async fn a_claim_is_written_though_an_earlier_one_of_its_instance_is_refused() {
    let (store, patched, _state) = store(&["b"], 1);
    store.exchange(vec![claim("b", 0)]).await.unwrap();
    assert_eq!(*patched.lock().unwrap(), ["b", "b"]);
    assert!(!store.inner.change(|known| known.is_pending()));
}

#[tokio::test]
async fn a_claim_that_is_put_off_is_tried_again_though_no_watch_says_anything() {
    let away = tower::service_fn(|_: Request<Body>| async {
        Err::<Response<Body>, _>(std::io::Error::other("the server is away"))
    });
    let (mut store, _patched, _state) = store(&["b"], 1);
    Arc::get_mut(&mut store.inner).unwrap().client = Client::new(away, "default");
    let postponed = store.inner.postponed.subscribe();
    store.exchange(vec![claim("b", 0)]).await.unwrap();
    assert!(store.inner.change(|known| known.is_pending()));
    assert!(
        postponed.has_changed().unwrap(),
        "who writes what is pending wakes"
    );
}
