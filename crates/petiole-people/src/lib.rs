//! What a person sees of devices. It reads what the agents and the controller have written, and changes nothing.
//!
//! | module | what it is | subcommands of `petiole` |
//! |---|---|---|
//! | [`inspect`] | reads a cluster into a snapshot, and explains it: pure files behind one reader | `devices`, `why`, `doctor` |
//! | [`live`] | the devices of a cluster or of one node, as they change, on a terminal or in a browser | `top`, `web`, `demo` |
//! | [`screen`] | tables on a terminal, and its keys | `top`, `demo` |
//!
//! Their flags are in [`cli`]. The package `petiole` also has a node without a cluster to show, which it looks at itself. The program
//! `kubectl-petiole` is this crate alone, and compiles for Windows and macOS, too.
pub mod cli;
pub mod inspect;
pub mod live;
pub mod screen;
