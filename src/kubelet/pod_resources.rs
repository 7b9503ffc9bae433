//! The pod resources API, `v1`: which device ids each container holds.
use super::{
    device_manager::{DeviceManager, Holder},
    pods::{PodState, Pods},
};
use crate::{
    proto::pod_resources::{
        AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices,
        ContainerResources, GetPodResourcesRequest, GetPodResourcesResponse,
        ListPodResourcesRequest, ListPodResourcesResponse, PodResources,
        pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer},
    },
    uds,
};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, transport::Server};

/// As in the kubelet: so many calls a second, and so many at once after a rest.
const CALLS_PER_SECOND: f64 = 100.0;
const BURST: f64 = 10.0;

/// Listens at `socket` until `shutdown`.
pub(super) async fn serve(
    socket: PathBuf,
    devices: Arc<DeviceManager>,
    pods: watch::Receiver<Pods>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let incoming = uds::bind(&socket)?;
    let service = Service {
        devices,
        pods,
        limit: RateLimit::default(),
    };
    let server = Server::builder()
        .add_service(PodResourcesListerServer::new(service))
        .serve_with_incoming(incoming);
    match shutdown.run_until_cancelled(server).await {
        Some(ended) => Ok(ended?),
        None => Ok(()),
    }
}

struct Service {
    devices: Arc<DeviceManager>,
    pods: watch::Receiver<Pods>,
    limit: RateLimit,
}

#[tonic::async_trait]
impl PodResourcesLister for Service {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        self.limit.take()?;
        let pods = self.pods.borrow().clone();
        // Pods that are over hold nothing, and have not been listed since Kubernetes 1.34.
        let active = pods.values().filter(|state| !state.phase.is_over());
        let pod_resources = active.map(|state| self.resources_of(state)).collect();
        Ok(Response::new(ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        self.limit.take()?;
        let healthy = self.devices.healthy().into_iter();
        let devices = healthy
            .flat_map(|(resource, ids)| one_each(resource, ids))
            .collect();
        Ok(Response::new(AllocatableResourcesResponse {
            devices,
            ..Default::default()
        }))
    }

    async fn get(
        &self,
        request: Request<GetPodResourcesRequest>,
    ) -> Result<Response<GetPodResourcesResponse>, Status> {
        self.limit.take()?;
        let request = request.into_inner();
        let key = format!("{}/{}", request.pod_namespace, request.pod_name);
        let pods = self.pods.borrow().clone();
        let state = pods.get(&key).ok_or_else(|| {
            Status::unknown(format!(
                "pod {} in namespace {} not found",
                request.pod_name, request.pod_namespace
            ))
        })?;
        Ok(Response::new(GetPodResourcesResponse {
            pod_resources: Some(self.resources_of(state)),
        }))
    }
}

impl Service {
    fn resources_of(&self, state: &PodState) -> PodResources {
        let containers = state.pod.containers().iter().map(|container| {
            let holder = Holder {
                pod_uid: state.pod.uid.clone(),
                container: container.name.clone(),
            };
            let devices = self.devices.devices_of(&holder).into_iter();
            let devices = devices
                .flat_map(|(resource, ids)| one_each(resource, ids.into_iter().map(|(id, _)| id)));
            ContainerResources {
                name: container.name.clone(),
                devices: devices.collect(),
                ..Default::default()
            }
        });
        PodResources {
            name: state.pod.name.clone(),
            namespace: state.pod.namespace.clone(),
            containers: containers.collect(),
            ..Default::default()
        }
    }
}

/// The kubelet sends one entry for each id.
fn one_each(
    resource: String,
    ids: impl IntoIterator<Item = String>,
) -> impl Iterator<Item = ContainerDevices> {
    ids.into_iter().map(move |id| ContainerDevices {
        resource_name: resource.clone(),
        device_ids: vec![id],
        topology: None,
    })
}

/// A bucket of calls that fills at a steady rate.
#[derive(Default)]
struct RateLimit(Mutex<Option<(Instant, f64)>>);

impl RateLimit {
    fn take(&self) -> Result<(), Status> {
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let (since, left) = bucket.unwrap_or((now, BURST));
        let left = (left + (now - since).as_secs_f64() * CALLS_PER_SECOND).min(BURST);
        if left < 1.0 {
            *bucket = Some((now, left));
            return Err(Status::resource_exhausted("rejected by rate limit"));
        }
        *bucket = Some((now, left - 1.0));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_let_through_and_then_a_call_every_ten_milliseconds() {
        let limit = RateLimit::default();
        assert_eq!((0..20).filter(|_| limit.take().is_ok()).count(), 10);
        advance(Duration::from_millis(10)).await;
        assert_eq!((0..20).filter(|_| limit.take().is_ok()).count(), 1);
    }
}
