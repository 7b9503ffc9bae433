//! A device plugin: `plugin FOLDER` offers the device `a` as `example.com/lamp` to the kubelet that has this folder of device
//! plugins, and gives its container the variable `LAMP`.
use petiole_kubelet_api::{
    device_plugin::{
        AllocateRequest, AllocateResponse, ContainerAllocateRequest, ContainerAllocateResponse,
        Device, DevicePluginOptions, Empty, HEALTHY, ListAndWatchResponse,
        PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
        PreferredAllocationResponse, RegisterRequest, VERSION,
        device_plugin_server::{DevicePlugin, DevicePluginServer},
        registration_client::RegistrationClient,
    },
    uds,
};
use std::{env, error::Error, path::Path, pin::Pin};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, transport::Server};

/// The name of the plugin's socket, in the kubelet's folder.
const SOCKET: &str = "lamp.sock";

struct Lamp;

#[tonic::async_trait]
impl DevicePlugin for Lamp {
    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        // The kubelet calls neither `pre_start_container` nor `get_preferred_allocation` then.
        Ok(Response::new(DevicePluginOptions::default()))
    }

    type ListAndWatchStream =
        Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn list_and_watch(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let lamp = Device {
            id: "a".to_owned(),
            health: HEALTHY.to_owned(),
            topology: None,
        };
        let devices = vec![lamp];
        // The stream stays open: to the kubelet a plugin whose stream ends is gone.
        let lists = tokio_stream::once(Ok(ListAndWatchResponse { devices }));
        Ok(Response::new(Box::pin(
            lists.chain(tokio_stream::pending()),
        )))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let requests = request.into_inner().container_requests;
        Ok(Response::new(AllocateResponse {
            container_responses: requests.into_iter().map(answer).collect(),
        }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Err(Status::unimplemented("pre_start_container"))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented("get_preferred_allocation"))
    }
}

fn answer(request: ContainerAllocateRequest) -> ContainerAllocateResponse {
    ContainerAllocateResponse {
        envs: [("LAMP".to_owned(), request.devices_ids.join(","))].into(),
        ..ContainerAllocateResponse::default()
    }
}

/// Serves the plugin in the kubelet's folder, registers it, and goes on until the server fails.
pub(crate) async fn run(folder: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
    let incoming = uds::bind(&folder.join(SOCKET))?;
    let serve = async {
        let server = Server::builder().add_service(DevicePluginServer::new(Lamp));
        Ok(server.serve_with_incoming(incoming).await?)
    };
    // The kubelet calls the plugin's socket before it answers.
    tokio::try_join!(serve, register(folder))?;
    Ok(())
}

async fn register(folder: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
    let kubelet = uds::dial(&folder.join("kubelet.sock")).await?;
    let request = RegisterRequest {
        version: VERSION.to_owned(),
        endpoint: SOCKET.to_owned(),
        resource_name: "example.com/lamp".to_owned(),
        options: None,
    };
    RegistrationClient::new(kubelet).register(request).await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
#[allow(dead_code, reason = "another example has this file as a module")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let folder = env::args_os().nth(1);
    let folder = folder.unwrap_or("/var/lib/kubelet/device-plugins".into());
    run(folder.as_ref()).await
}
