//! Finding devices. Knows nothing of Instances, slots or the kubelet.
pub mod damping;
pub mod external;
mod glob;
pub mod handlers;
mod interface;
mod part;
mod progress;
mod publish;
pub mod registry;
pub mod session;
pub mod turns;

pub use interface::{
    DetailsError, Discovery, DiscoveryError, DiscoveryHandler, Properties, Reads, SessionSpec, Task,
};
