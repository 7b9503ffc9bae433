//! Asks one host by one protocol what it is.
//!
//! [`Inquiry`] is one conversation, without any I/O: bytes of the host go in, bytes to send and [`Facts`] come out. [`certificate()`] reads
//! what a host has shown in TLS.
//!
//! # Map
//! ```text
//! Inquiry                        asks a Question, and ends with Facts or a Failure
//!  ├ http ─ message              HTTP and Redfish
//!  ├ rtsp ─ message              OPTIONS
//!  ├ modbus                      function 43/14
//!  └ snmp ─ ber                  a GET of version 2c
//! certificate ─ ber              X.509
//! ```
//!
//! # Errors
//! A [`Failure`] ends an inquiry. It says what was answered instead.
#![warn(missing_docs)]
mod ber;
mod certificate;
mod facts;
mod failure;
mod http;
mod inquiry;
mod message;
mod modbus;
mod rtsp;
mod snmp;
mod turn;

pub use certificate::certificate;
pub use facts::Facts;
pub use failure::Failure;
pub use http::Http;
pub use inquiry::{Inquiry, Question};
pub use turn::Turn;

/// Bounds that a caller may want to know.
pub mod limits {
    pub use crate::{
        facts::VALUE_MAX,
        failure::ANSWER_MAX,
        message::{HEADERS_MAX, LINE_MAX},
        modbus::REQUESTS_MAX,
    };
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
