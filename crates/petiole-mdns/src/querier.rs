//! Queries services: packets, interfaces, subscriptions and time go in; packets and changed services come out. Pure.
//!
//! `state` has the state and its turns, `receive` processes packets, `others` the queries of other hosts, `refusals`
//! records that are withdrawn, denied or refused, `expire` removes records, `links` updates interfaces and subscriptions,
//! `ask` writes the questions, and `found` builds services from records.
mod ask;
mod expire;
mod found;
mod links;
mod others;
mod receive;
mod refusals;
mod service;
mod state;

pub(crate) use receive::PACKET_STEPS;
pub use receive::PACKET_STEPS_MAX;
pub use service::{Address, Found, LeftOut, Service};
pub use state::{Change, Outgoing, Packet, Querier, Turn, Wanted};

#[cfg(test)]
mod tests;
