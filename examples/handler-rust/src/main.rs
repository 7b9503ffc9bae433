//! A discovery handler: it finds those of some addresses that accept TCP connections, such as
//! discoveryDetails: '{"addresses": ["10.0.0.7:554", "10.0.0.8:554"]}'
mod v0 {
    tonic::include_proto!("v0");
}
use std::{collections::HashMap, error::Error, time::Duration};
use tokio::net::{TcpStream, UnixListener};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};
use v0::discovery_handler_server as server;

const NAME: &str = "reachable-rust";

struct Handler;

#[tonic::async_trait]
impl server::DiscoveryHandler for Handler {
    type DiscoverStream = ReceiverStream<Result<v0::DiscoverResponse, Status>>;

    async fn discover(&self, request: Request<v0::DiscoverRequest>) -> Result<Response<Self::DiscoverStream>, Status> {
        // The error is shown on the Configuration, and not asked again until the details change.
        let mut details: HashMap<String, Vec<String>> = serde_json::from_str(&request.get_ref().discovery_details)
            .map_err(|e| Status::invalid_argument(format!("no list of host:port in `addresses`: {e}")))?;
        let addresses =
            details.remove("addresses").ok_or(Status::invalid_argument("no list of host:port in `addresses`"))?;
        let (lists, stream) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut last = None;
            while !lists.is_closed() {
                let mut devices = vec![];
                for address in &addresses {
                    if let Ok(Ok(_)) = timeout(Duration::from_secs(1), TcpStream::connect(address)).await {
                        devices.push(device(address));
                    }
                }
                // Each message is the whole list.
                if last.as_ref() != Some(&devices) {
                    lists.send(Ok(v0::DiscoverResponse { devices: devices.clone() })).await.ok();
                    last = Some(devices);
                }
                sleep(Duration::from_secs(2)).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

/// The id is the device's name for ever: its Instance is named after it.
fn device(address: &str) -> v0::Device {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let properties = [("ADDRESS".into(), host.into()), ("PORT".into(), port.into())].into();
    v0::Device { id: address.to_owned(), properties, ..Default::default() }
}

/// Tells the agent where this handler is. Once is enough: the agent keeps it.
async fn register(agent: String, endpoint: String) -> Result<(), Box<dyn Error>> {
    let mut client = v0::registration_client::RegistrationClient::new(Endpoint::from_shared(agent)?.connect_lazy());
    let request = v0::RegisterDiscoveryHandlerRequest { name: NAME.into(), endpoint, endpoint_type: 0, shared: true };
    while let Err(status) = client.register_discovery_handler(request.clone()).await {
        eprintln!("not registered yet: {status}");
        sleep(Duration::from_secs(5)).await;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::var("DISCOVERY_HANDLERS_DIRECTORY").unwrap_or("/var/lib/akri".into());
    let socket = format!("{folder}/{NAME}.sock");
    std::fs::remove_file(&socket).ok();
    let incoming = UnixListenerStream::new(UnixListener::bind(&socket)?);
    let service = server::DiscoveryHandlerServer::new(Handler);
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
    register(format!("unix://{folder}/agent-registration.sock"), socket).await?;
    std::future::pending().await
}
