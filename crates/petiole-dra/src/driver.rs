//! Defines what a driver's author writes.
use crate::{
    book::HeldDevice,
    claim::{Claim, ClaimKey},
};
use std::error::Error;

/// The reason that a driver could not do it. The kubelet shows it in the Events of the Pod.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Prepares the devices of a node.
///
/// **Guarantees.** Calls for different claims come concurrently, those for one claim one after the other. A device that is not
/// shared is prepared for one claim at a time, also after a restart. A failure or a panic is that of one claim.
///
/// **Caveats.** The kubelet calls again: after its own restart, after that of the driver or of the machine, and after each failure. It
/// gives up after 45 s; then the future is dropped at an await, and the next call begins anew.
pub trait Driver: Send + Sync + 'static {
    /// Makes the devices of a claim ready, and returns the names of CDI devices (`vendor/class=name`) for each of
    /// [`Claim::devices`], in their order. A driver writes the CDI files of these names, which the container runtime reads. No name is
    /// valid, too. The same claim gets the same names each time.
    fn prepare(
        &self,
        claim: &Claim,
    ) -> impl Future<Output = Result<Vec<Vec<String>>, Failure>> + Send;

    /// Reverts [`Driver::prepare`], also if it failed halfway. The claim may be gone from the API server. `devices` are those that it
    /// was prepared with; they are empty if it never was, or if the record was lost. A failure keeps the Pod from ending.
    fn unprepare(
        &self,
        claim: &ClaimKey,
        devices: &[HeldDevice],
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}
