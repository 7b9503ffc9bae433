//! An API server in memory, with claims and slices, behind a client without a socket.
use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use kube::Client;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex},
};
use tokio::sync::broadcast;
use tokio_stream::{StreamExt as _, wrappers::BroadcastStream};

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

#[derive(Clone)]
pub(crate) struct Api(Arc<Mutex<Objects>>);

struct Objects {
    /// Objects by their path, but slices.
    others: BTreeMap<String, Value>,
    slices: BTreeMap<String, Value>,
    version: u64,
    events: broadcast::Sender<String>,
    /// The method and the name of each write of a slice.
    writes: Vec<String>,
    /// What each write is refused with.
    refusal: Option<&'static str>,
    /// A field of devices that this server does not know.
    unknown_field: Option<&'static str>,
}

impl Api {
    pub(crate) fn new() -> Self {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge", "uid": "node-uid"}});
        Self(Arc::new(Mutex::new(Objects {
            others: [("/api/v1/nodes/edge".to_owned(), node)].into(),
            slices: BTreeMap::new(),
            version: 1,
            events: broadcast::channel(1000).0,
            writes: vec![],
            refusal: None,
            unknown_field: None,
        })))
    }

    pub(crate) fn client(&self) -> Client {
        let router = Router::new().fallback(answer).with_state(self.clone());
        Client::new(router, "default")
    }

    /// Stores a claim of the namespace `default`, with these devices of the driver `d.example`.
    pub(crate) fn put_claim(&self, name: &str, uid: &str, devices: &[&str]) {
        let result = |device: &&str| json!({"request": format!("r/{device}"), "driver": "d.example", "pool": "p", "device": device});
        let results: Vec<_> = devices.iter().map(result).collect();
        let claim = json!({
            "metadata": {"namespace": "default", "name": name, "uid": uid},
            "spec": {"devices": {}},
            "status": {"allocation": {"devices": {"results": results}}},
        });
        let path = format!("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}");
        self.0.lock().unwrap().others.insert(path, claim);
    }

    pub(crate) fn refuse(&self, refusal: Option<&'static str>) {
        self.0.lock().unwrap().refusal = refusal;
    }

    pub(crate) fn does_not_know(&self, field: &'static str) {
        self.0.lock().unwrap().unknown_field = Some(field);
    }

    pub(crate) fn slices(&self) -> Vec<Value> {
        self.0.lock().unwrap().slices.values().cloned().collect()
    }

    /// Returns the writes since the last call.
    pub(crate) fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().writes)
    }

    /// Deletes all slices, as a kubelet does when it starts.
    pub(crate) fn wipe(&self) {
        let mut objects = self.0.lock().unwrap();
        for (_, slice) in std::mem::take(&mut objects.slices) {
            objects.tell("DELETED", slice);
        }
    }

    /// Stores a slice as somebody else.
    pub(crate) fn put_slice(&self, mut slice: Value) {
        let mut objects = self.0.lock().unwrap();
        let name = slice["metadata"]["name"].as_str().unwrap().to_owned();
        let kind = if objects.slices.contains_key(&name) {
            "MODIFIED"
        } else {
            "ADDED"
        };
        objects.version += 1;
        slice["metadata"]["resourceVersion"] = objects.version.to_string().into();
        objects.slices.insert(name, slice.clone());
        objects.tell(kind, slice);
    }
}

impl Objects {
    fn tell(&mut self, kind: &str, mut slice: Value) {
        self.version += 1;
        if kind == "DELETED" {
            slice["metadata"]["resourceVersion"] = self.version.to_string().into();
        }
        let event = json!({"type": kind, "object": slice});
        self.events.send(format!("{event}\n")).ok();
    }

    fn write(&mut self, method: &Method, name: &str, body: &[u8]) -> Response {
        self.writes.push(format!("{method} {}", &name[..5]));
        if let Some(refusal) = self.refusal {
            return refused(StatusCode::UNPROCESSABLE_ENTITY, refusal);
        }
        let old = self.slices.get(name).cloned();
        if *method == Method::DELETE {
            self.slices.remove(name);
            self.tell("DELETED", old.unwrap());
            return found(&json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}));
        }
        let mut slice: Value = serde_json::from_slice(body).unwrap();
        if let (Some(field), Some(devices)) =
            (self.unknown_field, slice["spec"]["devices"].as_array_mut())
        {
            devices
                .iter_mut()
                .for_each(|device| drop(device.as_object_mut().unwrap().remove(field)));
        }
        let version = |slice: &Value| slice["metadata"]["resourceVersion"].clone();
        if (*method == Method::PUT) != old.is_some()
            || old.is_some_and(|old| version(&old) != version(&slice))
        {
            return refused(StatusCode::CONFLICT, "the object has been modified");
        }
        let kind = if *method == Method::PUT {
            "MODIFIED"
        } else {
            "ADDED"
        };
        self.version += 1;
        slice["metadata"]["resourceVersion"] = self.version.to_string().into();
        slice["metadata"]["uid"] = "slice-uid".into();
        self.slices.insert(name.to_owned(), slice.clone());
        self.tell(kind, slice.clone());
        found(&slice)
    }
}

async fn answer(State(api): State<Api>, method: Method, uri: Uri, body: Bytes) -> Response {
    let mut objects = api.0.lock().unwrap();
    let query = uri.query().unwrap_or_default();
    let Some(name) = uri.path().strip_prefix(SLICES) else {
        let other = objects.others.get(uri.path());
        return other.map_or_else(|| refused(StatusCode::NOT_FOUND, "not found"), found);
    };
    if method == Method::GET && query.contains("watch=true") {
        let events = BroadcastStream::new(objects.events.subscribe());
        return Body::from_stream(events.map(|event| Ok::<_, Infallible>(event.unwrap())))
            .into_response();
    }
    if method == Method::GET {
        let items: Vec<&Value> = objects.slices.values().collect();
        let version = objects.version.to_string();
        return found(
            &json!({"kind": "ResourceSliceList", "apiVersion": "resource.k8s.io/v1",
            "metadata": {"resourceVersion": version}, "items": items}),
        );
    }
    let sent = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let created = sent["metadata"]["name"].as_str().unwrap_or_default();
    let name = if name.is_empty() {
        created
    } else {
        name.trim_start_matches('/')
    };
    objects.write(&method, name, &body)
}

fn found(object: &Value) -> Response {
    object.to_string().into_response()
}

fn refused(code: StatusCode, message: &str) -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message,
        "reason": "Invalid", "code": code.as_u16()});
    (code, status.to_string()).into_response()
}
