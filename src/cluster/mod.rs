//! The API server, as every process of ours uses it: one client, watched sets of objects, Events.
mod deadline;
pub mod events;
pub mod node;
pub mod parts;
pub mod watch;
mod writes;

use crate::model::names::ObjectKey;
use anyhow::Context as _;
use kube::{Api, Client, Config, api::ListParams, client::ClientBuilder, core::ObjectMeta};
use serde::de::DeserializeOwned;
use std::{fmt::Debug, time::Duration};

/// A server that is there answers a handshake by then.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Of an answer that has begun: a watch is ended by the server after 290 s.
const READ_TIMEOUT: Duration = Duration::from_secs(310);
const PAGE: u32 = 500;
/// Requests that one task has on their way at a time.
pub const SIDE_BY_SIDE: usize = 16;

/// Returns a client with the identity of the kubeconfig or, where there is none, of the Pod this runs in.
pub async fn client() -> anyhow::Result<Client> {
    let mut config = config().await?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    // Who retries, and how long, is decided by each writer: an Allocate call has 3 s for all of it.
    config.default_retry = false;
    let builder = ClientBuilder::try_from(config).context("the API server's client")?;
    let builder = builder.with_layer(&deadline::Deadline);
    Ok(builder.with_layer(&writes::CountWrites).build())
}

#[cfg(feature = "kubeconfig")]
async fn config() -> anyhow::Result<Config> {
    Config::infer()
        .await
        .context("no API server: neither a Pod's ServiceAccount nor a kubeconfig can be read")
}

#[cfg(not(feature = "kubeconfig"))]
#[expect(clippy::unused_async, reason = "where there are kubeconfigs it waits")]
async fn config() -> anyhow::Result<Config> {
    Config::incluster().context(
        "no API server: a Pod's ServiceAccount cannot be read, and this build reads no kubeconfig; build with --features kubeconfig",
    )
}

/// All objects of an `Api`, page by page.
pub async fn list_all<K>(api: &Api<K>) -> kube::Result<Vec<K>>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut objects = vec![];
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = api.list(&page).await?;
        objects.extend(list.items);
        match list.metadata.continue_ {
            Some(token) if !token.is_empty() => page = page.continue_token(&token),
            Some(_) | None => return Ok(objects),
        }
    }
}

/// The key of an object; one without a namespace is of the whole cluster.
pub fn key_of(metadata: &ObjectMeta) -> ObjectKey {
    ObjectKey::new(
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

/// The status code of an answer that is a refusal.
pub fn code(error: &kube::Error) -> Option<u16> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    Some(status.code)
}

/// Why a request was in vain, in the API server's words where it has answered.
pub fn reason(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        format!("{} ({})", status.message, status.code)
    } else {
        error.to_string()
    }
}

pub fn is_not_found(error: &kube::Error) -> bool {
    code(error) == Some(404)
}

/// Somebody else was faster: the object exists, or is no longer what was read.
pub fn is_conflict(error: &kube::Error) -> bool {
    code(error) == Some(409)
}

/// A `test` of a JSON patch did not hold, or the object would be invalid.
pub fn is_unprocessable(error: &kube::Error) -> bool {
    code(error) == Some(422)
}
