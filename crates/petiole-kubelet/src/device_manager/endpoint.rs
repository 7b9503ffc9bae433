//! Calls one device plugin. The error texts are the Go kubelet's.
use crate::{go_errors, settings::CallLimits};
use petiole_kubelet_api::{
    device_plugin::{
        AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
        ContainerPreferredAllocationRequest, DevicePluginOptions, Empty, ListAndWatchResponse,
        PreStartContainerRequest, PreferredAllocationRequest,
        device_plugin_client::DevicePluginClient,
    },
    uds,
};
use std::{collections::BTreeSet, path::Path, time::Duration};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming, transport::Channel};

/// The time limit of the Go kubelet. Within it a plugin that registers before it serves is dialled again.
const DIAL_LIMIT: Duration = Duration::from_secs(10);
const DIAL_AGAIN: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
pub(crate) struct Plugin {
    client: DevicePluginClient<Channel>,
    limits: CallLimits,
    /// A signal to close the stream, which is sent when the plugin is deregistered.
    pub(super) stop: CancellationToken,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("failed to dial device plugin: {0}")]
    Dial(String),
    #[error("failed to get device plugin options: {0}")]
    Options(String),
    #[error("{0}")]
    Rpc(String),
    #[error("no containers return in allocation response")]
    EmptyResponse,
    #[error("device plugin PreStartContainer rpc failed with err: {0}")]
    PreStart(String),
    #[error("device plugin GetPreferredAllocation rpc failed with err: {0}")]
    Preferred(String),
}

impl Plugin {
    /// Dials the plugin and asks for its options. A registration is complete only after that.
    pub(super) async fn connect(
        socket: &Path,
        limits: CallLimits,
    ) -> Result<(Self, DevicePluginOptions), Error> {
        let channel = dial(socket).await?;
        let mut plugin = Self {
            client: DevicePluginClient::new(channel),
            limits,
            stop: CancellationToken::new(),
        };
        let options = within(
            limits.options,
            "GetDevicePluginOptions",
            plugin.client.get_device_plugin_options(Empty {}),
        );
        let options = options.await.map_err(Error::Options)?;
        Ok((plugin, options))
    }

    pub(super) async fn list_and_watch(
        &mut self,
    ) -> Result<Streaming<ListAndWatchResponse>, String> {
        let stream = self.client.list_and_watch(Empty {}).await;
        stream
            .map(tonic::Response::into_inner)
            .map_err(|status| go_errors::status(&status))
    }

    pub(super) async fn allocate(
        &mut self,
        ids: &BTreeSet<String>,
    ) -> Result<ContainerAllocateResponse, Error> {
        let request = AllocateRequest {
            container_requests: vec![ContainerAllocateRequest {
                devices_ids: ids.iter().cloned().collect(),
            }],
        };
        let answer = within(
            self.limits.allocate,
            "Allocate",
            self.client.allocate(request),
        );
        let answer = answer.await.map_err(Error::Rpc)?;
        let mut responses = answer.container_responses.into_iter();
        responses.next().ok_or(Error::EmptyResponse)
    }

    pub(super) async fn preferred(
        &mut self,
        available: &BTreeSet<String>,
        must_include: &BTreeSet<String>,
        size: usize,
    ) -> Result<Vec<String>, Error> {
        let request = PreferredAllocationRequest {
            container_requests: vec![ContainerPreferredAllocationRequest {
                available_device_i_ds: available.iter().cloned().collect(),
                must_include_device_i_ds: must_include.iter().cloned().collect(),
                allocation_size: i32::try_from(size).unwrap_or(i32::MAX),
            }],
        };
        let call = self.client.get_preferred_allocation(request);
        let answer = within(self.limits.allocate, "GetPreferredAllocation", call).await;
        let responses = answer.map_err(Error::Preferred)?.container_responses;
        Ok(responses
            .into_iter()
            .next()
            .map(|response| response.device_i_ds)
            .unwrap_or_default())
    }

    pub(super) async fn pre_start(&mut self, ids: &BTreeSet<String>) -> Result<(), Error> {
        let request = PreStartContainerRequest {
            devices_ids: ids.iter().cloned().collect(),
        };
        let call = self.client.pre_start_container(request);
        let answer = within(self.limits.pre_start, "PreStartContainer", call).await;
        answer.map(|_| ()).map_err(Error::PreStart)
    }
}

async fn dial(socket: &Path) -> Result<Channel, Error> {
    let begun = Instant::now();
    loop {
        match timeout(DIAL_LIMIT, uds::dial(socket)).await {
            Ok(Ok(channel)) => return Ok(channel),
            Ok(Err(e)) if begun.elapsed() + DIAL_AGAIN > DIAL_LIMIT => {
                let cause = go_errors::cause(&e);
                return Err(Error::Dial(format!("{}: {cause}", socket.display())));
            }
            Ok(Err(_)) => sleep(DIAL_AGAIN).await,
            Err(_) => return Err(Error::Dial(format!("{}: no answer", socket.display()))),
        }
    }
}

async fn within<T>(
    limit: Duration,
    method: &str,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, String> {
    match timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(go_errors::status(&status)),
        Err(_) => Err(format!(
            "rpc error: code = DeadlineExceeded desc = no answer to {method} within {limit:?}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_does_not_serve_is_dialled_for_ten_seconds() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("none.sock");
        let begun = Instant::now();
        let connected = Plugin::connect(&socket, CallLimits::default()).await;
        let error = connected.unwrap_err().to_string();
        let want = format!(
            "failed to dial device plugin: {}: No such file",
            socket.display()
        );
        assert!(error.starts_with(&want), "{error}");
        let took = begun.elapsed();
        assert!((9_900..=10_100).contains(&took.as_millis()), "{took:?}");
    }
}
