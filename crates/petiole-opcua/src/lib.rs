//! Asks OPC UA servers who they are, over `opc.tcp` and without a session.
//!
//! [`Client`] is one conversation with one server, without any I/O: bytes of the server go in, bytes to send and [`Answer`]s come
//! out. It opens a secure channel without security, asks its [`Question`]s, and closes the channel. These are the only messages of
//! OPC UA that it knows: the discovery services need no session and no certificate.
//!
//! The README says which section of the specification is in which file, with the tests of each.
//!
//! # Map
//! ```text
//! bytes of the server
//!  │ chunk        bytes -> chunks of bounded size
//!  │ binary       built-in types of OPC UA Binary; strings, arrays and nesting are bounded
//!  │ message      the body of a message -> Answer, and requests -> bytes
//!  ▼
//! Client          the order of the conversation: hello, open, questions, close
//! Turn            bytes to send, the answers, and whether the conversation is over
//! ```
//!
//! # Errors
//! A [`Failure`] ends the conversation. It names the step that failed, and the reason in words. A question that the server
//! refuses is an answer like another ([`Answer::Refused`]), and the next question follows.
#![warn(missing_docs)]
mod answer;
mod binary;
mod chunk;
mod client;
mod failure;
mod message;
#[cfg(any(test, feature = "server"))]
mod server;
mod status;
mod url;

pub use answer::{
    Answer, Application, ApplicationType, Endpoint, Question, SecurityMode, ServerOnNetwork,
    UserToken,
};
pub use client::{Client, Turn};
pub use failure::{Failure, Step};
#[cfg(any(test, feature = "server"))]
pub use server::{Quirks, Server};
pub use status::Status;
pub use url::{EndpointUrl, NotAnEndpoint};

/// Bounds that a caller may want to know. An answer beyond one of them is a [`Failure`].
pub mod limits {
    pub use crate::{
        binary::STRING_MAX,
        chunk::{CHUNK_MAX, CHUNKS_MAX, MESSAGE_MAX},
        message::{APPLICATIONS_MAX, ENDPOINTS_MAX, RECORDS_MAX, STRINGS_MAX},
        url::URL_MAX,
    };
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
