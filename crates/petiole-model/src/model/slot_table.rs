//! Holds every slot of this node's Instances: its owner, and its ids at the kubelet.
//!
//! Two sources determine a slot's owner: the value *observed* in the Instance, and the value that this node is
//! *writing* to it. They are stored apart, so that an observation that arrives during a claim cannot undo the claim.
mod adoption;
#[cfg(test)]
mod adoption_tests;
mod claim;
#[cfg(test)]
mod claims_tests;
mod listing;
mod own;
mod own_slots;
#[cfg(test)]
mod own_tests;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod touched_tests;
mod values;

pub use adoption::{Adoptions, HeldTwice};
pub use claim::{Claim, ClaimError, preferred_of};
pub use listing::ListedSlot;
pub use own::SETTLED_AFTER;
pub use table::{SlotTable, Usage};
pub use values::{Held, ObservedSlots, Precedence, Resource, SlotChange, Touched, Use};
