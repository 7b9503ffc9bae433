//! What a person sees of devices. It reads what the agents and the controller have written, and changes nothing.
//!
//! | module | what it is | subcommands of `petiole` |
//! |---|---|---|
//! | [`inspect`] | reads a cluster into a snapshot, and explains it: pure files behind one reader | `devices`, `why`, `doctor` |
//! | [`live`] | the devices of a cluster or of one node, as they change, on a terminal or in a browser | `top`, `web`, `demo` |
//! | [`screen`] | tables on a terminal, and its keys | `top`, `demo` |
//!
//! The flags of the subcommands are in `src/cli` of the package `petiole`, which also gives [`live`] the reader of a standalone
//! agent's folder: those files are the agent's own.
pub mod inspect;
pub mod live;
pub mod screen;
