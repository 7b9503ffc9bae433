//! Listens to an MQTT broker, and finds the devices that its messages tell of.
//!
//! [`Session`] is one session with one broker, without any I/O: bytes of the broker go in, bytes to send and [`Event`]s come out. It
//! speaks MQTT 3.1.1 and 5, subscribes, and publishes nothing. [`Directory`] keeps the devices of the messages by a [`Rule`].
//!
//! # Map
//! ```text
//! bytes of the broker
//!  │ packet                     bytes -> packets of bounded size, and back
//!  ▼
//! Session                       connect, subscribe, stay alive
//!  │ Event: topic and payload
//!  ▼
//! Directory                     devices, and whether they are available
//!    rule, topic                topics by a pattern
//!    homeassistant              discovery messages
//!    sparkplug                  births and deaths
//! ```
//!
//! # Errors
//! A [`Failure`] ends a session. It names the step, the reason in words, and what a person can do.
#![warn(missing_docs)]
mod availability;
mod directory;
mod facts;
mod failure;
mod homeassistant;
mod packet;
mod rule;
mod session;
mod sparkplug;
mod topic;

pub use directory::{Directory, Found};
pub use facts::Facts;
pub use failure::{Code, Failure, Reason, Step};
pub use packet::{Login, Protocol};
pub use rule::{Rule, Topics};
pub use session::{Event, Session, Turn};
pub use topic::{Pattern, is_topic};

/// Bounds that a caller may want to know.
pub mod limits {
    pub use crate::{
        availability::STATE_MAX,
        directory::{BYTES_MAX, DEVICES_MAX},
        facts::FACT_MAX,
        homeassistant::WATCHES_MAX,
        packet::PACKET_MAX,
        session::{
            ANSWER_WITHIN, PAYLOAD_MAX, SUBSCRIBED_BYTES_MAX, SUBSCRIPTIONS_MAX, WAITING_BYTES_MAX,
        },
        topic::{ID_MAX, LEVELS_MAX, TOPIC_MAX},
    };
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
