//! Defines a value that no log shows.
use std::{fmt, ops::Deref};

/// A value that may be secret. Its `Debug` does not print it, and it has no `Display`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Hidden<T>(T);

impl<T> Hidden<T> {
    pub const fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for Hidden<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Hidden<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}
