//! Queries services: packets, interfaces, subscriptions and time go in; packets and changed services come out. Pure.
//!
//! `state` has the state and its turns, `receive` processes packets, `expire` removes records, `links` updates
//! interfaces and subscriptions, `ask` writes the questions, and `found` builds services from records.
mod ask;
mod expire;
mod found;
mod links;
mod receive;
mod service;
mod state;

pub use service::{Address, Found, Service};
pub use state::{Change, Outgoing, Packet, Querier, Turn, Wanted};

#[cfg(test)]
mod tests;
