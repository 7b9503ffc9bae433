//! The device plugin API, as the kubelet calls it. Decides nothing: slots come from the owner of the plugins, answers
//! from the allocator.
use super::{allocate::Allocator, forward::Forward, list_turns::ListTurns};
use crate::{
    agent::values::{Offered, Slot},
    model::slot_table::Resource,
};
use futures::{Stream, StreamExt as _, stream::unfold};
use petiole_kubelet_api::device_plugin::{
    AllocateRequest, AllocateResponse, ContainerPreferredAllocationResponse, Device,
    DevicePluginOptions, Empty, HEALTHY, ListAndWatchResponse, PreStartContainerRequest,
    PreStartContainerResponse, PreferredAllocationRequest, PreferredAllocationResponse, UNHEALTHY,
    device_plugin_server::DevicePlugin,
};
use std::{collections::BTreeSet, convert::Infallible, pin::Pin, sync::Arc};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

pub(super) struct Service {
    pub(super) allocator: Arc<Allocator>,
}

impl Service {
    fn forward<'a>(&'a self, served: &'a Served) -> Forward<'a> {
        Forward {
            inputs: &self.allocator.inputs,
            resource: &served.resource,
            socket: &served.socket,
        }
    }
}

/// The plugin that a connection is to.
pub(super) struct Served {
    pub(super) resource: Resource,
    pub(super) options: DevicePluginOptions,
    pub(super) namespace: String,
    /// The name of the socket.
    pub(super) socket: String,
    pub(super) turns: ListTurns,
    pub(super) slots: watch::Receiver<Arc<[Slot]>>,
    pub(super) streams: watch::Sender<Streams>,
    /// Lets each stream end with a list that has no healthy slot.
    pub(super) withdrawn: CancellationToken,
    /// Is open as long as anything is of this plugin: a connection, or what takes connections.
    pub(super) _open: mpsc::Sender<Infallible>,
    /// Ends the streams and the connections.
    pub(super) closing: CancellationToken,
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    async fn get_device_plugin_options(
        &self,
        request: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(served(&request)?.options))
    }

    type ListAndWatchStream =
        Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn list_and_watch(
        &self,
        request: Request<Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let served = served(&request)?;
        let mut slots = served.slots.clone();
        slots.mark_changed();
        let list = List {
            _open: OpenStream::new(served.streams.clone()),
            served: served.clone(),
            slots,
            is_last: false,
        };
        let lists = unfold(list, List::next).take_until(served.closing.clone().cancelled_owned());
        Ok(Response::new(Box::pin(lists)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let served = served(&request)?;
        let containers = request.into_inner().container_requests.into_iter();
        let container_responses = containers
            .map(|container| ContainerPreferredAllocationResponse {
                device_i_ds: self.allocator.preferred(
                    &served.resource,
                    &container.available_device_i_ds,
                    &container.must_include_device_i_ds,
                    usize::try_from(container.allocation_size).unwrap_or(0),
                ),
            })
            .collect();
        Ok(Response::new(PreferredAllocationResponse {
            container_responses,
        }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let served = served(&request)?;
        let Some(_call) = self.allocator.inputs.decisions.begin().await else {
            let forward = self.forward(&served);
            return forward.allocate(request.into_inner()).await;
        };
        let requests = request.into_inner().container_requests;
        let containers = requests
            .into_iter()
            .map(|container| container.devices_ids)
            .collect();
        let container_responses = self
            .allocator
            .allocate(&served.resource, containers)
            .await?;
        Ok(Response::new(AllocateResponse {
            container_responses,
        }))
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        let served = served(&request)?;
        let Some(_call) = self.allocator.inputs.decisions.begin().await else {
            let forward = self.forward(&served);
            return forward.pre_start(request.into_inner()).await;
        };
        self.allocator
            .pre_start(&served.resource, request.into_inner().devices_ids)
            .await?;
        Ok(Response::new(PreStartContainerResponse {}))
    }
}

/// Returns what the kubelet is to ask of a plugin besides Allocate.
pub(super) fn options(offered: &Offered) -> DevicePluginOptions {
    DevicePluginOptions {
        pre_start_required: !offered.is_by_claims,
        get_preferred_allocation_available: matches!(offered.resource, Resource::Configuration(_)),
    }
}

fn served<T>(request: &Request<T>) -> Result<Arc<Served>, Status> {
    let served = request.extensions().get::<Arc<Served>>();
    let unknown = || Status::internal("the connection is to no device plugin");
    served.cloned().ok_or_else(unknown)
}

fn device(slot: &Slot, is_offered: bool) -> Device {
    let is_healthy = slot.is_healthy && is_offered;
    Device {
        id: slot.id.clone(),
        health: if is_healthy { HEALTHY } else { UNHEALTHY }.to_owned(),
        topology: None,
    }
}

/// The list of a plugin, as one stream sends it.
struct List {
    served: Arc<Served>,
    slots: watch::Receiver<Arc<[Slot]>>,
    /// True if the resource is offered no more, and this was said.
    is_last: bool,
    _open: OpenStream,
}

impl List {
    /// Waits for a change and for the plugin's turn, and returns the list as it is then. The last one is that of a plugin that is
    /// withdrawn.
    async fn next(mut self) -> Option<(Result<ListAndWatchResponse, Status>, Self)> {
        if self.is_last {
            return None;
        }
        let Served {
            turns,
            namespace,
            withdrawn,
            ..
        } = &*self.served;
        if let Some(changed) = withdrawn.run_until_cancelled(self.slots.changed()).await {
            changed.ok()?;
            self.slots.mark_changed();
        }
        let is_unsent = self.slots.has_changed().ok()?;
        let is_offered = is_unsent || self.slots.borrow().iter().any(|slot| slot.is_healthy);
        if withdrawn.is_cancelled() && !is_offered {
            return None; // the kubelet knows
        }
        turns.wait(namespace.clone()).await;
        self.is_last = withdrawn.is_cancelled();
        let slots = self.slots.borrow_and_update().clone();
        let devices = slots.iter().map(|slot| device(slot, !self.is_last));
        let devices = devices.collect();
        Some((Ok(ListAndWatchResponse { devices }), self))
    }
}

/// The ListAndWatch streams of a plugin, numbered as they were opened. The kubelet's is the one that follows a
/// registration; others are people's who look.
#[derive(Debug, Clone, Default)]
pub(super) struct Streams {
    pub(super) opened: u64,
    pub(super) open: BTreeSet<u64>,
}

/// A stream for as long as it lives.
struct OpenStream {
    streams: watch::Sender<Streams>,
    number: u64,
}

impl OpenStream {
    fn new(streams: watch::Sender<Streams>) -> Self {
        let mut number = 0;
        streams.send_modify(|all| {
            all.opened += 1;
            number = all.opened;
            all.open.insert(number);
        });
        Self { streams, number }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.streams.send_modify(|all| {
            all.open.remove(&self.number);
        });
    }
}
