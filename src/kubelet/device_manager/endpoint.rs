//! One plugin, as the kubelet calls it.
use super::{DeviceManager, plan::Options};
use crate::{
    proto::device_plugin::{
        AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
        ContainerPreferredAllocationRequest, Empty, HEALTHY, PreStartContainerRequest,
        PreferredAllocationRequest, device_plugin_client::DevicePluginClient,
    },
    uds,
};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tracing::warn;

const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// The real kubelet waits for ever, and admits no other Pod meanwhile.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// gRPC's own default on the kubelet's side: a list beyond it ends the stream.
const MESSAGE_LIMIT: usize = 4 * 1024 * 1024;

pub(super) type Client = DevicePluginClient<Channel>;

#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub(super) registration: u64,
    pub(super) socket: PathBuf,
    pub(super) client: Client,
    /// Ends the stream of its lists.
    pub(super) stop: CancellationToken,
}

/// A plugin whose lists are to be followed.
#[derive(Debug)]
pub(in crate::kubelet) struct Registered {
    pub(super) resource: String,
    pub(super) registration: u64,
    pub(super) client: Client,
    pub(super) stop: CancellationToken,
}

impl Endpoint {
    pub(super) async fn connect(
        registration: u64,
        socket: &Path,
    ) -> Result<(Self, Options), String> {
        let dialled = timeout(DIAL_TIMEOUT, uds::dial(socket)).await;
        let channel = match dialled {
            Ok(Ok(channel)) => channel,
            Ok(Err(e)) => {
                return Err(format!(
                    "failed to dial device plugin: {}: {}",
                    socket.display(),
                    chain(&e)
                ));
            }
            Err(_) => {
                return Err(format!(
                    "failed to dial device plugin: {}: no answer in 10 s",
                    socket.display()
                ));
            }
        };
        let mut client = DevicePluginClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT);
        let options = call(client.get_device_plugin_options(Empty {}))
            .await
            .map_err(|e| format!("failed to get device plugin options: {e}"))?;
        let endpoint = Self {
            registration,
            socket: socket.to_owned(),
            client,
            stop: CancellationToken::new(),
        };
        let options = Options {
            is_pre_start_required: options.pre_start_required,
            has_preferred_allocation: options.get_preferred_allocation_available,
        };
        Ok((endpoint, options))
    }

    pub(super) async fn allocate(
        &self,
        ids: &BTreeSet<String>,
    ) -> Result<ContainerAllocateResponse, String> {
        let container = ContainerAllocateRequest {
            devices_ids: ids.iter().cloned().collect(),
        };
        let request = AllocateRequest {
            container_requests: vec![container],
        };
        let answer = call(self.client.clone().allocate(request)).await?;
        (answer.container_responses.into_iter().next())
            .ok_or_else(|| "no containers return in allocation response".to_owned())
    }

    pub(super) async fn preferred(
        &self,
        available: &BTreeSet<String>,
        must: &BTreeSet<String>,
        size: usize,
    ) -> Result<Vec<String>, String> {
        let container = ContainerPreferredAllocationRequest {
            available_device_i_ds: available.union(must).cloned().collect(),
            must_include_device_i_ds: must.iter().cloned().collect(),
            allocation_size: i32::try_from(size).unwrap_or(i32::MAX),
        };
        let request = PreferredAllocationRequest {
            container_requests: vec![container],
        };
        let answer = call(self.client.clone().get_preferred_allocation(request)).await?;
        let first = answer.container_responses.into_iter().next();
        Ok(first
            .map(|container| container.device_i_ds)
            .unwrap_or_default())
    }

    pub(super) async fn pre_start(&self, ids: Vec<String>) -> Result<(), String> {
        let request = PreStartContainerRequest { devices_ids: ids };
        call(self.client.clone().pre_start_container(request))
            .await
            .map(drop)
    }
}

/// Takes a plugin's lists until its stream ends, for whatever reason: the kubelet never opens it again.
pub(super) async fn follow(manager: Arc<DeviceManager>, registered: Registered) {
    let Registered {
        resource,
        registration,
        mut client,
        stop,
    } = registered;
    let lists = async {
        let mut stream = client.list_and_watch(Empty {}).await?.into_inner();
        while let Some(list) = stream.message().await? {
            let devices = list
                .devices
                .into_iter()
                .map(|device| (device.id, device.health == HEALTHY));
            manager
                .inventory
                .send_modify(|inventory| inventory.listed(&resource, registration, devices));
        }
        Ok::<_, tonic::Status>(())
    };
    if let Some(Err(e)) = stop.run_until_cancelled(lists).await {
        warn!(%resource, "ListAndWatch ended: {e}");
    }
    manager.disconnect(&resource, registration);
}

async fn call<T>(
    answer: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, String> {
    match timeout(CALL_TIMEOUT, answer).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(status.message().to_owned()),
        Err(_) => Err(format!(
            "the plugin did not answer in {} s",
            CALL_TIMEOUT.as_secs()
        )),
    }
}

/// An error with its causes: a transport error alone says no more than that it is one.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |e| e.source());
    std::iter::once(error.to_string())
        .chain(causes.map(ToString::to_string))
        .collect::<Vec<_>>()
        .join(": ")
}
