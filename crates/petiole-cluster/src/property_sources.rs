//! Watches single Secrets and ConfigMaps by name, and reads some of their keys.
//!
//! Each object is listed and watched by a field selector, so that nothing else of its namespace is sent. kube's watcher
//! for two more kinds would be a hundredth of the image, and kube's typed requests log an answer that they cannot parse:
//! these requests do not.
use super::requests::{REQUEST_TIMEOUT, code, reason};
use futures::TryStreamExt as _;
use kube::{
    Client,
    api::{ListParams, WatchParams},
    core::{Request, WatchEvent},
};
use petiole_base::backoff::Backoff;
use petiole_model::model::property_source::{Content, Data, Source};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    pin::pin,
    time::Duration,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};

/// The waits between two attempts. An object that may not be read is asked for twice in a minute, until it may be.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// An object and its keys that are read.
pub type Watched = (Source, BTreeSet<String>);

/// Access to Secrets and ConfigMaps.
#[derive(Clone)]
pub struct PropertySources {
    client: Client,
}

impl fmt::Debug for PropertySources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PropertySources").finish_non_exhaustive()
    }
}

/// The fields that are read of a Secret or a ConfigMap.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Object {
    data: BTreeMap<String, String>,
    binary_data: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMetadata,
    #[serde(default)]
    items: Vec<Object>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
}

/// Why a watch ended before its time.
enum Failure {
    Request(kube::Error),
    /// The answer is not quoted, because it may have secrets.
    Answer(&'static str),
}

const NO_LIST: Failure = Failure::Answer("the answer is no list of objects");
const NO_OBJECT: Failure = Failure::Answer("a change is no object");
const LATE: Failure = Failure::Answer("the answer has not ended within 10 s");

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        Self::Request(error)
    }
}

impl Failure {
    fn content(&self) -> Content {
        match self {
            Self::Request(e) if code(e) == Some(403) => Content::Forbidden,
            Self::Request(e) => Content::Unavailable(reason(e)),
            Self::Answer(why) => Content::Unavailable((*why).to_owned()),
        }
    }
}

impl PropertySources {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Sends the content of one object at each read, until it is dropped.
    pub async fn watch(self, watched: Watched, contents: mpsc::Sender<(Watched, Content)>) {
        let watch = Watch {
            client: self.client,
            watched,
            contents,
        };
        watch.run().await;
    }
}

/// The watch of one object.
struct Watch {
    client: Client,
    watched: Watched,
    /// The receiver drops this watch.
    contents: mpsc::Sender<(Watched, Content)>,
}

impl Watch {
    async fn run(self) {
        let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
        loop {
            let began = Instant::now();
            if let Err(failure) = self.run_once().await {
                self.send(failure.content()).await;
            }
            if began.elapsed() > LAST_RETRY {
                backoff.reset();
            }
            sleep(backoff.next_wait()).await;
        }
    }

    /// Reads the object, and then its changes until the server ends the watch.
    async fn run_once(&self) -> Result<(), Failure> {
        let Source { kind, key } = &self.watched.0;
        let address = format!("/api/v1/namespaces/{}/{}", key.namespace, kind.plural());
        let (request, named) = (Request::new(address), format!("metadata.name={}", key.name));
        let list = request.list(&ListParams::default().fields(&named));
        let list = list.map_err(kube::Error::BuildRequest)?;
        let list = timeout(REQUEST_TIMEOUT, self.client.request_text(list)).await;
        let list = list.map_err(|_| LATE)??;
        let list: List = serde_json::from_str(&list).map_err(|_| NO_LIST)?;
        let first = list.items.first();
        self.send(first.map_or(Content::Absent, |object| self.content(object)))
            .await;
        let version = &list.metadata.resource_version;
        let watch = request.watch(&WatchParams::default().fields(&named), version);
        let watch = watch.map_err(kube::Error::BuildRequest)?;
        let events = self.client.request_events::<Box<RawValue>>(watch).await?;
        let mut events = pin!(events);
        while let Some(event) = events.try_next().await? {
            let content = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let object = serde_json::from_str(object.get());
                    self.content(&object.map_err(|_| NO_OBJECT)?)
                }
                WatchEvent::Deleted(_) => Content::Absent,
                WatchEvent::Bookmark(_) => continue,
                // The version is too old: the next list is newer.
                WatchEvent::Error(_) => return Ok(()),
            };
            self.send(content).await;
        }
        Ok(())
    }

    fn content(&self, object: &Object) -> Content {
        let (source, keys) = &self.watched;
        let data = Data {
            data: &object.data,
            binary: &object.binary_data,
        };
        source.kind.content(&data, keys)
    }

    async fn send(&self, content: Content) {
        let read = (self.watched.clone(), content);
        if self.contents.send(read).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
