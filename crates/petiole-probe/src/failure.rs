//! Defines why a host was not identified. Pure.

/// The most bytes of an answer. Beyond it: the host is not identified.
pub const ANSWER_MAX: usize = 64 * 1024;

/// What a host answered instead of what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The bytes are of another protocol than this one.
    #[error("what answers does not speak {0}")]
    Foreign(&'static str),
    /// The answer is beyond a bound.
    #[error("the answer is larger than {} KiB, or one of its lines or heads is too large", ANSWER_MAX >> 10)]
    Large,
    /// The status of HTTP is another one than the expected one.
    #[error("the status of the answer is {0}")]
    Status(u16),
    /// The answer lacks this.
    #[error("the answer has no {0}")]
    Missing(String),
    /// The host refuses with this code of this protocol.
    #[error("the answer is the error {1} of {0}")]
    Refused(&'static str, u32),
    /// The host closed the connection too early.
    #[error("the connection was closed before the answer was whole")]
    HungUp,
}
