//! Asks OPC UA servers who they are, over `opc.tcp` and without a session.
//!
//! [`Client`] is one conversation with one server, without any I/O: bytes of the server go in, bytes to send and [`Answer`]s come
//! out. It opens a secure channel without security, asks its [`Question`]s, and closes the channel. These are the only messages of
//! OPC UA that it knows: the discovery services need no session and no certificate.
//!
//! [`Survey`] decides whom to ask: the servers that the caller names, those that they tell of, and those of the network; again and again,
//! with the names of hosts that only the servers know replaced.
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
//!  │ said, reach  what a server says, and where the servers are reached that it tells of
//!  ▼
//! Survey          whom to ask next, and who answers
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
mod reach;
mod said;
#[cfg(any(test, feature = "server"))]
mod server;
mod status;
mod survey;
mod url;

pub use answer::{
    Answer, Application, ApplicationType, Endpoint, Question, SecurityMode, UserToken,
};
pub use client::{Client, Turn};
pub use failure::{Failure, Step};
#[cfg(any(test, feature = "server"))]
pub use server::{Quirks, Server};
pub use status::Status;
pub use survey::{Ask, FoundServer, Heard, Seen, Survey};
pub use url::{EndpointUrl, NotAnEndpoint};

/// Bounds that a caller may want to know. An answer beyond one of them is a [`Failure`].
pub mod limits {
    pub use crate::{
        binary::STRING_MAX,
        chunk::{CHUNK_MAX, CHUNKS_MAX, MESSAGE_MAX},
        message::{APPLICATIONS_MAX, ENDPOINTS_MAX, RECORDS_MAX, STRINGS_MAX},
        survey::SERVERS_MAX,
        url::URL_MAX,
    };
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
