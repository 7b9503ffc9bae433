//! Removes stale capacity entries and whole installations. Agents do that by themselves; this is for a cluster whose
//! agents are gone or are about to be removed.
mod capacity;
mod claims;
mod failure;
mod objects;
mod plan;
mod release;
mod uninstall;

pub use capacity::{Action, Progress, Settings, tidy};
pub use claims::{Offer, tidy_offers};
pub use plan::Entry;
pub use release::{REVISIONS, Release, why_not_removed};
pub use uninstall::{Uninstall, uninstall};
