//! Finds services on the LAN by multicast DNS (RFC 6762) and DNS-SD (RFC 6763). It sends questions, and never
//! answers.
//!
//! There are two ways to use it:
//! - [`Mdns`] is a querier with its sockets, in a task of the caller's Tokio runtime. [`Mdns::subscribe`] browses for a
//!   type, and the [`Subscription`] has the services at present as a whole map.
//! - [`Querier`] is the same without any I/O, for another runtime, for tests and for simulations: packets, interfaces,
//!   subscriptions and the time go in, and each [`Turn`] has the packets to send, the changed services, and the time
//!   of the next turn.
//!
//! The README says which section of RFC 6762 is in which file, with the tests of each, and in what the querier differs.
//!
//! # Map
//! ```text
//! a packet
//!  │ message, record, name, txt    bytes -> records; what is malformed is ignored
//!  ▼
//! querier::receive            bounded by traffic: the work that the packets of a source may cause
//!  │ cache                    which records are admitted (budget), and how long each lives (entry)
//!  │ link                     of each interface: browses, services, hosts, and the questions about them
//!  ▼
//! Querier::turn
//!  │ querier::expire          records and services that have expired
//!  │ querier::ask             questions that are due by schedule; pace bounds them, and query writes them
//!  │ querier::found           records -> Service, for each subscription
//!  ▼
//! Turn                        pure up to here: no clock, no socket
//!  │ process                  the task: takes turns, and publishes Found over a watch
//!  │ network, host_links      the sockets, and the interfaces of the system (Linux)
//! ```
//!
//! # Errors
//! Nothing here returns an error: foreign packets that cannot be used are ignored and counted ([`Ignored`]), a record
//! beyond a limit is left out ([`LeftOut`]), and an interface without a usable socket is not browsed
//! ([`Found::interfaces`] has the number of those that are). The log has the reason of each, at level `debug`.
#![warn(missing_docs)]
mod cache;
mod family;
mod host_links;
mod interfaces;
mod link;
mod message;
mod name;
mod network;
mod pace;
mod process;
mod querier;
mod query;
mod record;
mod schedule;
mod trace;
mod traffic;
mod turns;
mod txt;

pub use family::Family;
pub use host_links::links;
pub use interfaces::Interfaces;
pub use link::Link;
pub use name::{Labels, Name};
pub use process::{Mdns, Subscription};
pub use querier::{
    Address, Change, Found, LeftOut, Outgoing, Packet, Querier, Service, Turn, Wanted,
};
pub use record::{Data, Kind, Record};
pub use trace::{Counts, Ignored, Note};

/// Bounds that a caller may want to know. A record or a service beyond one of them is left out.
pub mod limits {
    pub use crate::{
        cache::{BYTES_MAX, POINTERS_MAX, RECORDS_MAX},
        querier::PACKET_STEPS_MAX,
        query::PACKET_MAX,
    };
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
