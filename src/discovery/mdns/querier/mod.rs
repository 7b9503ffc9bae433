//! The querier: packets, interfaces, subscriptions and time go in; packets and changed services come out. Pure.
//!
//! `state` has the state and its turns, `receive` takes packets, `expire` removes records, `links` follows interfaces and subscriptions, `ask` makes the
//! questions, and `found` makes services from records.
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
