//! Serves the sockets of all plugins with one gRPC server, because a server for each takes more memory than the rest of a
//! plugin. A connection says which plugin its requests are for.
use super::{
    allocate::Allocator,
    service::{Served, Service},
};
use futures::StreamExt as _;
use petiole_kubelet_api::{
    DESCRIPTORS, device_plugin::device_plugin_server::DevicePluginServer, uds,
};
use std::{io, sync::Arc};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

/// A connection to the socket of a plugin.
pub(super) type Accepted = uds::Connection<Arc<Served>>;

/// The most connections that wait for the server.
const WAITING: usize = 16;
/// The most calls at once on one connection. A kubelet follows the list with one, and admits one container after the other.
const CALLS: u32 = 100;

/// Returns the channel by which the plugins pass connections to the server.
pub(super) fn channel() -> (mpsc::Sender<Accepted>, mpsc::Receiver<Accepted>) {
    mpsc::channel(WAITING)
}

/// Serves connections until all plugins have ended.
pub(super) async fn run(
    allocator: Arc<Allocator>,
    accepted: mpsc::Receiver<Accepted>,
) -> anyhow::Result<()> {
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .build_v1()?;
    Server::builder()
        .max_concurrent_streams(CALLS)
        .add_service(reflection)
        .add_service(DevicePluginServer::new(Service { allocator }))
        .serve_with_incoming(ReceiverStream::new(accepted).map(Ok::<_, io::Error>))
        .await?;
    Ok(())
}
