//! Serves the API server of `api_server.rs` to a real client, as the tower service below it: requests, lists in one piece or as
//! events, and watches that end, break, and begin again from a version.
//!
//! What the network does to each request is that of `network.rs`. A client that waits no longer is not answered, and a
//! request that has not arrived by then is not carried out.
use super::{
    api_server::{ApiServer, key, refusal},
    faults, invariants,
    network::Client,
    objects::{Pod, Stored as _, line, served},
};
use crate::{
    api::node_devices::NodeDevices,
    cluster::REQUEST_TIMEOUT,
    model::{names::Key, typed_names::ConfigurationName},
};
use axum::http::{Request, Response};
use futures::TryStreamExt as _;
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use kube::{api::Preconditions, client::Body};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{collections::BTreeMap, io};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tower::{Layer as _, timeout::TimeoutLayer};

/// The parts of a body as they are sent. An error is a connection that breaks.
type Parts = mpsc::UnboundedSender<io::Result<Bytes>>;
type Stream = UnboundedReceiverStream<io::Result<Bytes>>;

/// An answer whose body is still being sent.
struct Answer {
    code: u16,
    body: Stream,
}

struct Ask {
    request: Request<Body>,
    reply: oneshot::Sender<Answer>,
}

/// Returns a client over this network, with the time limit of the product's. What it writes is `by` this manager.
pub(super) fn client(network: Client, by: &'static str) -> kube::Client {
    let (asks, mut asked) = mpsc::unbounded_channel();
    let world = network.world.clone();
    let process = world.machine.process();
    let serving = async move {
        while let Some(ask) = asked.recv().await {
            let serving = serve(network.clone(), by, ask);
            network.world.machine.spawn(process, serving);
        }
    };
    world.machine.spawn(process, serving);
    let service = tower::service_fn(move |request| {
        let (reply, answer) = oneshot::channel();
        asks.send(Ask { request, reply }).ok();
        async move {
            let Answer { code, body } = answer.await?;
            let body = StreamBody::new(body.map_ok(Frame::data));
            let response = Response::builder().status(code).body(body);
            Ok::<_, oneshot::error::RecvError>(response.expect("the code is one of HTTP's"))
        }
    });
    let limited = TimeoutLayer::new(REQUEST_TIMEOUT).layer(service);
    kube::Client::new(limited, "default")
}

async fn serve(network: Client, by: &'static str, Ask { request, mut reply }: Ask) {
    let asked = Asked::read(request, by).await;
    let is_watch = asked.query("watch") == "true";
    let (parts, body) = mpsc::unbounded_channel();
    let answered = tokio::select! {
        biased;
        () = reply.closed() => return,
        answered = asked.answer(&network, &parts, is_watch) => answered,
    };
    // Without an answer the client sees that the connection ends.
    let Some(Answered { code, position }) = answered else {
        return;
    };
    let body = UnboundedReceiverStream::new(body);
    reply.send(Answer { code, body }).ok();
    if let Some(position) = position {
        asked.watch(&network, &parts, position).await;
    }
}

/// What was answered.
struct Answered {
    code: u16,
    /// The place in the log of the objects, from which on a watch goes on.
    position: Option<usize>,
}

/// A request, as the API server reads it.
struct Asked {
    by: &'static str,
    method: String,
    /// The name in the path, such as `instances`.
    resource: String,
    name: String,
    is_status: bool,
    query: BTreeMap<String, String>,
    body: Value,
}

impl Asked {
    async fn read(request: Request<Body>, by: &'static str) -> Self {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let of_group = if head.uri.path().starts_with("/apis/") {
            4
        } else {
            3
        };
        let mut path: Vec<&str> = head.uri.path().split('/').skip(of_group).collect();
        if path[0] == "namespaces" {
            path.drain(..2);
        }
        let part = |n: usize| path.get(n).copied().unwrap_or_default().to_owned();
        let query = head.uri.query().unwrap_or_default().split('&');
        let query = query.filter_map(|pair| pair.split_once('='));
        Self {
            by,
            method: head.method.to_string(),
            resource: part(0),
            name: part(1),
            is_status: part(2) == "status",
            query: (query.map(|(name, value)| (name.to_owned(), decoded(value)))).collect(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
        }
    }

    fn query(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    fn is_write(&self) -> bool {
        self.method != "GET" && self.resource != "events"
    }

    /// Carries out the request, and sends what is known of the body.
    async fn answer(&self, network: &Client, parts: &Parts, is_watch: bool) -> Option<Answered> {
        let what = || {
            let Self {
                method,
                resource,
                name,
                body,
                ..
            } = self;
            match resource.as_str() {
                // Its name is made of the machine's clock.
                "events" => format!("{method} {resource}"),
                _ if self.is_write() => format!("{method} {resource} {name} {body}"),
                _ => format!("{method} {resource} {name}"),
            }
        };
        if self.is_write() {
            let what = format!("{} {} {}", self.method, self.resource, self.name);
            invariants::asked(&network.world, &network.who, what);
        }
        let is_deletion = self.method == "DELETE" && self.resource == "instances";
        if is_deletion && network.world.returns_late.take() {
            let late = faults::delay_deletion(&network.world, &self.name);
            network.world.machine.sleep(late).await;
        }
        // Not those of the Lease, which come all the time.
        let is_refused = self.is_write() && self.resource != "leases" && network.world.refuses();
        let asked = network.request(what, |server| {
            if is_refused {
                Err(refusal(503, "the server is busy"))
            } else if is_watch {
                self.begin(server, network.world.streams_lists)
            } else {
                let object = self.carried_out(server, network)?;
                Ok((object.to_string(), None))
            }
        });
        let (code, (text, position)) = match asked.await {
            Ok(answer) => {
                if self.method == "PATCH" {
                    self.note_version(network, &answer.0);
                }
                (200, answer)
            }
            Err(kube::Error::Api(status)) => (status.code, (json!(status).to_string(), None)),
            Err(_) => return None,
        };
        parts.send(Ok(text.into())).ok();
        Some(Answered { code, position })
    }

    /// Notes the version that a controller has in the answer to its patch.
    fn note_version(&self, network: &Client, object: &str) {
        let object: Value = serde_json::from_str(object).unwrap();
        if let Some(version) = object["metadata"]["resourceVersion"].as_str() {
            let status = if self.is_status { "/status" } else { "" };
            let what = format!("PATCH {} {}{status}", self.resource, self.name);
            invariants::answered(&network.world, &network.who, what, version);
        }
    }

    fn carried_out(&self, server: &mut ApiServer, network: &Client) -> kube::Result<Value> {
        let (by, name) = (self.by, self.name.as_str());
        let found = match (self.method.as_str(), self.resource.as_str()) {
            ("GET", resource) if name.is_empty() => {
                let mut items = served(server, resource).all();
                items.retain(|object| self.selects(object));
                let metadata = json!({ "resourceVersion": server.version().to_string() });
                let list = json!({ "apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items });
                return Ok(list);
            }
            ("GET", resource) => {
                let all = served(server, resource).all().into_iter();
                let mut found = all.filter(|object| object["metadata"]["name"] == *name);
                return found.next().ok_or_else(|| refusal(404, "not found"));
            }
            ("POST", "instances") => {
                let now = network.world.machine.clock.now();
                server.create(&self.object(), now)?.json()
            }
            ("POST", "pods") => server.create_pod(Pod::broker(&self.body))?.json(),
            ("PATCH", "instances") => {
                let patch = self.object();
                server.patch(name, (&patch, self.is_status), by)?.json()
            }
            ("PATCH", "configurations") => {
                let of: Key<ConfigurationName> = key(name).typed();
                server.patch_configuration(&of, &self.object())?.json()
            }
            ("POST", "nodedevices") => {
                let NodeDevices { metadata, spec } = self.object();
                let name = metadata.name.unwrap();
                server.create_node_devices(&name, &spec, by)?.json()
            }
            ("PATCH", "nodedevices") => {
                let spec = serde_json::from_value(self.body["spec"].clone()).unwrap();
                server.patch_node_devices(name, &spec, by)?.json()
            }
            ("DELETE", resource) => {
                let wanted = &self.body["preconditions"];
                let uid = wanted["uid"].as_str();
                let version = wanted["resourceVersion"].as_str();
                match resource {
                    "instances" => {
                        let preconditions = Preconditions {
                            uid: uid.map(str::to_owned),
                            resource_version: version.map(str::to_owned),
                        };
                        server.delete(name, &preconditions)?;
                    }
                    "nodedevices" => server.delete_node_devices(name, uid)?,
                    "pods" => server.delete_pod(name, (uid.unwrap(), version))?,
                    "resourceslices" | "deviceclasses" => server.delete_plain(resource, name)?,
                    other => panic!("nothing deletes {other}"),
                }
                json!({ "apiVersion": "v1", "kind": "Status", "status": "Success" })
            }
            ("POST" | "PUT", "resourceslices") | ("PATCH", "deviceclasses") => {
                server.put_plain(&self.resource, name, self.body.clone())?
            }
            ("POST", "leases") => server.create_lease(self.body.clone())?,
            ("PATCH", "leases") => server.patch_plain("leases", name, &self.body)?,
            // A Pod's claim is the Pod's own here.
            ("POST" | "PATCH", "events") | ("POST", "resourceclaimtemplates") => self.body.clone(),
            (method, resource) => panic!("nothing asks for {method} {resource}"),
        };
        Ok(found)
    }

    fn object<T: DeserializeOwned>(&self) -> T {
        serde_json::from_value(self.body.clone()).unwrap()
    }

    /// Returns whether an object has the labels and fields that are asked for.
    fn selects(&self, object: &Value) -> bool {
        let parts = |name| self.query(name).split(',').filter(|part| !part.is_empty());
        parts("labelSelector").all(|label| {
            let (label, value) = label.split_once('=').unwrap_or((label, ""));
            let there = &object["metadata"]["labels"][label];
            !there.is_null() && (value.is_empty() || there == value)
        }) && parts("fieldSelector").all(|field| {
            let (path, value) = field.split_once('=').unwrap();
            let other = path.strip_suffix('!');
            let path = other.unwrap_or(path).split('.');
            let there = path.fold(object, |object, key| &object[key]);
            (there == value) == other.is_none()
        })
    }

    /// Returns the first events of a watch, and the place in the log after them.
    fn begin(&self, server: &ApiServer, streams: bool) -> kube::Result<(String, Option<usize>)> {
        let table = served(server, &self.resource);
        if self.query("sendInitialEvents") == "true" {
            if !streams {
                return Err(refusal(422, "sendInitialEvents is forbidden for watch"));
            }
            let all = table.all();
            let all = all.iter().filter(|object| self.selects(object));
            let listed: String = all.map(|object| line("ADDED", object)).collect();
            let end = bookmark(server, &json!({ "k8s.io/initial-events-end": "true" }));
            return Ok((listed + &end, Some(table.length())));
        }
        let version = self.query("resourceVersion").parse().unwrap();
        let Some(position) = table.after(version) else {
            let gone = json!({ "status": "Failure", "code": 410, "reason": "Expired", "message": "too old" });
            return Ok((line("ERROR", &gone), None));
        };
        Ok((String::new(), Some(position)))
    }

    /// Sends the changes after the first events.
    async fn watch(&self, network: &Client, parts: &Parts, mut position: usize) {
        let (world, machine) = (&network.world, &network.world.machine);
        let mut length = served(&world.server.borrow(), &self.resource).lengths();
        let seconds: u64 = self.query("timeoutSeconds").parse().unwrap();
        let mut end = Box::pin(machine.sleep(seconds * 1_000));
        loop {
            tokio::select! {
                biased;
                () = parts.closed() => return,
                () = network.disconnected() => {}
                () = async { length.wait_for(|length| *length > position).await.map(drop).unwrap() } => {
                    network.hop().await;
                }
                () = &mut end => {
                    let last = bookmark(&world.server.borrow(), &json!({}));
                    parts.send(Ok(last.into())).ok();
                    return;
                }
            }
            if !network.is_connected() || machine.chance(world.weather.get().lost) {
                parts.send(Err(io::Error::other("broken"))).ok();
                return;
            }
            let server = world.server.borrow();
            let table = served(&server, &self.resource);
            let changes = table.changes(std::mem::replace(&mut position, table.length()));
            let events: String = (changes.into_iter())
                .filter_map(|change| change.event(|object| self.selects(object)))
                .collect();
            if !events.is_empty() {
                parts.send(Ok(events.into())).ok();
            }
        }
    }
}

fn bookmark(server: &ApiServer, annotations: &Value) -> String {
    let version = server.version().to_string();
    let metadata = json!({ "resourceVersion": version, "annotations": annotations });
    let object = json!({ "apiVersion": "v1", "kind": "Bookmark", "metadata": metadata });
    line("BOOKMARK", &object)
}

/// Returns a value of a query without its escapes.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend(part[2..].bytes());
    }
    String::from_utf8(bytes).unwrap()
}
