//! Defines the turn of a part, its stages, and the requests that it sends. Pure.
use super::{
    brokers::plan::Action as BrokerAction,
    evictions::plan::Action as EvictionAction,
    lists::plan::Action as ListAction,
    nodes::{absent_node::Pods, plan::Action as DeviceAction},
    outcome::Written,
    services::action::Action as ServiceAction,
    status::plan::Action as StatusAction,
};
use crate::model::typed_names::NodeName;
use std::collections::VecDeque;
use tokio::time::Instant;

/// A request to the API server.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    /// Asks whether a deleted node has Pods.
    Look(NodeName),
    Device(DeviceAction),
    Broker(BrokerAction),
    Service(ServiceAction),
    List(ListAction),
    Status(StatusAction),
    Eviction(EvictionAction),
}

/// Returns the requests that carry out these actions.
pub(crate) fn requests<A>(actions: Vec<A>, request: impl Fn(A) -> Request) -> Vec<Request> {
    actions.into_iter().map(request).collect()
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Pods(Pods),
    Written(Written),
}

impl Answer {
    /// Returns the answer to a request that has none.
    pub(crate) fn none(request: &Request) -> Self {
        match request {
            Request::Look(_) => Self::Pods(Pods::Unknown),
            Request::Device(_)
            | Request::Broker(_)
            | Request::Service(_)
            | Request::List(_)
            | Request::Status(_)
            | Request::Eviction(_) => {
                Self::Written(Written::failed("the API server does not answer"))
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Devices,
    Brokers,
    Services,
    Lists,
    Status,
    Evictions,
}

impl Stage {
    pub(crate) fn next(self) -> Option<Self> {
        match self {
            Self::Devices => Some(Self::Brokers),
            Self::Brokers => Some(Self::Services),
            Self::Services => Some(Self::Lists),
            Self::Lists => Some(Self::Status),
            Self::Status => Some(Self::Evictions),
            Self::Evictions => None,
        }
    }

    /// Returns whether webhooks of others decide on what is written.
    pub(crate) fn is_admitted(self) -> bool {
        match self {
            Self::Brokers | Self::Services | Self::Lists | Self::Evictions => true,
            Self::Devices | Self::Status => false,
        }
    }
}

/// The turn of a part that waits for answers.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) stage: Stage,
    /// The requests of the stage that are not sent yet.
    pub(crate) queue: VecDeque<Request>,
    pub(crate) sent: usize,
    pub(crate) open: usize,
    /// True if anything of the part has changed since the turn began.
    pub(crate) is_touched: bool,
    /// True if the turn has sent anything: what was done may make something else possible, and what was not is planned again.
    pub(crate) has_sent: bool,
    /// False if this replica has lost the Lease since.
    pub(crate) is_valid: bool,
    pub(crate) wait: Option<Instant>,
}

impl Turn {
    pub(crate) fn new() -> Self {
        Self {
            stage: Stage::Devices,
            queue: VecDeque::new(),
            sent: 0,
            open: 0,
            is_touched: false,
            has_sent: false,
            is_valid: true,
            wait: None,
        }
    }
}
