//! Finds ONVIF devices (cameras, recorders) by WS-Discovery, and asks them over SOAP what they are. Nothing here does I/O or
//! reads a clock: datagrams, HTTP answers and the time go in; datagrams and HTTP requests come out.
//!
//! - [`Prober`] finds devices: it says which probes to send and when, and which devices are there.
//! - [`Inquiry`] is the conversation with one device: its time, its network interfaces, its serial number, its streams. It
//!   authenticates by WS-UsernameToken or by HTTP Digest, as the device asks for it.
//!
//! # Map
//! ```text
//! a datagram                                an HTTP answer
//!  │ xml       bytes -> a bounded tree       │ xml
//!  │ message   -> Hello, Bye, matches        │ answers   -> time, interfaces, information, faults
//!  ▼                                         ▼
//! Prober::receive                           Inquiry::answer
//!  │ known     devices, their answers        │ token, http_digest
//!  │ sweep     addresses of other networks   │ requests  the next call
//!  ▼                                         ▼
//! Prober::turn -> Turn                      Inquiry::next -> Step
//! ```
//! # Errors
//! A foreign message that cannot be used is ignored, and a value beyond a bound is left out. An [`Inquiry`] ends with
//! [`Facts`] or with a [`Failure`] that names the call and the reason.
#![warn(missing_docs)]
mod answers;
mod http_digest;
mod inquiry;
mod message;
mod prober;
mod requests;
mod scopes;
mod token;
mod url;
mod xml;

pub use answers::{Information, Interface};
pub use inquiry::{Answer, Credentials, Facts, Failure, Inquiry, Request, Step, Stream, Wanted};
pub use message::{Endpoint, Kind, Message, Spelling};
pub use prober::{Device, Family, Outgoing, Prober, Settings, To, Turn};
pub use scopes::scope_values;
pub use url::{Url, candidates};

/// Bounds that a caller may want to know.
pub mod limits {
    pub use crate::{
        inquiry::REQUESTS_MAX,
        message::{ADDRESSES_MAX, SCOPES_MAX, TEXT_MAX},
        prober::{DEVICES_MAX, SUBNET_ADDRESSES_MAX},
        xml::{DEPTH_MAX, DOCUMENT_MAX},
    };
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
