//! Defines what to do next in a conversation with a host.
use crate::facts::Facts;

/// What to do after bytes were received.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// Receive more.
    More,
    /// Send these bytes.
    Send(Vec<u8>),
    /// The host is what was asked for.
    Done(Facts),
}
