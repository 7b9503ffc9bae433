//! Shows the devices of a cluster, or of a node without a cluster, live: on a terminal for `petiole top` and `petiole demo`, and in a
//! browser for `petiole web`. It writes nothing.
//!
//! `source` looks again and again, and `state` keeps what is shown and decides what has changed. `view` draws it on the
//! terminal; `page` has the files of the web page,
//! and `details` is what it shows of one device.
mod details;
mod filter;
mod host;
mod page;
pub mod source;
mod state;
pub mod terminal;
mod view;
pub mod web;

pub use source::{Looking, Source};
pub use state::State;
pub use view::draw;
