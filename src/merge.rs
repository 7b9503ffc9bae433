//! Makes Instances: what nodes report becomes, with the Configurations and the Instances, changes of Instances. Pure.
//!
//! It alone decides which Instances are created, what they say, which nodes they name, and when they are deleted. The
//! controller calls it for a cluster, and the store of a folder for its one node. An agent reports all its devices, and writes
//! of an Instance its own slots.
//!
//! | file | decides |
//! |---|---|
//! | `reports.rs` | which reports are about the device of an Instance |
//! | `plan.rs` | the changes of all Instances, from the answers of the others |
//! | `create.rs`, `own_names.rs` | which devices get an Instance, and its name |
//! | `change.rs`, `status.rs` | which nodes an Instance names, and what it says |
//! | `stale.rs` | which entries of an Instance are of no use |
//! | `room.rs` | which new properties have room in memory |
//! | `end.rs`, `finalizers.rs` | when it is deleted, and that nothing of Akri's delays it |
//! | `events.rs` | what is said of a device that comes or goes |
//! | `alone.rs` | all that, for a node without a cluster |
#[cfg(any(test, feature = "people"))]
pub(crate) mod alone;
mod change;
mod create;
mod end;
mod events;
pub(crate) mod finalizers;
mod own_names;
pub(crate) mod plan;
mod reports;
mod room;
mod stale;
pub(crate) mod status;

pub(crate) use events::{InstanceEvent, listed};
pub(crate) use reports::DeviceReports;
pub(crate) use room::{Taken, kept_bytes};
