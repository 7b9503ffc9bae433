//! Reads the state of a running kubelet through its status socket.
//!
//! A call fails if no kubelet answers at the socket within 5 s, or answers with an error: an unknown Pod in [`Client::logs`]
//! is one. The error names the socket.
use super::status_socket::SOCKET;
pub use super::view::{CsiView, PluginState, PluginView};
use anyhow::{Context as _, bail};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{Request, StatusCode, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use k8s_openapi::{
    List,
    api::core::v1::{Node, Pod},
};
use serde::de::DeserializeOwned;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{net::UnixStream, time::timeout};

/// The time limit of a request. A kubelet on this machine answers within milliseconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest response that is read, in bytes. A thousand Pods are about 5 MB. Beyond it: the request has failed.
const ANSWER_LIMIT: usize = 64 * 1024 * 1024;

/// A client of the kubelet that has this root folder. Each call opens a connection, so the kubelet may restart between
/// calls.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// Returns the client of the kubelet whose [`Settings::root_dir`](crate::Settings::root_dir) this is, running or not.
    pub fn new(root_dir: &Path) -> Self {
        Self {
            socket: root_dir.join(SOCKET),
        }
    }

    /// Returns whether a kubelet has made its socket there.
    pub fn is_there(&self) -> bool {
        self.socket.exists()
    }

    /// Returns `Ok` if the kubelet answers.
    pub async fn healthz(&self) -> anyhow::Result<()> {
        self.read("/healthz").await.map(|_| ())
    }

    /// Returns the Node object, with capacity and allocatable in its status.
    pub async fn node(&self) -> anyhow::Result<Node> {
        self.parse("/node").await
    }

    /// Returns all Pods with their status: phase, containers, and the health of the devices that they have.
    pub async fn pods(&self) -> anyhow::Result<List<Pod>> {
        self.parse("/pods").await
    }

    /// Returns the plugins: registered, stopped and refused ones.
    pub async fn plugins(&self) -> anyhow::Result<Vec<PluginView>> {
        self.parse("/plugins").await
    }

    /// Returns the metrics of the kubelet in the OpenMetrics text format.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        let body = self.read("/metrics").await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Returns the last part of a container's log. `pod` is the full name, which ends with the node's name.
    pub async fn logs(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> anyhow::Result<String> {
        let path = format!("/logs/{namespace}/{pod}/{container}");
        let body = self.read(&path).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    async fn parse<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let body = self.read(path).await?;
        serde_json::from_slice(&body).with_context(|| format!("{}{path}", self.socket.display()))
    }

    async fn read(&self, path: &str) -> anyhow::Result<Bytes> {
        let answer = timeout(REQUEST_TIMEOUT, self.request(path)).await;
        let answer = answer.with_context(|| format!("no answer within {REQUEST_TIMEOUT:?}"));
        answer
            .and_then(|answer| answer)
            .with_context(|| format!("kubelet at {}", self.socket.display()))
    }

    async fn request(&self, path: &str) -> anyhow::Result<Bytes> {
        let stream = UnixStream::connect(&self.socket).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::get(path)
            .header("host", "localhost")
            .body(Empty::<Bytes>::new())?;
        let answer = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_LIMIT).collect();
            let body = body.await.map_err(|e| anyhow::anyhow!(e))?.to_bytes();
            if status != StatusCode::OK {
                bail!("{status}: {}", String::from_utf8_lossy(&body));
            }
            Ok(body)
        };
        tokio::pin!(connection, answer);
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            // The kubelet may have answered before it closed the connection.
            ended = &mut connection => {
                ended?;
                answer.await
            }
        }
    }
}
