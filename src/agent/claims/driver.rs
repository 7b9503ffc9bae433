//! Prepares and unprepares one claim for the kubelet.
use super::plan;
use crate::{
    agent::{cdi_files, plugins::Allocator},
    files,
    model::{claim_file, container_edits::ContainerEdits, device::Mount, dra},
};
use petiole_dra::{
    Driver, Failure,
    book::HeldDevice,
    claim::{Claim, ClaimKey},
};
use std::{path::PathBuf, sync::Arc};
use tokio::task::spawn_blocking;

/// The driver of this node.
pub(super) struct Prepare {
    pub(super) allocator: Arc<Allocator>,
    /// The folder of the CDI files.
    pub(super) folder: PathBuf,
    /// The folder of what containers may read of their devices.
    pub(super) metadata: PathBuf,
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

impl Driver for Prepare {
    async fn prepare(&self, claim: &Claim) -> Result<Vec<Vec<String>>, Failure> {
        let mut edits = claimed(&self.allocator, claim).await?;
        let uid = &claim.key.uid;
        let described = {
            let validated = self.allocator.validated();
            plan::metadata(claim, &self.allocator.instances(), &validated.accepted)
        };
        for (n, file) in described.into_iter().enumerate() {
            let path = self.metadata.join(uid).join(format!("{n}.json"));
            edits[file.group].mounts.push(Mount {
                container_path: file.path,
                host_path: path.display().to_string(),
                read_only: true,
            });
            spawn_blocking(move || cdi_files::replace(&path, &file.text)).await??;
        }
        let text = claim_file::text(uid, &edits);
        let path = self.folder.join(dra::cdi_file_name(uid));
        spawn_blocking(move || cdi_files::replace(&path, &text)).await??;
        Ok(plan::cdi_devices(claim, &edits))
    }

    async fn unprepare(&self, claim: &ClaimKey, _: &[HeldDevice]) -> Result<(), Failure> {
        let path = self.folder.join(dra::cdi_file_name(&claim.uid));
        let metadata = self.metadata.join(&claim.uid);
        let remove = move || files::remove(&path).and_then(|()| files::remove_folder(&metadata));
        spawn_blocking(remove).await??;
        self.allocator.release_claim(&claim.uid).await;
        Ok(())
    }
}
