//! What a person sees of devices. It reads what the agents and the controller have written, and changes nothing.
//!
//! | module | what it is | subcommands of `petiole` |
//! |---|---|---|
//! | [`inspect`] | reads a cluster into a snapshot, and explains it: pure files behind one reader | `devices`, `why`, `doctor` |
//! | [`live`] | the devices of a cluster or of one node, as they change, on a terminal or in a browser | `top`, `web`, `demo` |
//! | [`screen`] | tables on a terminal, and its keys | `top`, `demo` |
//!
//! Their flags are in [`cli`], with `discover`, which runs a handler on a node. The package `petiole` also has a node without a cluster to
//! show, which it looks at itself. The program `kubectl-petiole` is this crate with the subcommands of petiole-cli, and compiles for Windows
//! and macOS, too.
//!
//! Questions about [`inspect`], the largest module:
//!
//! | question | file |
//! |---|---|
//! | What is read of a cluster, and what if a right is missing? | `read`; `follow` reads again after each change |
//! | What does a resource belong to, and which agent is on a node? | `snapshot` |
//! | Who has a slot? | `slots`; `claims` and `claimed` of those that the scheduler gives out |
//! | What is said of a device in a list? | `devices`; `node_only` of devices without Instances |
//! | What is explained, and in which order? | `why/plan`; `finding` has the causes and the most words |
//! | Why does a Pod not get a resource? | `why/plan/pod`, then `resource`, and `nodes` of each node |
//! | Why has a Configuration no devices? | `why/plan/problems` |
//! | Which Pods does a Deployment have? | `workloads` |
//! | Which lines does `doctor` print? | `doctor`, and its files for agents and objects |
pub mod cli;
pub mod inspect;
pub mod live;
pub mod screen;
