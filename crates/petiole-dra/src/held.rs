//! Decides whether a claim may have its devices beside the claims that are prepared on this node. Pure.
use crate::claim::{Claim, ClaimKey};
use serde::{Deserialize, Serialize};

/// A device that a claim has on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldDevice {
    /// The pool of the device.
    pub pool: String,
    /// The name of the device in its pool.
    pub device: String,
    /// The id of the share of a device that allows several allocations.
    pub share_id: Option<String>,
    /// Whether the claim only looks at the device.
    pub admin_access: bool,
}

/// A claim that is prepared on this node, or that was begun to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The claim.
    pub claim: ClaimKey,
    /// Its devices of this driver.
    pub devices: Vec<HeldDevice>,
}

/// A device that two claims may not have at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "device {device} of pool {pool} is still prepared for ResourceClaim {holder} (UID {}) on this node; it is free when the kubelet has \
     unprepared that claim; if no kubelet knows that claim any more, delete {}.json in the folder claims of the driver",
    .holder.uid, .holder.uid
)]
pub(crate) struct Conflict {
    device: String,
    pool: String,
    holder: ClaimKey,
}

impl Entry {
    pub(crate) fn of(claim: &Claim) -> Self {
        let devices = claim.devices.iter().map(|device| HeldDevice {
            pool: device.pool.clone(),
            device: device.device.clone(),
            share_id: device.share_id.clone(),
            admin_access: device.admin_access == Some(true),
        });
        Self {
            claim: claim.key.clone(),
            devices: devices.collect(),
        }
    }
}

/// Returns the first device of `wanted` that another claim has. Shares of one device exclude each other only if they are the
/// same share.
pub(crate) fn conflict(wanted: &Entry, held: &[Entry]) -> Option<Conflict> {
    let others = held
        .iter()
        .filter(|entry| entry.claim.uid != wanted.claim.uid);
    let all = others.flat_map(|entry| entry.devices.iter().map(move |device| (entry, device)));
    let mut taken = all.filter(|(_, device)| wanted.devices.iter().any(|w| excludes(w, device)));
    let (entry, device) = taken.next()?;
    Some(Conflict {
        device: device.device.clone(),
        pool: device.pool.clone(),
        holder: entry.claim.clone(),
    })
}

fn excludes(a: &HeldDevice, b: &HeldDevice) -> bool {
    let is_same = a.pool == b.pool && a.device == b.device;
    let are_shares = a.share_id.is_some() && b.share_id.is_some() && a.share_id != b.share_id;
    is_same && !are_shares && !a.admin_access && !b.admin_access
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(uid: &str, devices: &[(&str, Option<&str>, bool)]) -> Entry {
        let device = |(device, share, admin_access): &(&str, Option<&str>, bool)| HeldDevice {
            pool: "p".to_owned(),
            device: (*device).to_owned(),
            share_id: share.map(str::to_owned),
            admin_access: *admin_access,
        };
        Entry {
            claim: ClaimKey {
                uid: uid.to_owned(),
                namespace: "default".to_owned(),
                name: uid.to_owned(),
            },
            devices: devices.iter().map(device).collect(),
        }
    }

    #[test]
    fn a_device_has_one_claim_or_different_shares_or_lookers() {
        let held = [
            entry("a", &[("x", None, false), ("y", Some("1"), false)]),
            entry("b", &[("z", None, true)]),
        ];
        for (uid, device, share, admin, is_taken) in [
            ("c", "x", None, false, true),
            ("a", "x", None, false, false),
            ("c", "w", None, false, false),
            ("c", "y", Some("1"), false, true),
            ("c", "y", Some("2"), false, false),
            ("c", "y", None, false, true),
            ("c", "x", Some("2"), false, true),
            ("c", "x", None, true, false),
            ("c", "z", None, false, false),
        ] {
            let wanted = entry(uid, &[("other", None, false), (device, share, admin)]);
            let found = conflict(&wanted, &held);
            assert_eq!(
                found.is_some(),
                is_taken,
                "{uid} {device} {share:?} {admin}"
            );
        }
        let found = conflict(&entry("c", &[("x", None, false)]), &held).unwrap();
        let message = "device x of pool p is still prepared for ResourceClaim default/a (UID a)";
        assert!(found.to_string().starts_with(message), "{found}");
    }
}
