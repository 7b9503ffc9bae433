//! Prepares and unprepares one claim for the kubelet.
use super::{moved::Folders, plan};
use crate::{
    agent::{
        cdi_files,
        plugins::{Allocator, ForClaim},
    },
    model::{claim_file, device::Mount},
};
use petiole_dra::{
    Driver, Failure,
    book::HeldDevice,
    claim::{Claim, ClaimKey},
};
use std::sync::Arc;
use tokio::task::spawn_blocking;
use tonic::Status;

/// The driver of this node.
pub(super) struct Prepare {
    pub(super) allocator: Arc<Allocator>,
    pub(super) folders: Folders,
}

/// Has a claim its slots, and returns what the containers of its requests get.
pub(in crate::agent) async fn claimed(
    allocator: &Allocator,
    claim: &Claim,
) -> Result<ForClaim, String> {
    let said = |status: Status| status.message().to_owned();
    let instances = allocator.known_instances().await.map_err(said)?;
    let requests = plan::requests(claim, &instances)?;
    let given = allocator.allocate_claim(&claim.key.uid, &requests).await;
    given.map_err(said)
}

impl Driver for Prepare {
    async fn prepare(&self, claim: &Claim) -> Result<Vec<Vec<String>>, Failure> {
        let ForClaim {
            mut edits,
            connections,
        } = claimed(&self.allocator, claim).await?;
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
        let (folders, uid) = (self.folders.clone(), uid.clone());
        spawn_blocking(move || folders.write(&uid, &text, &connections)).await??;
        Ok(plan::cdi_devices(claim, &edits))
    }

    async fn unprepare(&self, claim: &ClaimKey, _: &[HeldDevice]) -> Result<(), Failure> {
        let (folders, uid) = (self.folders.clone(), claim.uid.clone());
        spawn_blocking(move || folders.remove(&uid)).await??;
        self.allocator.release_claim(&claim.uid).await;
        Ok(())
    }
}
