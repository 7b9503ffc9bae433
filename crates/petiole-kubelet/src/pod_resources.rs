//! Serves the pod resources API, `v1`: the devices that each container of an active Pod holds.
use super::{
    device_manager::{
        inventory::{Claim, Inventory, NO_NUMA},
        manager::DeviceManager,
    },
    pods::{manifest::is_sidecar, record::PodRecord, table::Pods},
    waits::serve_until,
};
use petiole_base::{files, token_bucket::TokenBucket};
use petiole_kubelet_api::{
    pod_resources::{
        AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices,
        ContainerResources, GetPodResourcesRequest, GetPodResourcesResponse,
        ListPodResourcesRequest, ListPodResourcesResponse, NumaNode, PodResources, TopologyInfo,
        pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer},
    },
    uds,
};
use std::{fs, io, path::Path, sync::Mutex, time::Duration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, transport::Server};

/// The rate limit of the Go kubelet.
const CALLS_PER_SECOND: u32 = 100;
const BURST: usize = 10;
const SOCKET: &str = "kubelet.sock";
/// The time that open calls get to end when the kubelet stops.
const LAST_CALLS: Duration = Duration::from_millis(200);

struct Service {
    devices: DeviceManager,
    pods: Pods,
    started: Instant,
    bucket: Mutex<TokenBucket>,
}

/// Serves in `folder` until `shutdown`. It only reads the table of Pods and the inventory.
pub(crate) fn serve(
    folder: &Path,
    devices: DeviceManager,
    pods: Pods,
    shutdown: CancellationToken,
) -> io::Result<impl Future<Output = anyhow::Result<()>> + Send + use<>> {
    fs::create_dir_all(folder).map_err(|e| files::at(folder, &e))?;
    let incoming = uds::bind(&folder.join(SOCKET))?;
    let service = Service {
        devices,
        pods,
        started: Instant::now(),
        bucket: Mutex::new(TokenBucket::new(BURST, CALLS_PER_SECOND, Duration::ZERO)),
    };
    Ok(async move {
        let server = Server::builder()
            .add_service(PodResourcesListerServer::new(service))
            .serve_with_incoming_shutdown(incoming, shutdown.clone().cancelled_owned());
        serve_until(server, shutdown, LAST_CALLS).await
    })
}

impl Service {
    fn admit(&self) -> Result<(), Status> {
        let uptime = self.started.elapsed();
        let mut bucket = self.bucket.lock().expect("taking a token does not panic");
        if bucket.available(uptime) == 0 {
            return Err(Status::resource_exhausted("rejected by rate limit"));
        }
        bucket.take(1, uptime);
        Ok(())
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Service {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        self.admit()?;
        let table = self.pods.table();
        let inventory = self.devices.inventory();
        let active = table.values().filter(|record| record.is_active());
        Ok(Response::new(ListPodResourcesResponse {
            pod_resources: active.map(|record| of_pod(record, &inventory)).collect(),
        }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        self.admit()?;
        Ok(Response::new(AllocatableResourcesResponse {
            devices: allocatable(&self.devices.inventory()),
            ..AllocatableResourcesResponse::default()
        }))
    }

    async fn get(
        &self,
        request: Request<GetPodResourcesRequest>,
    ) -> Result<Response<GetPodResourcesResponse>, Status> {
        self.admit()?;
        let GetPodResourcesRequest {
            pod_name,
            pod_namespace,
        } = request.into_inner();
        let table = self.pods.table();
        let record = table
            .values()
            .find(|record| {
                record.pod.key.name == pod_name && record.pod.key.namespace == pod_namespace
            })
            .ok_or_else(|| {
                Status::unknown(format!(
                    "pod {pod_name} in namespace {pod_namespace} not found"
                ))
            })?;
        Ok(Response::new(GetPodResourcesResponse {
            pod_resources: Some(of_pod(record, &self.devices.inventory())),
        }))
    }
}

/// Lists the devices of sidecars and main containers. Plain init containers are left out, because they have ended
/// before the main ones start.
fn of_pod<C>(record: &PodRecord, inventory: &Inventory<C>) -> PodResources {
    let spec = &record.pod.spec;
    let sidecars = spec.init_containers.iter().flatten();
    let containers = sidecars
        .filter(|container| is_sidecar(container))
        .chain(&spec.containers);
    let containers = containers.map(|container| {
        let holder = record.pod.holder(container);
        let claims = inventory.claims(&holder).into_iter();
        ContainerResources {
            name: container.name.clone(),
            devices: claims
                .flat_map(|(name, claim)| of_claim(name, claim))
                .collect(),
            ..ContainerResources::default()
        }
    });
    PodResources {
        name: record.pod.key.name.clone(),
        namespace: record.pod.key.namespace.clone(),
        containers: containers.collect(),
        ..PodResources::default()
    }
}

fn of_claim(resource: &str, claim: &Claim) -> Vec<ContainerDevices> {
    let by_node = claim.ids.iter();
    by_node
        .flat_map(|(node, ids)| ids.iter().map(|id| one_device(resource, id, *node)))
        .collect()
}

fn allocatable<C>(inventory: &Inventory<C>) -> Vec<ContainerDevices> {
    let mut devices = Vec::new();
    for (name, resource) in inventory.resources() {
        for (id, device) in resource
            .devices()
            .iter()
            .filter(|(_, device)| device.healthy)
        {
            if device.numa.is_empty() {
                devices.push(one_device(name, id, NO_NUMA));
            }
            devices.extend(device.numa.iter().map(|node| one_device(name, id, *node)));
        }
    }
    devices
}

/// Returns one device in the Go kubelet's form: an entry for each device and each of its NUMA nodes.
fn one_device(resource: &str, id: &str, node: i64) -> ContainerDevices {
    ContainerDevices {
        resource_name: resource.to_owned(),
        device_ids: vec![id.to_owned()],
        topology: (node != NO_NUMA).then(|| TopologyInfo {
            nodes: vec![NumaNode { id: node }],
        }),
    }
}
