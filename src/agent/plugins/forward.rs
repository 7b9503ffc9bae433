//! Forwards a call of the kubelet to the agent that has taken over. It may not serve yet: then the call waits. The kubelet admits
//! no other Pod meanwhile, but a Pod that is late is better than one that is refused for ever.
use super::{inputs::Inputs, plan};
use crate::model::slot_table::Resource;
use petiole_kubelet_api::{
    device_plugin::{
        AllocateRequest, AllocateResponse, PreStartContainerRequest, PreStartContainerResponse,
        device_plugin_client::DevicePluginClient,
    },
    uds,
};
use std::{fs, time::Duration};
use tokio::time::{sleep, timeout};
use tonic::{Response, Status, transport::Channel};

/// The longest wait for the other agent's socket and its answer.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of the looks for the socket.
const LOOK: Duration = Duration::from_millis(20);

/// The plugin that a call was for.
pub(super) struct Forward<'a> {
    pub(super) inputs: &'a Inputs,
    pub(super) resource: &'a Resource,
    /// The name of this agent's socket.
    pub(super) socket: &'a str,
}

impl Forward<'_> {
    pub(super) async fn allocate(
        self,
        request: AllocateRequest,
    ) -> Result<Response<AllocateResponse>, Status> {
        let call = async { self.other().await.allocate(request).await };
        bounded(self.inputs, call).await
    }

    pub(super) async fn pre_start(
        self,
        request: PreStartContainerRequest,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        let call = async { self.other().await.pre_start_container(request).await };
        bounded(self.inputs, call).await
    }

    /// Connects to the other agent's plugin of the same resource, as soon as it serves.
    async fn other(&self) -> DevicePluginClient<Channel> {
        let folder = &self.inputs.settings.plugin_folder;
        let stem = plan::socket_stem(&self.resource.plugin(), folder.as_os_str().len());
        loop {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let sockets = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
            let sockets = sockets.collect();
            let others = stem
                .iter()
                .flat_map(|stem| plan::sockets_of(stem, &sockets));
            // The newest has the latest second in its name.
            let newest = others.filter(|name| *name != self.socket).last();
            if let Some(name) = newest
                && let Ok(channel) = uds::dial(&folder.join(name)).await
            {
                return DevicePluginClient::new(channel);
            }
            sleep(LOOK).await;
        }
    }
}

async fn bounded<T>(
    inputs: &Inputs,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let call = inputs.decisions.forwarding(timeout(FORWARD_TIMEOUT, call));
    let late = || {
        Err(Status::unavailable(format!(
            "the agent is being replaced, and the new one has not answered within {} s: delete the Pod, its replacement is admitted when the new one runs",
            FORWARD_TIMEOUT.as_secs()
        )))
    };
    call.await.unwrap_or_else(|_| late())
}
