//! Prepares and unprepares one claim for the kubelet.
use super::{
    moved::{self, Folders, Reached},
    plan,
};
use crate::{
    agent::{
        cdi_files,
        claims_settings::cdi_file,
        plugins::{Allocator, Inputs},
    },
    model::{claim_file, container_edits::ContainerEdits, device::Mount},
};
use petiole_dra::{
    Driver, Failure,
    book::HeldDevice,
    claim::{Claim, ClaimKey},
};
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// The driver of this node.
pub(super) struct Prepare {
    pub(super) allocator: Arc<Allocator>,
    pub(super) inputs: Inputs,
    pub(super) folders: Folders,
}

/// Has a claim its slots, and returns what the containers of its requests get.
pub(in crate::agent) async fn claimed(
    allocator: &Allocator,
    claim: &Claim,
) -> Result<Vec<ContainerEdits>, String> {
    let instances = allocator.known_instances().await;
    let requests = plan::requests(claim, &instances)?;
    let edits = allocator.allocate_claim(&claim.key.uid, &requests).await;
    edits.map_err(|status| status.message().to_owned())
}

/// Returns how devices are reached now, of which these are the pools and the names.
pub(super) fn reached<'a>(
    inputs: &Inputs,
    devices: impl Iterator<Item = (&'a str, &'a str)>,
) -> Reached {
    let instances = inputs.store.instances().borrow().clone();
    let reached = devices.filter_map(|(pool, device)| {
        let digest = inputs.connection(&plan::instance_of(pool, device, &instances)?)?;
        Some((moved::key(pool, device), digest))
    });
    reached.collect()
}

impl Driver for Prepare {
    async fn prepare(&self, claim: &Claim) -> Result<Vec<Vec<String>>, Failure> {
        let mut edits = claimed(&self.allocator, claim).await?;
        let uid = &claim.key.uid;
        let described = {
            let validated = self.allocator.validated();
            plan::metadata(claim, &self.allocator.instances(), &validated.accepted)
        };
        for (n, file) in described.into_iter().enumerate() {
            let path = self.folders.of_claim(uid).join(format!("{n}.json"));
            edits[file.group].mounts.push(Mount {
                container_path: file.path,
                host_path: path.display().to_string(),
                read_only: true,
            });
            spawn_blocking(move || cdi_files::replace(&path, &file.text)).await??;
        }
        let text = claim_file::text(uid, &edits);
        let path = cdi_file(&self.folders.cdi, uid);
        let devices = claim.devices.iter();
        let devices = devices.map(|device| (&*device.pool, &*device.device));
        let (folders, reached, uid) = (
            self.folders.clone(),
            reached(&self.inputs, devices),
            uid.clone(),
        );
        let write = move || {
            cdi_files::replace(&path, &text)?;
            folders.note(&uid, &reached)
        };
        spawn_blocking(write).await??;
        Ok(plan::cdi_devices(claim, &edits))
    }

    async fn unprepare(&self, claim: &ClaimKey, _: &[HeldDevice]) -> Result<(), Failure> {
        let (folders, uid) = (self.folders.clone(), claim.uid.clone());
        spawn_blocking(move || folders.remove(&uid)).await??;
        self.allocator.release_claim(&claim.uid).await;
        Ok(())
    }
}
