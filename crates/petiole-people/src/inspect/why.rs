//! Explains why a Pod has no device, or why an Instance or a Configuration does not do what it should.
mod finding;
mod plan;

pub use finding::{Cause, Explanation, Finding};
pub use plan::{evicted, explain};
