//! Reads a running kubelet: its HTTP API, and nothing else of it.
use anyhow::{Context as _, bail};
use http_body_util::{BodyExt as _, Empty};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use k8s_openapi::{
    List,
    api::core::v1::{Node, Pod},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{net::UnixStream, time::timeout};

const TIMEOUT: Duration = Duration::from_secs(5);

/// A resource and the device plugin behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plugin {
    pub resource: String,
    /// Absent where the plugin is gone.
    pub socket: Option<String>,
    pub is_connected: bool,
    pub capacity: usize,
    pub allocatable: usize,
}

/// A kubelet, by its API socket.
#[derive(Debug, Clone)]
pub struct KubeletClient {
    socket: PathBuf,
}

impl KubeletClient {
    /// The kubelet with this root folder.
    pub fn new(root_dir: &Path) -> Self {
        Self {
            socket: super::api_socket(root_dir),
        }
    }

    pub async fn node(&self) -> anyhow::Result<Node> {
        self.json("/node").await
    }

    pub async fn pods(&self) -> anyhow::Result<List<Pod>> {
        self.json("/pods").await
    }

    pub async fn plugins(&self) -> anyhow::Result<Vec<Plugin>> {
        self.json("/plugins").await
    }

    /// The end of a container's output.
    pub async fn log(&self, namespace: &str, pod: &str, container: &str) -> anyhow::Result<String> {
        let body = self
            .get(&format!("/logs/{namespace}/{pod}/{container}"))
            .await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    async fn json<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let body = self.get(path).await?;
        serde_json::from_slice(&body)
            .with_context(|| format!("{path} of {}", self.socket.display()))
    }

    async fn get(&self, path: &str) -> anyhow::Result<Bytes> {
        timeout(TIMEOUT, self.request(path))
            .await
            .with_context(|| format!("no answer from {} in {TIMEOUT:?}", self.socket.display()))?
            .with_context(|| format!("{path} of {}", self.socket.display()))
    }

    async fn request(&self, path: &str) -> anyhow::Result<Bytes> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .context("is the kubelet running?")?;
        let (mut requests, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::get(path)
            .header("host", "localhost")
            .body(Empty::<Bytes>::new())?;
        let exchange = async move {
            let response = requests.send_request(request).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            if !status.is_success() {
                bail!("{status}: {}", String::from_utf8_lossy(&body));
            }
            Ok(body)
        };
        // The connection is driven beside the exchange, and ends when `requests` is dropped with it.
        let (body, _) = tokio::join!(exchange, connection);
        body
    }
}
