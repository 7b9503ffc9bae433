//! Accesses the API server. The crate owns the client of a process: its identity, its time limits, and its layers, which hold an
//! answer until its `Retry-After` is over and count writes. It also owns what is kept of watched objects, and the queue of Events.
//! It decides how the server is treated: when a watch begins again, which objects fit into the room of a set, and which Events are
//! dropped. It decides nothing about devices, and repeats only what it watches: of any other request the caller knows the time limit.
//!
//! It touches the network, and a kubeconfig or the files of a Pod's ServiceAccount. It starts no tasks: callers run [`watch::run`],
//! [`changes::follow`] and [`events::Writer::run`] in theirs. Last known objects stay in use while the server is away.
//!
//! | question | file |
//! |---|---|
//! | Which server, and as whom? | `identity` outside of a cluster, `pod` in a Pod |
//! | What does an error mean, and how is a whole list read? | `requests` |
//! | What does a 429 lead to? | `retry_after`; then the caller's own back-off |
//! | How does a set follow the server, and what does not fit? | [`mod@watch`], `kept` |
//! | How is each single change followed? | [`changes`] |
//! | What happens to an object that is invalid or too large? | `read`; `kept` if there is no room for it |
//! | Which fields of Kubernetes' objects are read? | [`parts`] |
//! | Who patches Nodes, and who reads Secrets? | [`node`], [`property_sources`] |
//! | Which Events are dropped, and which writes are counted? | [`events`], `writes` |
pub mod changes;
pub mod events;
#[cfg(feature = "people")]
mod identity;
mod kept;
mod keys;
pub mod node;
pub mod parts;
mod pod;
pub mod property_sources;
mod read;
mod requests;
mod retry_after;
pub mod watch;
mod writes;
mod written_bytes;

#[cfg(feature = "people")]
pub use identity::Identity;
pub use keys::{configuration_key, instance_key, key_of};
pub use requests::{
    REQUEST_TIMEOUT, cannot, code, created_by, deletion_of, has_causes, is_conflict, is_not_found,
    is_unprocessable, list_all, list_selected, patched_by, post, reason, without_fields,
};
pub use written_bytes::WrittenBytes;

use anyhow::Context as _;
use kube::{Client, Config, api::Patch, client::ClientBuilder};
use petiole_model::model::patch::add;
use serde_json::json;
use std::{path::Path, time::Duration};
use tower::{timeout::TimeoutLayer, util::AndThenLayer};

/// The time limit of a handshake with a server that is running.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest pause within a response. The server ends a watch after 290 s.
const READ_TIMEOUT: Duration = Duration::from_secs(310);
/// The number of requests that one task sends concurrently.
pub const SIDE_BY_SIDE: usize = 16;

/// Returns a client with the identity of the kubeconfig or, without one, of the Pod that this process runs in.
pub async fn client() -> anyhow::Result<Client> {
    client_of(config().await?)
}

/// Returns a client with this identity.
pub fn client_of(mut config: Config) -> anyhow::Result<Client> {
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    // Each caller decides about retries and their time limit: an Allocate call has 3 s in total. The server's word of the time
    // holds for all (`retry_after`).
    config.default_retry = false;
    let timeout = TimeoutLayer::new(REQUEST_TIMEOUT);
    // Only in a Pod are token and CA both files.
    if let (Some(token), Some(ca)) = (&config.auth_info.token_file, &config.root_cert_file) {
        let service = pod::service(&config, Path::new(token), ca)?;
        let builder = ClientBuilder::new(service, config.default_namespace);
        let builder = builder.with_layer(&timeout);
        let builder = builder.with_layer(&AndThenLayer::new(retry_after::hold));
        return Ok(builder.with_layer(&writes::CountWrites).build());
    }
    of_kubeconfig(config, &timeout)
}

#[cfg(feature = "people")]
fn of_kubeconfig(config: Config, timeout: &TimeoutLayer) -> anyhow::Result<Client> {
    let builder = ClientBuilder::try_from(config);
    let builder = builder.context("cannot create the client of the API server")?;
    let builder = builder.with_layer(timeout);
    let builder = builder.with_layer(&AndThenLayer::new(retry_after::hold));
    Ok(builder.with_layer(&writes::CountWrites).build())
}

#[cfg(not(feature = "people"))]
fn of_kubeconfig(_: Config, _: &TimeoutLayer) -> anyhow::Result<Client> {
    anyhow::bail!("this build reads no kubeconfig; build it with its default features")
}

/// Returns the request body of a JSON patch that also removes `metadata.managedFields`. The list of who wrote which field is
/// as large as the fields, nobody applies these objects by parts, and each change is sent to every node that the object
/// names. An object without the list does not get it again by a patch (`skipnonapplied.go` of k8s.io/apimachinery).
pub fn untracked(mut patch: json_patch::Patch) -> Patch<()> {
    patch
        .0
        .push(add(&["metadata", "managedFields"], json!([{}])));
    Patch::Json(patch)
}

/// Returns a client with this identity, which flags name.
#[cfg(feature = "people")]
pub async fn client_as(identity: &Identity) -> anyhow::Result<Client> {
    client_of(identity::config(identity).await?)
}

#[cfg(feature = "people")]
async fn config() -> anyhow::Result<Config> {
    identity::config(&Identity::default()).await
}

#[cfg(not(feature = "people"))]
#[expect(clippy::unused_async, reason = "where there are kubeconfigs it waits")]
async fn config() -> anyhow::Result<Config> {
    Config::incluster().context(
        "no API server: a Pod's ServiceAccount cannot be read, and this build reads no kubeconfig; build it with its default features",
    )
}
